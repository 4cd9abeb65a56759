// SPDX-License-Identifier: Apache-2.0
// How long things take when nodes die, freeze, drip, or are merely far away: what one node does
// costs a load one attempt, never its deadline, and deadlines hold.
#include <algorithm>
#include <atomic>
#include <thread>

#include "tests/fault/world.h"

namespace aerokv::testing {
namespace {

using devserver::Fault;
using devserver::FaultAction;
using devserver::RequestKind;
using std::chrono::microseconds;
using std::chrono::milliseconds;
using std::chrono::seconds;
using Clock = std::chrono::steady_clock;

constexpr milliseconds kPatience{150 * kSlowness};  // for silence, as by default

/// A machine that was busy with other things may take four times as long.
milliseconds bound(milliseconds calm, Clock::time_point begun) {
  return calm * kSlowness * (LagMeter::instance().was_calm_since(begun) ? 1 : 4);
}

milliseconds since(Clock::time_point begun) {
  return std::chrono::duration_cast<milliseconds>(Clock::now() - begun);
}

class Patience : public ::testing::Test {
 protected:
  explicit Patience(int nodes = 3) {
    LagMeter::instance();
    devserver::Options options;
    options.nodes = nodes;
    options.threads = 2;
    options.timing.detection = seconds(60);  // the client has to help itself
    options.namespaces[0].max_record_bytes /= kSlowness;
    server_ = start_server(std::move(options));
    options_ = options_for(*server_);
    options_.request_timeout = kPatience;
    options_.read_timeout = options_.write_timeout = seconds(10);
    for (size_t i = 0; i < kObjects; ++i) {
      // One record, some segments, many segments. Bytes are what is slow in a slow build.
      constexpr size_t kSizes[] = {700, (300 << 10) / kSlowness, (3 << 20) / kSlowness};
      contents_.push_back(random_bytes(kSizes[i % 3] + i, i));
    }
  }

  static constexpr size_t kObjects = 24;
  static std::string key(size_t i) { return "object/" + std::to_string(i); }

  void store_all(Store& store) {
    std::vector<Item> items;
    for (size_t i = 0; i < kObjects; ++i) items.push_back(put_item(key(i), contents_[i]));
    ASSERT_EQ(bits_of(run(store, Operation::put, std::move(items))), kAllOnes);
  }

  /// Loads object `i`; a hit must be right. True for a hit.
  bool load(Store& store, size_t i) {
    Guarded target(contents_[i].size());
    const std::vector<ItemResult> results = run(store, Operation::get, {get_into(key(i), target)});
    EXPECT_TRUE(target.is_intact());
    EXPECT_TRUE(results[0].outcome != Outcome::hit || target.holds(contents_[i]));
    if (results[0].outcome == Outcome::error) last_error_ = results[0].status.message();
    return results[0].outcome == Outcome::hit;
  }

  std::string load_all(Store& store) {
    std::string bits;
    for (size_t i = 0; i < kObjects; ++i) bits += load(store, i) ? '1' : '0';
    return bits;
  }

  std::string look_up_all(Store& store) {
    std::vector<Item> items;
    for (size_t i = 0; i < kObjects; ++i) items.push_back(key_item(key(i)));
    return bits_of(run(store, Operation::exists, std::move(items)));
  }

  /// Loads and looks up all the time from several threads while `event` runs. Returns the longest
  /// time that one took; all must succeed.
  template <typename Event>
  milliseconds longest_during(Store& store, Event event) {
    std::atomic<bool> stopping{false};
    std::atomic<int64_t> longest{0};
    std::vector<std::thread> threads;
    for (size_t t = 0; t < 4; ++t) {
      threads.emplace_back([&, t] {
        for (size_t i = t; !stopping; ++i) {
          const auto begun = Clock::now();
          if (t == 3) {
            EXPECT_EQ(look_up_all(store), kAllOnes);
          } else {
            EXPECT_TRUE(load(store, i % kObjects)) << last_error_;
          }
          int64_t known = longest.load();
          const int64_t took = since(begun).count();
          while (took > known && !longest.compare_exchange_weak(known, took)) {
          }
        }
      });
    }
    event();
    stopping = true;
    for (std::thread& thread : threads) thread.join();
    return milliseconds(longest.load());
  }

  uint64_t requests_to(int node) {
    const Result<devserver::NodeStats> stats = server_->stats(node);
    return stats->requests[static_cast<size_t>(RequestKind::get)] +
           stats->requests[static_cast<size_t>(RequestKind::operate)];
  }

  static void sleep(milliseconds time) { std::this_thread::sleep_for(time); }

  const std::string kAllOnes = std::string(kObjects, '1');
  std::unique_ptr<devserver::DevServer> server_;
  StoreOptions options_;
  std::vector<Buffer> contents_;
  std::string last_error_;
};

TEST_F(Patience, AFrozenNodeDelaysNoLoadByMoreThanOneAttempt) {
  const std::unique_ptr<Store> store = open_store(options_);
  store_all(*store);
  const auto begun = Clock::now();
  const milliseconds longest = longest_during(*store, [&] {
    sleep(milliseconds(200));
    ASSERT_TRUE(server_->pause_node(1).ok());
    sleep(milliseconds(700));
  });
  EXPECT_LE(longest, bound(milliseconds(250), begun));
  // Thawed, it is used again within a second, although nobody was told.
  ASSERT_TRUE(server_->resume_node(1).ok());
  const auto thawed = Clock::now();
  const uint64_t before = requests_to(1);
  while (requests_to(1) < before + kObjects && since(thawed) < seconds(20)) {
    EXPECT_EQ(load_all(*store), kAllOnes) << last_error_;
  }
  EXPECT_LE(since(thawed), bound(milliseconds(1000), begun));
  EXPECT_GT(store->stats().probes, 0U);
}

TEST_F(Patience, ADeadNodeDelaysNoLoad) {
  const std::unique_ptr<Store> store = open_store(options_);
  store_all(*store);
  const auto begun = Clock::now();
  const milliseconds longest = longest_during(*store, [&] {
    sleep(milliseconds(200));
    ASSERT_TRUE(server_->stop_node(2).ok());
    sleep(milliseconds(500));
  });
  EXPECT_LE(longest, bound(milliseconds(250), begun));
  const std::vector<StoreStats::NodeStats> nodes = store->stats().nodes;
  EXPECT_EQ(std::count_if(nodes.begin(), nodes.end(), [](const auto& n) { return n.suspect; }), 1);
}

TEST_F(Patience, ARequestThatIsLostOnAWorkingNodeCostsOneAttempt) {
  const std::unique_ptr<Store> store = open_store(options_);
  store_all(*store);
  ASSERT_EQ(load_all(*store), kAllOnes);
  for (int i = 0; i < 3; ++i) {
    Fault fault;
    fault.node = i;
    fault.kinds = devserver::mask_of(RequestKind::get, RequestKind::operate);
    fault.action = FaultAction::drop;
    fault.count = 1;
    const auto begun = Clock::now();
    const milliseconds longest = longest_during(*store, [&] {
      const uint64_t id = server_->add_fault(fault);
      ASSERT_TRUE(server_->await_fault(id, 1, seconds(10)).ok());
      sleep(2 * kPatience);
    });
    EXPECT_LE(longest, bound(milliseconds(250), begun));
    EXPECT_GE(longest, milliseconds(20)) << "the fault was not met";
  }
}

TEST_F(Patience, ADrippingNodeCostsOneAttempt) {
  const std::unique_ptr<Store> store = open_store(options_);
  store_all(*store);
  ASSERT_EQ(load_all(*store), kAllOnes);
  ASSERT_TRUE(server_->set_link(0, 20).ok());  // one byte every 50 ms
  const auto begun = Clock::now();
  for (size_t i = 0; i < kObjects; ++i) {
    const auto one = Clock::now();
    EXPECT_TRUE(load(*store, i)) << last_error_;
    // The deadline is 10 s away; two requests of a load may meet the node one after the other.
    EXPECT_LE(since(one), bound(milliseconds(600), begun));
  }
  EXPECT_EQ(look_up_all(*store), kAllOnes);
  EXPECT_LE(since(begun), bound(milliseconds(3000), begun));
}

TEST_F(Patience, AFarNodeIsNotLeft) {
  for (const int rtt : {10, 50}) {
    ASSERT_TRUE(server_->set_latency(devserver::kAllNodes, milliseconds(rtt)).ok());
    const std::unique_ptr<Store> store = open_store(options_);
    store_all(*store);
    for (int i = 0; i < 2; ++i) {
      EXPECT_EQ(load_all(*store), kAllOnes) << last_error_;
      EXPECT_EQ(look_up_all(*store), kAllOnes);
    }
    const StoreStats stats = store->stats();
    EXPECT_EQ(stats.stalls, 0U);
    EXPECT_EQ(stats.retries, 0U);
    for (const auto& node : stats.nodes) EXPECT_EQ(node.failures, 0U);
  }
}

TEST_F(Patience, ANodeThatGetsFartherIsLeftOnceAtMost) {
  const std::unique_ptr<Store> store = open_store(options_);
  store_all(*store);
  for (int i = 0; i < 3; ++i) ASSERT_EQ(load_all(*store), kAllOnes);
  // Over the least patience of a node that is quick, below the whole.
  ASSERT_TRUE(server_->set_latency(1, kPatience * 2 / 3).ok());
  EXPECT_EQ(load_all(*store), kAllOnes) << last_error_;
  const uint64_t stalls = store->stats().stalls;
  EXPECT_EQ(load_all(*store), kAllOnes) << last_error_;
  EXPECT_LE(store->stats().stalls - stalls, 4U) << "it is left again and again";
}

TEST_F(Patience, ANodeBehindAFullLinkIsNotLeft) {
  options_.max_bytes_in_flight = 16 << 20;
  const std::unique_ptr<Store> store = open_store(options_);
  store_all(*store);
  const auto begun = Clock::now();
  ASSERT_TRUE(server_->set_link(devserver::kAllNodes, (20 << 20) / kSlowness).ok());
  std::vector<Guarded> targets;
  for (const Buffer& content : contents_) targets.emplace_back(content.size());
  std::vector<Item> items;
  for (size_t i = 0; i < kObjects; ++i) items.push_back(get_into(key(i), targets[i]));
  EXPECT_EQ(bits_of(run(*store, Operation::get, std::move(items))), kAllOnes);
  const StoreStats stats = store->stats();
  if (LagMeter::instance().was_calm_since(begun)) {
    EXPECT_LE(stats.retries, stats.requests / 20) << "stalls " << stats.stalls;
  }
}

TEST_F(Patience, ANodeThatIsNoMemberIsSoonNotAskedAnyMore) {
  const std::unique_ptr<Store> store = open_store(options_);
  store_all(*store);
  Fault fault;
  fault.node = 1;
  fault.action = FaultAction::result_code;
  fault.code = 11;
  const uint64_t id = server_->add_fault(fault);
  const uint64_t before = store->stats().requests;
  const auto begun = Clock::now();
  Buffer target(700);
  for (size_t i = 0; i < 400; ++i) {
    const std::string name = "absent/" + std::to_string(i);
    EXPECT_EQ(bits_of(run(*store, Operation::get, {get_item(name, target)})), "0");
  }
  const uint64_t asked = store->stats().requests - before;
  const uint64_t refused = server_->fault_counters()[0].applied;
  EXPECT_GT(refused, 0U);
  // A third would be as if there were no breaker. Each round of the tend, ten in a second at most,
  // closes it for one request: the node answers questions about the cluster.
  const auto rounds = static_cast<uint64_t>(since(begun) / milliseconds(100));
  EXPECT_LT(refused, asked / 8 + rounds) << "of " << asked << " in " << rounds << " rounds";
  server_->remove_fault(id);
}

/// Ends of batches when nothing is answered.
class Deadlines : public Patience {
 protected:
  void expect_in_time(Store& store, const char* what) {
    for (const Operation operation : {Operation::get, Operation::exists, Operation::put}) {
      for (int i = 0; i < 3; ++i) {
        std::vector<Guarded> targets;
        for (const Buffer& content : contents_) targets.emplace_back(content.size());
        std::vector<Item> items;
        for (size_t k = 0; k < kObjects; ++k) {
          items.push_back(operation == Operation::get      ? get_into(key(k), targets[k])
                          : operation == Operation::exists ? key_item(key(k))
                                                           : put_item(key(k), contents_[k]));
        }
        const auto begun = Clock::now();
        const auto deadline = store.deadline(operation, items);
        static_cast<void>(run(store, operation, std::move(items)));
        const auto late = std::chrono::duration_cast<milliseconds>(Clock::now() - deadline);
        EXPECT_LE(late, bound(milliseconds(15), begun))
            << what << ", operation " << static_cast<int>(operation);
      }
    }
  }
};

TEST_F(Deadlines, HoldWhateverTheNetworkDoes) {
  options_.batch_timeout = milliseconds(120 * kSlowness);
  options_.max_bytes_in_flight = (2 << 20) / kSlowness;  // most requests wait for bytes
  const std::unique_ptr<Store> store = [&] {
    StoreOptions patient = options_;
    patient.batch_timeout = milliseconds(0);
    const std::unique_ptr<Store> first = open_store(patient);
    store_all(*first);
    return open_store(options_);
  }();
  ASSERT_TRUE(server_->set_link(devserver::kAllNodes, 2000).ok());
  expect_in_time(*store, "drip");
  ASSERT_TRUE(server_->set_link(devserver::kAllNodes, 0).ok());
  for (int node = 0; node < 3; ++node) ASSERT_TRUE(server_->pause_node(node).ok());
  expect_in_time(*store, "silence");
  for (int node = 0; node < 3; ++node) ASSERT_TRUE(server_->stop_node(node).ok());
  expect_in_time(*store, "refused");
}

/// What a write may have done although it failed.
TEST_F(Patience, AWriteInDoubtIsNeverCountedAsStored) {
  options_.write_timeout = milliseconds(400 * kSlowness);
  options_.write_request_timeout = milliseconds(100 * kSlowness);
  const std::unique_ptr<Store> store = open_store(options_);
  const Buffer content = random_bytes(700, 1);
  struct Case {
    FaultAction action;
    uint8_t code;
    bool in_doubt;
  };
  uint64_t failed = 0;
  for (const Case& c :
       {Case{FaultAction::drop_answer, 0, true}, Case{FaultAction::result_after_execute, 9, true},
        Case{FaultAction::close_after_bytes, 0, true}, Case{FaultAction::result_code, 14, false},
        Case{FaultAction::result_code, 13, false}}) {
    Fault fault;
    fault.kinds = devserver::mask_of(RequestKind::put, RequestKind::operate);
    fault.action = c.action;
    fault.code = c.code;
    fault.bytes = 0;
    const uint64_t id = server_->add_fault(fault);
    const std::vector<ItemResult> results =
        run(*store, Operation::put, {put_item("doubt", content)});
    EXPECT_EQ(results[0].outcome, Outcome::error);
    EXPECT_EQ(results[0].bytes, 0U);
    EXPECT_EQ(results[0].status.in_doubt(), c.in_doubt) << results[0].status.message();
    const StoreStats::PerOperation puts =
        store->stats().operations[static_cast<size_t>(Operation::put)];
    EXPECT_EQ(puts.hits, 0U);
    EXPECT_EQ(puts.bytes, 0U);
    EXPECT_EQ(puts.errors, ++failed);
    server_->remove_fault(id);
  }
  // Refused at last, but an attempt before may have done it.
  Fault lost;
  lost.kinds = devserver::mask_of(RequestKind::put, RequestKind::operate);
  lost.action = FaultAction::result_after_execute;
  lost.code = 9;
  lost.count = 1;
  server_->add_fault(lost);
  Fault refused = lost;
  refused.action = FaultAction::result_code;
  refused.code = 13;
  server_->add_fault(refused);
  const std::vector<ItemResult> results = run(*store, Operation::put, {put_item("doubt", content)});
  EXPECT_EQ(results[0].outcome, Outcome::error);
  EXPECT_EQ(results[0].status.code(), Code::too_big) << results[0].status.message();
  EXPECT_TRUE(results[0].status.in_doubt());
  // To store again is always safe.
  server_->clear_faults();
  EXPECT_EQ(bits_of(run(*store, Operation::put, {put_item("doubt", content)})), "1");
}

TEST_F(Patience, RetriesAreAFewOfTheRequests) {
  options_.num_io_threads = 1;
  options_.read_timeout = milliseconds(400 * kSlowness);
  const std::unique_ptr<Store> store = open_store(options_);
  Fault fault;
  fault.kinds = devserver::mask_of(RequestKind::get, RequestKind::operate);
  fault.action = FaultAction::result_code;
  fault.code = 14;
  server_->add_fault(fault);
  const auto begun = Clock::now();
  constexpr size_t kLoads = 2000;
  Buffer target(700);
  std::vector<Item> items;
  for (size_t i = 0; i < kLoads; ++i) {
    items.push_back(get_item("absent/" + std::to_string(i), target));
  }
  EXPECT_EQ(bits_of(run(*store, Operation::get, std::move(items))), std::string(kLoads, 'E'));
  const StoreStats stats = store->stats();
  const double budget = 0.2 * kLoads + 64;
  const double per_second = 40 + 0.2 * kLoads;
  const double took = std::chrono::duration<double>(Clock::now() - begun).count();
  EXPECT_LE(static_cast<double>(stats.retries), budget + per_second * took + 20)
      << "of 6,000 without a budget";
  EXPECT_GE(stats.retries, 50U);
}

/// Late answers, and what becomes of them.
class Hedging : public Patience {
 protected:
  Hedging() {
    options_.hedge_reads = true;
    options_.num_io_threads = 1;
  }
};

TEST_F(Hedging, ALateNodeIsOvertakenAndItsAnswerTouchesNothing) {
  options_.verify = Verify::full;  // where no hedge was sent the damage is to be noticed
  const std::unique_ptr<Store> store = open_store(options_);
  store_all(*store);
  for (int i = 0; i < 8; ++i) ASSERT_EQ(load_all(*store), kAllOnes);
  const StoreStats before = store->stats();
  // Node 0 answers late, and what it answers is not what was stored.
  ASSERT_TRUE(server_->set_latency(0, milliseconds(40 * kSlowness)).ok());
  Fault fault;
  fault.node = 0;
  fault.kinds = devserver::mask_of(RequestKind::get, RequestKind::operate);
  fault.action = FaultAction::damage;
  fault.damage = devserver::Damage::flip_value_bit;
  const uint64_t id = server_->add_fault(fault);
  const auto begun = Clock::now();
  size_t hits = 0;
  for (size_t i = 0; i < kObjects; ++i) {
    // Gone before the loser's answer comes: whoever writes there is found by the sanitizers.
    auto target = std::make_unique<Guarded>(contents_[i].size());
    const std::vector<ItemResult> results =
        run(*store, Operation::get, {get_into(key(i), *target)});
    if (results[0].outcome != Outcome::hit) continue;  // over the budget: damaged, a miss
    ++hits;
    EXPECT_TRUE(target->holds(contents_[i]));
    sleep(milliseconds(i % 4 == 0 ? 50 * kSlowness : 0));
    EXPECT_TRUE(target->is_intact());
    EXPECT_TRUE(target->holds(contents_[i])) << "a late answer was written over a good one";
  }
  const StoreStats after = store->stats();
  if (LagMeter::instance().was_calm_since(begun)) {
    EXPECT_GE(hits, kObjects / 2) << "damaged ones are few";
  }
  EXPECT_GT(after.hedges, before.hedges);
  EXPECT_GT(after.hedges_won, before.hedges_won);
  // One in twenty, and a few.
  EXPECT_LE(static_cast<double>(after.hedges), 0.05 * static_cast<double>(after.requests) + 40);
  server_->remove_fault(id);
  ASSERT_TRUE(server_->set_latency(0, milliseconds(0)).ok());
  EXPECT_EQ(load_all(*store), kAllOnes) << last_error_;
  EXPECT_EQ(store->stats().bytes_in_flight, 0U);
}

TEST_F(Hedging, SurvivesEveryFaultOfEitherLeg) {
  const std::unique_ptr<Store> store = open_store(options_);
  store_all(*store);
  for (int i = 0; i < 8; ++i) ASSERT_EQ(load_all(*store), kAllOnes);
  ASSERT_TRUE(server_->set_latency(1, milliseconds(15 * kSlowness)).ok());
  for (const FaultAction action :
       {FaultAction::close, FaultAction::close_after_bytes, FaultAction::result_code,
        FaultAction::drop, FaultAction::damage}) {
    for (int node = 0; node < 3; ++node) {
      Fault fault;
      fault.node = node;
      fault.kinds = devserver::mask_of(RequestKind::get, RequestKind::operate);
      fault.action = action;
      fault.code = 11;
      fault.bytes = 40;
      fault.damage = devserver::Damage::garbage_frame;
      fault.count = 4;
      const uint64_t id = server_->add_fault(fault);
      EXPECT_EQ(load_all(*store), kAllOnes) << last_error_;
      server_->remove_fault(id);
    }
  }
  EXPECT_GT(store->stats().hedges, 0U);
  EXPECT_EQ(store->stats().bytes_in_flight, 0U);
}

TEST_F(Hedging, ClosingAmidHedgesLeavesNothingBehind) {
  for (int round = 0; round < 3; ++round) {
    const std::unique_ptr<Store> store = open_store(options_);
    const std::unique_ptr<Store> sharing = open_store(options_);
    if (round == 0) store_all(*store);
    for (int i = 0; i < 5; ++i) ASSERT_EQ(load_all(*store), kAllOnes);
    ASSERT_TRUE(server_->set_latency(0, milliseconds(60 * kSlowness)).ok());
    std::vector<Guarded> targets;
    for (const Buffer& content : contents_) targets.emplace_back(content.size());
    std::atomic<int> ended{0};
    for (size_t i = 0; i < kObjects; ++i) {
      Store& one = i % 2 == 0 ? *store : *sharing;
      one.submit(Operation::get, {get_into(key(i), targets[i])},
                 [&](const std::vector<ItemResult>&) { ++ended; });
    }
    sleep(milliseconds(10 * kSlowness));  // some are hedged by now
    store->close();
    targets[0].reset();
    EXPECT_EQ(load_all(*sharing), kAllOnes) << last_error_;
    sharing->close();
    EXPECT_EQ(ended, static_cast<int>(kObjects));
    ASSERT_TRUE(server_->set_latency(0, milliseconds(0)).ok());
  }
}

}  // namespace
}  // namespace aerokv::testing
