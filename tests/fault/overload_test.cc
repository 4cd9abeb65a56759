// SPDX-License-Identifier: Apache-2.0
// More is stored than the server takes, or it takes nothing: loads go on, memory is bounded, every
// store is answered and counted once.
#include <atomic>
#include <thread>

#include "base/log.h"
#include "tests/fault/world.h"

namespace aerokv::testing {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;
using Clock = std::chrono::steady_clock;

/// What became of stores that were submitted without waiting for each other.
class Flood {
 public:
  explicit Flood(Store& store) : store_(store) {}
  ~Flood() { await(); }

  void put(const std::string& key, const Buffer& payload) {
    {
      const std::scoped_lock lock(mutex_);
      ++open_;
    }
    store_.submit(Operation::put, {put_item(key, payload)}, [this](const auto& results) {
      const std::scoped_lock lock(mutex_);
      if (results[0].outcome == Outcome::hit) {
        ++stored_;
      } else if (results[0].status.code() == Code::overloaded) {
        ++overloaded_;
      } else {
        ++failed_;
      }
      --open_;
      condition_.notify_all();
    });
  }
  void await() {
    std::unique_lock lock(mutex_);
    condition_.wait(lock, [this] { return open_ == 0; });
  }
  [[nodiscard]] uint64_t stored() const { return stored_; }
  [[nodiscard]] uint64_t overloaded() const { return overloaded_; }
  [[nodiscard]] uint64_t failed() const { return failed_; }

 private:
  Store& store_;
  std::mutex mutex_;
  std::condition_variable condition_;
  size_t open_ = 0;  // guarded by mutex_
  std::atomic<uint64_t> stored_{0}, overloaded_{0}, failed_{0};
};

uint64_t shed(const Store& store, ShedReason reason) {
  return store.stats().stores_shed_by_reason[static_cast<size_t>(reason)];
}

uint64_t shed(const Store& store) {
  uint64_t sum = 0;
  for (const uint64_t count : store.stats().stores_shed_by_reason) sum += count;
  return sum;
}

template <typename Condition>
bool await(Condition condition, milliseconds timeout) {
  const auto end = Clock::now() + timeout;
  while (!condition()) {
    if (Clock::now() > end) return false;
    std::this_thread::sleep_for(milliseconds(2));
  }
  return true;
}

/// Lines of the log that contain a text.
class LogLines {
 public:
  LogLines() {
    set_log_sink([this](LogLevel, std::string_view line) {
      const std::scoped_lock lock(mutex_);
      lines_.emplace_back(line);
    });
  }
  ~LogLines() { set_log_sink({}); }
  [[nodiscard]] size_t count(std::string_view text) {
    const std::scoped_lock lock(mutex_);
    return static_cast<size_t>(std::count_if(
        lines_.begin(), lines_.end(),
        [text](const std::string& line) { return line.find(text) != std::string::npos; }));
  }

 private:
  std::mutex mutex_;
  std::vector<std::string> lines_;  // guarded by mutex_
};

class Overload : public ::testing::Test {
 protected:
  static constexpr uint64_t kLink = 8'000'000;
  static constexpr size_t kObject = 200'000;

  std::unique_ptr<devserver::DevServer> server_ = start_server();
  StoreOptions options_ = options_for(*server_);
  const Buffer payload_ = random_bytes(kObject, 1);
};

TEST_F(Overload, LoadsGoOnWhileStoresAreShed) {
  options_.max_store_bytes_queued = 20 * kObject;
  const std::unique_ptr<Store> store = open_store(options_);
  ASSERT_EQ(bits_of(run(*store, Operation::put, {put_item("load", payload_)})), "1");
  ASSERT_TRUE(server_->set_link(0, kLink));
  LogLines log;
  constexpr size_t kLoads = 20;
  constexpr size_t kStoresForEach = 10;  // about five times what the link carries
  {
    Flood flood(*store);
    for (size_t i = 0; i < kLoads; ++i) {
      for (size_t j = 0; j < kStoresForEach; ++j) {
        flood.put("store" + std::to_string(i * kStoresForEach + j), payload_);
      }
      Buffer target(kObject);
      const auto begin = Clock::now();
      EXPECT_EQ(bits_of(run(*store, Operation::get, {get_item("load", target)})), "1");
      EXPECT_LE(Clock::now() - begin, options_.read_timeout);
      EXPECT_EQ(target, payload_);
    }
    flood.await();
    EXPECT_EQ(flood.stored() + flood.overloaded() + flood.failed(), kLoads * kStoresForEach);
    EXPECT_GT(flood.stored(), 0U);
    EXPECT_GT(flood.overloaded(), 0U);
    EXPECT_EQ(flood.failed(), 0U);
    EXPECT_EQ(flood.overloaded(), shed(*store));
  }
  const StoreStats stats = store->stats();
  EXPECT_GT(shed(*store, ShedReason::queue_full), 0U);
  EXPECT_LE(stats.store_bytes_queued_peak, options_.max_store_bytes_queued);
  EXPECT_GT(stats.store_bytes_queued_peak, options_.max_store_bytes_queued / 2);
  EXPECT_EQ(stats.store_bytes_queued, 0U);
  const auto& puts = stats.operations[static_cast<size_t>(Operation::put)];
  EXPECT_EQ(puts.items, 1 + kLoads * kStoresForEach);
  EXPECT_EQ(puts.hits + puts.errors, puts.items);
  EXPECT_EQ(puts.in_flight, 0U);
  EXPECT_EQ(log.count("store: shed: max_store_bytes_queued"), 1U);  // one line in ten seconds
}

TEST_F(Overload, ABatchIsShedKeyByKey) {
  options_.max_store_bytes_queued = 3 * kObject + kObject / 2;
  const std::unique_ptr<Store> store = open_store(options_);
  std::vector<Item> items;
  for (int i = 0; i < 6; ++i) items.push_back(put_item("k" + std::to_string(i), payload_));
  const std::vector<ItemResult> results = run(*store, Operation::put, std::move(items));
  EXPECT_EQ(bits_of(results), "111EEE");
  for (size_t i = 3; i < 6; ++i) {
    EXPECT_EQ(results[i].status.code(), Code::overloaded);
    EXPECT_FALSE(results[i].status.in_doubt());
  }
  EXPECT_EQ(shed(*store, ShedReason::queue_full), 3U);
}

class OverloadWait : public Overload, public ::testing::WithParamInterface<int> {};

/// Behind one large store it waits for the node, behind three it has not even been begun.
TEST_P(OverloadWait, TooLongIsNotSent) {
  options_.num_io_threads = 1;
  const std::unique_ptr<Store> store = open_store(options_);
  const Buffer old = random_bytes(kObject, 2);
  ASSERT_EQ(bits_of(run(*store, Operation::put, {put_item("late", old)})), "1");
  const Buffer large = random_bytes(48 << 20, 3);  // more than a node is given at once
  ASSERT_TRUE(server_->set_link(0, kLink));
  Flood flood(*store);
  // These are under way for long; what comes behind them waits for its turn.
  for (int i = 0; i < GetParam(); ++i) flood.put("large" + std::to_string(i), large);
  std::mutex mutex;
  std::condition_variable condition;
  std::optional<ItemResult> late;
  const auto begin = Clock::now();
  store->submit(
      Operation::put, {put_item("late", payload_)},
      [&](const std::vector<ItemResult>& results) {
        const std::scoped_lock lock(mutex);
        late = results[0];
        condition.notify_all();
      },
      begin + milliseconds(100));
  {
    std::unique_lock lock(mutex);
    condition.wait(lock, [&] { return late.has_value(); });
  }
  EXPECT_EQ(late->status.code(), Code::overloaded) << late->status.message();
  // The last fifth of a store's time is for tidying up.
  EXPECT_GE(Clock::now() - begin, milliseconds(80));
  EXPECT_LE(Clock::now() - begin, milliseconds(100) + kSlowness * milliseconds(400));
  EXPECT_EQ(shed(*store, ShedReason::deadline), 1U);
  ASSERT_TRUE(server_->set_link(0, 0));
  flood.await();
  Buffer target(kObject);
  ASSERT_EQ(bits_of(run(*store, Operation::get, {get_item("late", target)})), "1");
  EXPECT_EQ(target, old);  // nothing of the newer one was sent
}

INSTANTIATE_TEST_SUITE_P(All, OverloadWait, ::testing::Values(1, 3));

TEST_F(Overload, CloseEndsWhatWaits) {
  std::unique_ptr<Store> store = open_store(options_);
  ASSERT_TRUE(server_->set_link(0, 1'000'000));
  const Buffer large = random_bytes(16 << 20, 3);
  auto flood = std::make_unique<Flood>(*store);
  for (int i = 0; i < 50; ++i) flood->put("k" + std::to_string(i), large);
  const auto begin = Clock::now();
  store->close();
  flood->await();
  EXPECT_LE(Clock::now() - begin, kSlowness * seconds(1));
  EXPECT_EQ(flood->failed(), 50U);
  EXPECT_EQ(store->stats().store_bytes_queued, 0U);
  flood->put("later", payload_);
  EXPECT_EQ(flood->failed(), 51U);
}

TEST_F(Overload, StopWritesIsNoticedOnceAndProbed) {
  const std::unique_ptr<Store> store = open_store(options_);
  ASSERT_EQ(bits_of(run(*store, Operation::put, {put_item("there", payload_)})), "1");
  ASSERT_TRUE(server_->set_stop_writes(0, true));
  LogLines log;
  EXPECT_EQ(bits_of(run(*store, Operation::put, {put_item("a", payload_)})), "E");
  EXPECT_EQ(store->stats().stop_writes, 1U);
  const uint64_t puts_before =
      server_->stats(0)->requests[static_cast<size_t>(devserver::RequestKind::put)];
  for (int i = 0; i < 50; ++i) {
    const std::vector<ItemResult> results =
        run(*store, Operation::put, {put_item("b" + std::to_string(i), payload_)});
    EXPECT_EQ(results[0].status.code(), Code::overloaded);
  }
  // At once, without asking the server.
  EXPECT_EQ(server_->stats(0)->requests[static_cast<size_t>(devserver::RequestKind::put)],
            puts_before);
  EXPECT_EQ(shed(*store, ShedReason::stop_writes), 50U);
  Buffer target(kObject);
  EXPECT_EQ(bits_of(run(*store, Operation::get, {get_item("there", target)})), "1");
  EXPECT_EQ(bits_of(run(*store, Operation::remove, {key_item("there")})), "1");
  std::this_thread::sleep_for(milliseconds(1200));  // some probes
  EXPECT_EQ(bits_of(run(*store, Operation::put, {put_item("c", payload_)})), "E");
  EXPECT_EQ(log.count("takes no more writes"), 1U);
  EXPECT_EQ(log.count("takes stores again"), 0U);
  ASSERT_TRUE(server_->set_stop_writes(0, false));
  EXPECT_TRUE(await([&] { return store->stats().stop_writes == 0; }, kSlowness * seconds(4)));
  EXPECT_EQ(bits_of(run(*store, Operation::put, {put_item("d", payload_)})), "1");
  EXPECT_EQ(log.count("takes no more writes"), 1U);
  EXPECT_EQ(log.count("takes stores again"), 1U);
}

// A full device answers code 8 while the node's info says nothing: one store has to tell.
TEST_F(Overload, AFullNamespaceIsTriedWithOneStore) {
  const std::unique_ptr<Store> store = open_store(options_);
  devserver::Fault fault;
  fault.kinds = devserver::mask_of(devserver::RequestKind::put);
  fault.action = devserver::FaultAction::result_code;
  fault.code = wire::result::kOutOfSpace;
  const uint64_t id = server_->add_fault(fault);
  LogLines log;
  EXPECT_EQ(bits_of(run(*store, Operation::put, {put_item("a", payload_)})), "E");
  EXPECT_EQ(store->stats().stop_writes, 1U);
  std::atomic<bool> stopping{false};
  std::thread storing([&] {
    while (!stopping) {
      run(*store, Operation::put, {put_item("b", payload_)});
      std::this_thread::sleep_for(milliseconds(5));
    }
  });
  // The first one noticed it, and then one for each probe was let through.
  ASSERT_TRUE(server_->await_fault(id, 3, kSlowness * seconds(10)));
  EXPECT_GT(shed(*store, ShedReason::stop_writes), 20U);
  EXPECT_LE(server_->fault_counters()[0].applied, 6U);
  server_->clear_faults();
  EXPECT_TRUE(await([&] { return store->stats().stop_writes == 0; }, kSlowness * seconds(4)));
  stopping = true;
  storing.join();
  EXPECT_EQ(bits_of(run(*store, Operation::put, {put_item("c", payload_)})), "1");
  EXPECT_EQ(log.count("takes no more writes"), 1U);
  EXPECT_EQ(log.count("takes stores again"), 1U);
}

TEST_F(Overload, ANamespaceThatStopsAgainAndAgainIsProbedByOne) {
  const std::unique_ptr<Store> store = open_store(options_);
  for (int i = 0; i < 12; ++i) {
    devserver::Fault fault;
    fault.kinds = devserver::mask_of(devserver::RequestKind::put);
    fault.action = devserver::FaultAction::result_code;
    fault.code = wire::result::kOutOfSpace;
    fault.count = 1;
    server_->add_fault(fault);
    EXPECT_EQ(bits_of(run(*store, Operation::put, {put_item("a", payload_)})), "E");
    ASSERT_TRUE(await(
        [&] { return bits_of(run(*store, Operation::put, {put_item("a", payload_)})) == "1"; },
        kSlowness * seconds(4)));
  }
  ASSERT_TRUE(server_->set_stop_writes(0, true));
  EXPECT_EQ(bits_of(run(*store, Operation::put, {put_item("a", payload_)})), "E");
  const auto questions = [&] {
    return server_->stats(0)->requests[static_cast<size_t>(devserver::RequestKind::info)];
  };
  const uint64_t before = questions();
  const auto begin = Clock::now();
  std::this_thread::sleep_for(milliseconds(1600));
  // Two a second, and those of the tend; a dozen that probe would ask two dozen times.
  const auto seconds_passed = static_cast<uint64_t>((Clock::now() - begin) / seconds(1));
  EXPECT_LE(questions() - before, 8 * (1 + seconds_passed));
}

TEST_F(Overload, AnOverloadedNodeIsGivenLess) {
  const std::unique_ptr<Store> store = open_store(options_);
  ASSERT_EQ(bits_of(run(*store, Operation::put, {put_item("a", payload_)})), "1");
  const uint64_t before = store->stats().nodes.at(0).store_window_bytes;
  devserver::Fault fault;
  fault.kinds = devserver::mask_of(devserver::RequestKind::put);
  fault.action = devserver::FaultAction::result_code;
  fault.code = wire::result::kDeviceOverload;
  fault.count = 3;
  server_->add_fault(fault);
  EXPECT_EQ(bits_of(run(*store, Operation::put, {put_item("b", payload_)})), "1");
  EXPECT_LT(store->stats().nodes.at(0).store_window_bytes, before * 3 / 4);
}

}  // namespace
}  // namespace aerokv::testing
