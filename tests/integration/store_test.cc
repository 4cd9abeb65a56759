// SPDX-License-Identifier: Apache-2.0
// The store against the development server: the whole path through sockets.
#include <numeric>

#include "tests/integration/cluster_fixture.h"

namespace aerokv::testing {
namespace {

constexpr size_t kCap = 983040;  // largest segment under a record limit of 1 MiB

class StoreTest : public ::testing::Test {
 protected:
  std::unique_ptr<devserver::DevServer> server_ = start_server();
  std::unique_ptr<Store> store_ = open_store(options_for(*server_));
};

TEST_F(StoreTest, RoundTripsEverySizeClass) {
  const size_t sizes[] = {0,    1,        255,      4096,         kCap - 1,
                          kCap, kCap + 1, 2 * kCap, 3 * kCap + 7, 16 << 20};
  std::vector<Buffer> payloads;
  std::vector<Item> puts;
  for (const size_t size : sizes) payloads.push_back(random_bytes(size, size));
  for (size_t i = 0; i < payloads.size(); ++i) {
    puts.push_back(put_item("size/" + std::to_string(i), payloads[i]));
  }
  EXPECT_EQ(bits_of(run(*store_, Operation::put, std::move(puts))),
            std::string(payloads.size(), '1'));
  std::vector<Buffer> targets;
  std::vector<Item> gets;
  for (const Buffer& payload : payloads) targets.emplace_back(payload.size(), std::byte{0xA5});
  for (size_t i = 0; i < targets.size(); ++i) {
    gets.push_back(get_item("size/" + std::to_string(i), targets[i]));
  }
  const std::vector<ItemResult> results = run(*store_, Operation::get, std::move(gets));
  for (size_t i = 0; i < results.size(); ++i) {
    EXPECT_EQ(results[i].outcome, Outcome::hit) << sizes[i] << " " << results[i].status.message();
    EXPECT_EQ(results[i].bytes, sizes[i]);
    EXPECT_EQ(targets[i], payloads[i]) << sizes[i];
  }
}

TEST_F(StoreTest, AbsentKeysAreMissesAmongNeighbours) {
  const Buffer payload = random_bytes(5000, 1);
  run(*store_, Operation::put, {put_item("a", payload), put_item("c", payload)});
  EXPECT_EQ(bits_of(run(*store_, Operation::exists, {key_item("a"), key_item("b"), key_item("c")})),
            "101");
  Buffer a(5000), b(5000, std::byte{0xA5}), c(5000);
  EXPECT_EQ(
      bits_of(run(*store_, Operation::get, {get_item("a", a), get_item("b", b), get_item("c", c)})),
      "101");
  EXPECT_EQ(a, payload);
  EXPECT_EQ(c, payload);
  EXPECT_EQ(bits_of(run(*store_, Operation::remove, {key_item("a"), key_item("b")})), "10");
  EXPECT_EQ(bits_of(run(*store_, Operation::exists, {key_item("a"), key_item("c")})), "01");
}

TEST_F(StoreTest, ShorterPayloadFillsTheFrontAndLongerIsAMiss) {
  const Buffer small = random_bytes(1000, 2);
  const Buffer large = random_bytes(3 * kCap, 3);
  run(*store_, Operation::put, {put_item("small", small), put_item("large", large)});
  Buffer target(4 * kCap, std::byte{0xA5});
  std::vector<ItemResult> results = run(*store_, Operation::get, {get_item("small", target)});
  EXPECT_EQ(bits_of(results), "1");
  EXPECT_EQ(results[0].bytes, small.size());
  EXPECT_TRUE(std::equal(small.begin(), small.end(), target.begin()));
  Buffer longer(4 * kCap, std::byte{0xA5});
  results = run(*store_, Operation::get, {get_item("large", longer)});
  EXPECT_EQ(bits_of(results), "1");
  EXPECT_TRUE(std::equal(large.begin(), large.end(), longer.begin()));
  Buffer canary(2 * kCap + 128, std::byte{0xA5});
  Item item;
  item.key = "large";
  item.target = MutableBytes(canary).first(2 * kCap);
  EXPECT_EQ(bits_of(run(*store_, Operation::get, {item})), "0");
  EXPECT_TRUE(std::all_of(canary.end() - 128, canary.end(),
                          [](std::byte b) { return b == std::byte{0xA5}; }));
}

TEST_F(StoreTest, OverwritingWithFewerSegmentsLeavesNoOrphans) {
  const Buffer five = random_bytes(5 * kCap, 4);
  const Buffer inline_payload = random_bytes(100, 5);
  const Buffer two = random_bytes(2 * kCap, 6);
  run(*store_, Operation::put, {put_item("k", five)});
  EXPECT_EQ(server_->stats(0)->records, 6U);
  run(*store_, Operation::put, {put_item("k", inline_payload)});
  EXPECT_EQ(server_->stats(0)->records, 1U);
  run(*store_, Operation::put, {put_item("k", five)});
  run(*store_, Operation::put, {put_item("k", two)});
  EXPECT_EQ(server_->stats(0)->records, 3U);
  Buffer target(two.size());
  EXPECT_EQ(bits_of(run(*store_, Operation::get, {get_item("k", target)})), "1");
  EXPECT_EQ(target, two);
  EXPECT_EQ(bits_of(run(*store_, Operation::remove, {key_item("k")})), "1");
  EXPECT_EQ(server_->stats(0)->records, 0U);
}

TEST_F(StoreTest, LooksUpTenThousandKeys) {
  std::vector<Item> puts;
  const Buffer payload = random_bytes(64, 7);
  for (int i = 0; i < 10000; i += 2) puts.push_back(put_item("many/" + std::to_string(i), payload));
  run(*store_, Operation::put, std::move(puts));
  std::vector<Item> keys;
  for (int i = 0; i < 10000; ++i) keys.push_back(key_item("many/" + std::to_string(i)));
  const std::vector<ItemResult> results = run(*store_, Operation::exists, std::move(keys));
  for (size_t i = 0; i < results.size(); ++i) {
    ASSERT_EQ(results[i].outcome, i % 2 == 0 ? Outcome::hit : Outcome::miss) << i;
  }
}

TEST_F(StoreTest, ListsAndInspects) {
  const Buffer big = random_bytes(3 * kCap, 8);
  const Buffer small = random_bytes(10, 9);
  run(*store_, Operation::put, {put_item("list/big", big), put_item("list/small", small)});
  uint32_t cursor = 0;
  std::vector<ObjectInfo> objects;
  while (cursor < 4096) {
    Result<std::vector<ObjectInfo>> page = store_->list(cursor, 1);
    ASSERT_TRUE(page) << page.error().message();
    objects.insert(objects.end(), page->begin(), page->end());
  }
  ASSERT_EQ(objects.size(), 2U);
  const Result<ObjectDetails> details = store_->inspect("list/big");
  ASSERT_TRUE(details) << details.error().message();
  EXPECT_EQ(details->info.bytes, big.size());
  EXPECT_EQ(details->records.size(), 1U + details->info.segment_count);
  EXPECT_TRUE(details->has_sums);
  EXPECT_EQ(store_->inspect("list/none").error().code(), Code::not_found);
}

TEST_F(StoreTest, FollowsALoweredRecordLimit) {
  const Buffer payload = random_bytes(900000, 10);
  EXPECT_EQ(bits_of(run(*store_, Operation::put, {put_item("limit", payload)})), "1");
  set_config(*server_, "max-record-size=524288");
  const std::vector<ItemResult> refused =
      run(*store_, Operation::put, {put_item("limit", payload)});
  ASSERT_EQ(bits_of(refused), "E");
  EXPECT_EQ(refused[0].status.code(), Code::too_big);
  // The new limit is found in the background; until then stores are refused the same way.
  std::string bits;
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  while (bits != "1" && std::chrono::steady_clock::now() < deadline) {
    bits = bits_of(run(*store_, Operation::put, {put_item("limit", payload)}));
  }
  EXPECT_EQ(bits, "1");
  EXPECT_EQ(store_->limits().record_bytes_max, 524288U);
  Buffer target(payload.size());
  EXPECT_EQ(bits_of(run(*store_, Operation::get, {get_item("limit", target)})), "1");
  EXPECT_EQ(target, payload);
}

TEST_F(StoreTest, LatencyOpensConnectionsUpToTheLimit) {
  StoreOptions options = options_for(*server_);
  options.max_connections_per_node = 16;
  options.read_timeout = std::chrono::seconds(30);
  const std::unique_ptr<Store> limited = open_store(options);
  const Buffer payload = random_bytes(60 * kCap, 11);
  ASSERT_EQ(bits_of(run(*limited, Operation::put, {put_item("far", payload)})), "1");
  devserver::Fault fault;
  fault.action = devserver::FaultAction::delay;
  fault.delay = std::chrono::milliseconds(10);
  server_->add_fault(fault);
  Buffer target(payload.size());
  ASSERT_EQ(bits_of(run(*limited, Operation::get, {get_item("far", target)})), "1");
  EXPECT_EQ(target, payload);
  ASSERT_EQ(limited->stats().nodes.size(), 1U);
  EXPECT_LE(limited->stats().nodes[0].connections, 16);
}

TEST_F(StoreTest, CloseEndsOpenBatches) {
  devserver::Fault fault;
  fault.action = devserver::FaultAction::drop;
  server_->add_fault(fault);
  Buffer target(10 * kCap);
  std::mutex mutex;
  std::condition_variable condition;
  std::vector<ItemResult> results;
  store_->submit(Operation::get, {get_item("x", target)}, [&](std::vector<ItemResult> given) {
    const std::scoped_lock lock(mutex);
    results = std::move(given);
  });
  store_->close();
  const std::scoped_lock lock(mutex);
  EXPECT_EQ(bits_of(results), "E");
}

}  // namespace
}  // namespace aerokv::testing
