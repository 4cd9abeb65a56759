// SPDX-License-Identifier: Apache-2.0
// Stores with equal options share one engine; each ends alone.
#include <atomic>
#include <thread>

#include "tests/integration/cluster_fixture.h"

namespace aerokv::testing {
namespace {

uint64_t connections_now(const devserver::DevServer& server) {
  return server.stats(0)->connections_now;
}

class SharedEngineTest : public ::testing::Test {
 protected:
  std::unique_ptr<devserver::DevServer> server_ = start_server();
  StoreOptions options_ = options_for(*server_);
};

TEST_F(SharedEngineTest, EqualOptionsShareThreadsAndConnections) {
  const Buffer payload = random_bytes(1 << 20, 1);
  const std::unique_ptr<Store> first = open_store(options_);
  run(*first, Operation::put, {put_item("k", payload)});
  const uint64_t opened = server_->stats(0)->connections_opened;
  StoreOptions other = options_;
  other.set_name = "another_set";  // the store's business, not the engine's
  other.default_ttl_seconds = 60;
  const std::unique_ptr<Store> second = open_store(other);
  Buffer target(payload.size());
  EXPECT_EQ(bits_of(run(*second, Operation::get, {get_item("k", target)})), "0");
  EXPECT_EQ(bits_of(run(*second, Operation::put, {put_item("k", payload)})), "1");
  EXPECT_EQ(bits_of(run(*second, Operation::get, {get_item("k", target)})), "1");
  // Only the questions about limits are asked over connections of their own, and closed after.
  EXPECT_LE(connections_now(*server_), opened + 8);
  EXPECT_EQ(first->stats().requests, second->stats().requests);
  EXPECT_EQ(first->stats().operations[static_cast<size_t>(Operation::get)].items, 0U);
}

TEST_F(SharedEngineTest, OtherOptionsOfTheEngineMakeAnotherOne) {
  const std::unique_ptr<Store> first = open_store(options_);
  options_.num_io_threads = 1;
  const std::unique_ptr<Store> second = open_store(options_);
  const Buffer payload = random_bytes(1000, 1);
  run(*first, Operation::put, {put_item("k", payload)});
  EXPECT_NE(first->stats().requests, second->stats().requests);
}

TEST_F(SharedEngineTest, ClosingOneEndsItsBatchesAloneAndAtOnce) {
  const std::unique_ptr<Store> staying = open_store(options_);
  for (int round = 0; round < 20; ++round) {
    const std::unique_ptr<Store> leaving = open_store(options_);
    const Buffer payload = random_bytes(6 << 20, static_cast<uint64_t>(round));
    std::vector<Buffer> targets(8, Buffer(payload.size()));
    std::atomic<int> left_ended{0}, stayed_ended{0}, stayed_stored{0};
    for (size_t i = 0; i < targets.size(); ++i) {
      const std::string key = std::to_string(i);
      leaving->submit(Operation::put, {put_item("a" + key, payload)},
                      [&](const std::vector<ItemResult>&) { ++left_ended; });
      leaving->submit(Operation::get, {get_item("a" + key, targets[i])},
                      [&](const std::vector<ItemResult>&) { ++left_ended; });
      staying->submit(Operation::put, {put_item("b" + key, payload)},
                      [&](const std::vector<ItemResult>& results) {
                        if (results[0].outcome == Outcome::hit) ++stayed_stored;
                        ++stayed_ended;
                      });
    }
    for (int spin = 0; spin < round * 500; ++spin) std::this_thread::yield();
    leaving->close();
    EXPECT_EQ(left_ended, 16);
    for (Buffer& target : targets) Buffer().swap(target);  // nobody may write there any more
    EXPECT_EQ(run(*leaving, Operation::put, {put_item("x", payload)})[0].status.code(),
              Code::closed);
    const TimePoint limit = SteadyClock::now() + std::chrono::seconds(20);
    while (stayed_ended < 8 && SteadyClock::now() < limit) std::this_thread::yield();
    EXPECT_EQ(stayed_stored, 8);
  }
}

TEST_F(SharedEngineTest, TheLastOneEndsTheThreadsAndTheNextStartsAnew) {
  const Buffer payload = random_bytes(1000, 1);
  for (int round = 0; round < 3; ++round) {
    const std::unique_ptr<Store> first = open_store(options_);
    const std::unique_ptr<Store> second = open_store(options_);
    EXPECT_EQ(bits_of(run(*first, Operation::put, {put_item("k", payload)})), "1");
    first->close();
    first->close();
    EXPECT_EQ(bits_of(run(*second, Operation::put, {put_item("k", payload)})), "1");
    second->close();
    const TimePoint limit = SteadyClock::now() + std::chrono::seconds(10);
    while (connections_now(*server_) > 0 && SteadyClock::now() < limit) std::this_thread::yield();
    EXPECT_EQ(connections_now(*server_), 0U);
  }
}

TEST_F(SharedEngineTest, ManyThreadsOpenUseAndCloseTheSame) {
  std::vector<std::thread> threads;
  std::atomic<int> stored{0};
  for (int t = 0; t < 6; ++t) {
    threads.emplace_back([&, t] {
      const Buffer payload = random_bytes(50'000, static_cast<uint64_t>(t));
      for (int round = 0; round < 20; ++round) {
        const std::unique_ptr<Store> store = open_store(options_);
        std::string key = std::to_string(t);
        if (bits_of(run(*store, Operation::put, {put_item(std::move(key), payload)})) == "1") {
          ++stored;
        }
        if (round % 2 == 0) store->close();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(stored, 120);
}

TEST_F(SharedEngineTest, AFailedStartIsNotShared) {
  server_->stop();
  EXPECT_FALSE(Store::open(options_));
  EXPECT_FALSE(Store::open(options_));
}

}  // namespace
}  // namespace aerokv::testing
