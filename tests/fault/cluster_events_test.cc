// SPDX-License-Identifier: Apache-2.0
// What the events of a cluster may cost: with two copies of everything no load, and none of them
// much time; stores only as long as the map is wrong; with one copy the lost part, cleanly.
#include <algorithm>
#include <atomic>
#include <optional>
#include <thread>

#include "tests/fault/world.h"
#include "wire/digest.h"

namespace aerokv::testing {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;
using std::chrono::seconds;

// What an event may delay a load by. A machine that is busy with other things gets more.
constexpr milliseconds kDelayMax{250 * kSlowness};
constexpr milliseconds kDelayMaxBusy{4 * kDelayMax};
constexpr milliseconds kDetection{500 * kSlowness};
constexpr seconds kSettleTime(40);
constexpr size_t kObjects = 60;

devserver::Options cluster(int replication) {
  devserver::Options options = small_record_server(3);
  options.threads = 2;
  options.replication = replication;
  options.timing.detection = kDetection;
  options.timing.join = milliseconds(400 * kSlowness);
  options.timing.resume = milliseconds(400 * kSlowness);
  options.timing.migration = std::chrono::microseconds(50);
  return options;
}

/// What became of operations that ran all the time.
struct Tally {
  uint64_t count = 0, hits = 0, misses = 0, errors = 0;
  Clock::duration worst{};
  Clock::time_point last_error{};
  std::string error;
  std::map<Code, uint64_t> codes;
};

/// Loads or stores one object after the other, without end.
class Traffic {
 public:
  Traffic(Store& store, Operation operation, const std::vector<Buffer>& contents)
      : store_(store), operation_(operation), contents_(contents), thread_([this] { run_all(); }) {}
  ~Traffic() { stop(); }

  Tally stop() {
    stopping_ = true;
    if (thread_.joinable()) thread_.join();
    return tally_;
  }
  void await(uint64_t more) const {
    const uint64_t before = count_;
    while (count_ < before + more) std::this_thread::yield();
  }

  static std::string key(size_t i) { return "object/" + std::to_string(i); }

 private:
  void run_all() {
    for (size_t i = 0; !stopping_; i = (i + 1) % contents_.size()) {
      run_one(i);
      ++count_;
    }
  }

  void run_one(size_t i) {
    const Buffer& content = contents_[i];
    Guarded buffer(content.size());
    const bool loads = operation_ == Operation::get;
    const auto begun = Clock::now();
    const ItemResult result = run(
        store_, operation_,
        {loads ? get_into(key(i), buffer) : put_item("stored/" + std::to_string(i), content)})[0];
    const auto now = Clock::now();
    ++tally_.count;
    tally_.worst = std::max(tally_.worst, now - begun);
    if (result.outcome == Outcome::miss) ++tally_.misses;
    if (result.outcome == Outcome::hit) {
      ++tally_.hits;
      EXPECT_TRUE(!loads || buffer.holds(content)) << key(i);
    }
    EXPECT_TRUE(buffer.is_intact());
    if (result.outcome != Outcome::error) return;
    ++tally_.errors;
    ++tally_.codes[result.status.code()];
    tally_.last_error = now;
    tally_.error = result.status.message();
  }

  Store& store_;
  const Operation operation_;
  const std::vector<Buffer>& contents_;
  std::atomic<bool> stopping_{false};
  std::atomic<uint64_t> count_{0};
  Tally tally_;
  std::thread thread_;
};

class Events : public ::testing::Test {
 protected:
  explicit Events(int replication = 2) : server_(start_server(cluster(replication))) {
    LagMeter::instance();
    // One record, and several segments, of which some are always on the node that fails.
    for (size_t i = 0; i < kObjects; ++i) {
      contents_.push_back(random_bytes(i % 2 == 0 ? 900 : 3 * kSegment - i, i));
    }
  }

  /// A store that knows the cluster from one node only.
  std::unique_ptr<Store> open(int seed) {
    StoreOptions options = options_for(*server_);
    const devserver::Endpoint endpoint = server_->endpoints().at(static_cast<size_t>(seed));
    options.hosts = endpoint.host + ":" + std::to_string(endpoint.port);
    options.request_timeout = milliseconds(150 * kSlowness);
    options.read_timeout = milliseconds(1000 * kSlowness);
    options.write_timeout = milliseconds(2000 * kSlowness);  // longer than the map is wrong
    return open_store(options);
  }

  void fill(Store& store) {
    std::vector<Item> items;
    for (size_t i = 0; i < kObjects; ++i) items.push_back(put_item(Traffic::key(i), contents_[i]));
    ASSERT_EQ(bits_of(run(store, Operation::put, std::move(items))), std::string(kObjects, '1'));
  }

  /// Loads all the time while `event` happens, and until the cluster has settled again.
  template <typename Event>
  Tally loads_during(Store& store, Event event) {
    Traffic loads(store, Operation::get, contents_);
    loads.await(kObjects);
    event();
    EXPECT_TRUE(server_->await_settled(kSettleTime).ok());
    loads.await(kObjects);
    return loads.stop();
  }

  static void await_nodes(const Store& store, size_t count) {
    const auto deadline = Clock::now() + kSettleTime;
    while (store.stats().nodes.size() != count && Clock::now() < deadline) {
      std::this_thread::sleep_for(milliseconds(1));  // nothing announces it
    }
    EXPECT_EQ(store.stats().nodes.size(), count);
  }

  /// No load failed, none missed, none was late.
  static void expect_unharmed(const Tally& loads, Clock::time_point begun) {
    EXPECT_EQ(loads.errors, 0U) << loads.error;
    EXPECT_EQ(loads.misses, 0U);
    const bool calm = LagMeter::instance().was_calm_since(begun);
    EXPECT_LE(loads.worst, calm ? kDelayMax : kDelayMaxBusy) << (calm ? "calm" : "busy");
  }

  std::vector<Buffer> contents_;
  std::unique_ptr<devserver::DevServer> server_;
};

TEST_F(Events, ADeathFailsNoLoadAndDelaysNone) {
  const std::unique_ptr<Store> store = open(0);
  fill(*store);
  for (int node = 0; node < 3; ++node) {  // that of the seed, another, the principal
    const auto begun = Clock::now();
    expect_unharmed(loads_during(*store, [&] { ASSERT_TRUE(server_->stop_node(node).ok()); }),
                    begun);
    const auto again = Clock::now();
    expect_unharmed(loads_during(*store, [&] { ASSERT_TRUE(server_->start_node(node).ok()); }),
                    again);
  }
}

TEST_F(Events, AFreezeFailsNoLoadAndDelaysNone) {
  const std::unique_ptr<Store> store = open(0);
  fill(*store);
  for (int node = 0; node < 2; ++node) {  // that of the seed, another
    const auto begun = Clock::now();
    expect_unharmed(loads_during(*store,
                                 [&] {
                                   ASSERT_TRUE(server_->pause_node(node).ok());
                                   // Longer than it takes to notice.
                                   std::this_thread::sleep_for(2 * kDetection);
                                 }),
                    begun);
    // Nothing was stored meanwhile: what it has is old, but as good.
    const auto again = Clock::now();
    expect_unharmed(loads_during(*store, [&] { ASSERT_TRUE(server_->resume_node(node).ok()); }),
                    again);
  }
}

TEST_F(Events, AShortFreezeFailsNoLoadAndDelaysNone) {
  const std::unique_ptr<Store> store = open(2);
  fill(*store);
  const auto begun = Clock::now();
  expect_unharmed(loads_during(*store,
                               [&] {
                                 ASSERT_TRUE(server_->pause_node(2).ok());
                                 std::this_thread::sleep_for(kDetection / 2);
                                 ASSERT_TRUE(server_->resume_node(2).ok());
                               }),
                  begun);
}

TEST_F(Events, AQuickRestartFailsNoLoadAndDelaysNone) {
  const std::unique_ptr<Store> store = open(1);
  fill(*store);
  const auto begun = Clock::now();
  expect_unharmed(
      loads_during(*store, [&] { ASSERT_TRUE(server_->restart_node(1, milliseconds(50)).ok()); }),
      begun);
}

TEST_F(Events, StoresFailNoLongerThanTheMapIsWrong) {
  const std::unique_ptr<Store> store = open(0);
  // Stores that cannot wait for the map: those that begin while it is wrong may fail.
  StoreOptions options = store->options();
  options.write_timeout = milliseconds(200 * kSlowness);
  options.write_request_timeout = milliseconds(100 * kSlowness);
  const std::unique_ptr<Store> hasty = open_store(options);
  Traffic patient_stores(*store, Operation::put, contents_);
  Traffic hasty_stores(*hasty, Operation::put, contents_);
  patient_stores.await(kObjects);
  hasty_stores.await(kObjects);
  const auto died = Clock::now();
  ASSERT_TRUE(server_->stop_node(1).ok());
  ASSERT_TRUE(server_->await_settled(kSettleTime).ok());
  hasty_stores.await(2 * kObjects);
  const Tally hasty_tally = hasty_stores.stop();
  const Tally patient_tally = patient_stores.stop();
  EXPECT_EQ(patient_tally.errors, 0U) << patient_tally.error;
  EXPECT_GT(hasty_tally.hits, 2 * kObjects);
  if (hasty_tally.errors == 0) return;
  // The map is right after the detection and its change; a store that began before may end later.
  const milliseconds wrong = kDetection + milliseconds(60);
  const bool calm = LagMeter::instance().was_calm_since(died);
  const milliseconds slack = options.write_timeout + milliseconds(calm ? 300 : 1500) * kSlowness;
  EXPECT_LE(hasty_tally.last_error - died, wrong + slack) << hasty_tally.error;
}

/// A new node, and one that hands over what it has.
TEST_F(Events, ScaleOutAndScaleInCostNothing) {
  devserver::Options options = cluster(2);
  options.spare_nodes = 1;
  server_ = start_server(std::move(options));
  const std::unique_ptr<Store> store = open(0);
  fill(*store);
  Traffic stores(*store, Operation::put, contents_);
  const auto begun = Clock::now();
  expect_unharmed(loads_during(*store, [&] { ASSERT_TRUE(server_->start_node(3).ok()); }), begun);
  await_nodes(*store, 4);
  const auto again = Clock::now();
  expect_unharmed(
      loads_during(*store, [&] { ASSERT_TRUE(server_->remove_node(0, kSettleTime).ok()); }), again);
  const Tally tally = stores.stop();
  EXPECT_EQ(tally.errors, 0U) << tally.error;
  await_nodes(*store, 3);  // the seed is gone, the others are known
}

/// Objects that were overwritten behind the back of a frozen node are whole, old or new, or not
/// there at all, also while it still claims what was its own.
TEST_F(Events, WhatWasOverwrittenDuringAFreezeNeverComesBackMixed) {
  const std::unique_ptr<Store> store = open(0);
  fill(*store);
  std::vector<Buffer> newer;
  for (size_t i = 0; i < kObjects; ++i)
    newer.push_back(random_bytes(contents_[i].size(), 1000 + i));
  ASSERT_TRUE(server_->pause_node(1).ok());
  ASSERT_TRUE(server_->await_settled(kSettleTime).ok());
  const auto store_newer = [&] {
    std::vector<Item> items;
    for (size_t i = 0; i < kObjects; ++i) items.push_back(put_item(Traffic::key(i), newer[i]));
    return bits_of(run(*store, Operation::put, std::move(items)));
  };
  ASSERT_EQ(store_newer(), std::string(kObjects, '1'));
  // One that knows nothing yet, and meets the resumed node first.
  ASSERT_TRUE(server_->resume_node(1).ok());
  const std::unique_ptr<Store> fresh = open(1);
  size_t old_hits = 0, new_hits = 0, misses = 0;
  const auto load_all = [&](Store& from) {
    for (size_t i = 0; i < kObjects; ++i) {
      Guarded buffer(contents_[i].size());
      const auto result = run(from, Operation::get, {get_into(Traffic::key(i), buffer)})[0];
      EXPECT_TRUE(buffer.is_intact());
      if (result.outcome == Outcome::miss) ++misses;
      if (result.outcome != Outcome::hit) continue;
      const bool is_new = buffer.holds(newer[i]);
      EXPECT_TRUE(is_new || buffer.holds(contents_[i])) << "mixed: " << Traffic::key(i);
      ++(is_new ? new_hits : old_hits);
    }
  };
  do {
    load_all(*fresh);
    load_all(*store);
  } while (!server_->await_settled(milliseconds(1)).ok());
  // Else nothing was tested.
  EXPECT_GT(old_hits + misses, 0U);
  EXPECT_GT(new_hits, 0U);
  const auto deadline = Clock::now() + kSettleTime;
  while (store_newer() != std::string(kObjects, '1') && Clock::now() < deadline) {
  }
  old_hits = new_hits = misses = 0;
  load_all(*store);
  load_all(*fresh);
  EXPECT_EQ(new_hits, 2 * kObjects) << old_hits << " old, " << misses << " misses";
}

class OneCopy : public Events {
 protected:
  OneCopy() : Events(1) {}
};

TEST_F(OneCopy, WhatADeadNodeHadIsCleanlyMissed) {
  const std::unique_ptr<Store> store = open(1);
  fill(*store);
  ASSERT_TRUE(server_->stop_node(0).ok());
  const Tally during = [&] {
    Traffic loads(*store, Operation::get, contents_);
    loads.await(1);
    EXPECT_TRUE(server_->await_settled(kSettleTime).ok());
    return loads.stop();
  }();
  // Until the others have noticed nobody can tell: an error says so, and why.
  for (const auto& [code, count] : during.codes) {
    EXPECT_TRUE(code == Code::unavailable || code == Code::timeout) << during.error;
  }
  EXPECT_LE(during.worst, store->options().read_timeout + kDelayMaxBusy);
  // From then on what is lost is a miss, at once, and what is not is a hit.
  Traffic loads(*store, Operation::get, contents_);
  loads.await(3 * kObjects);
  const Tally after = loads.stop();
  EXPECT_EQ(after.errors, 0U) << after.error;
  EXPECT_GT(after.misses, after.count / 10);
  EXPECT_GT(after.hits, after.count / 10);
  fill(*store);
  Traffic again(*store, Operation::get, contents_);
  again.await(kObjects);
  EXPECT_EQ(again.stop().misses, 0U);
}

TEST_F(Events, ALonelySurvivorCanBeStartedFrom) {
  ASSERT_TRUE(server_->stop_node(0).ok());
  ASSERT_TRUE(server_->stop_node(1).ok());
  ASSERT_TRUE(server_->await_settled(kSettleTime).ok());
  const auto begun = Clock::now();
  const std::unique_ptr<Store> store = open_store(options_for(*server_));  // all three as seeds
  EXPECT_LT(Clock::now() - begun, seconds(3 * kSlowness));
  fill(*store);
}

TEST_F(Events, AStartWaitsForACluster) {
  for (int node = 0; node < 3; ++node) ASSERT_TRUE(server_->stop_node(node).ok());
  StoreOptions options = options_for(*server_);
  const auto begun = Clock::now();
  const Result<std::unique_ptr<Store>> hasty = Store::open(options);
  ASSERT_FALSE(hasty);
  EXPECT_LT(Clock::now() - begun, seconds(4 * kSlowness));
  EXPECT_EQ(hasty.error().code(), Code::unavailable);
  for (const devserver::Endpoint& endpoint : server_->endpoints()) {
    EXPECT_NE(hasty.error().message().find(std::to_string(endpoint.port)), std::string::npos);
  }
  std::thread starting([&] {
    std::this_thread::sleep_for(milliseconds(400));
    for (int node = 0; node < 3; ++node) EXPECT_TRUE(server_->start_node(node).ok());
  });
  options.start_timeout = kSettleTime;
  const std::unique_ptr<Store> store = open_store(options);
  starting.join();
  ASSERT_TRUE(server_->await_settled(kSettleTime).ok());
  fill(*store);
}

}  // namespace
}  // namespace aerokv::testing
