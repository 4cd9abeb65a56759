// SPDX-License-Identifier: Apache-2.0
// The fused path against the development server, with a serde made for tests: budget, faults,
// records of others, and the end of a store at any moment.
#include "aerokv/serde_store.h"

#include <atomic>
#include <thread>

#include "connector/serde_store.h"
#include "tests/integration/cluster_fixture.h"

namespace aerokv::testing {
namespace {

constexpr size_t kSegment = 983040;

/// Halves bytes in pairs: [a, a] -> [a ^ 0x5A]; anything else cannot be encoded. The frame starts
/// with a magic byte. A source that starts with 0xEE throws, and so does a frame that starts with
/// T.
class Halving final : public Serializer, public Deserializer {
 public:
  Result<size_t> estimate_serialized_size(const Layout& layout) const override {
    const Result<uint64_t> bytes = layout_bytes(layout);
    if (!bytes) return bytes.error();
    return *bytes / 2 + 1 + 100;  // an upper bound
  }

  mutable std::atomic<int> encoding{0}, encoding_peak{0};

 private:
  Result<size_t> encode(const ObjectView& src, MutableBytes dst, const SerdeKey&,
                        Parallel& parallel) const override {
    encoding_peak = std::max<int>(encoding_peak, ++encoding);
    const size_t half = src.bytes.size() / 2;
    dst[0] = std::byte{'H'};
    std::atomic<bool> ok{true};
    parallel.run(2, [&](size_t part) {
      for (size_t i = half * part / 2; i < half * (part + 1) / 2; ++i) {
        if (src.bytes[2 * i] != src.bytes[2 * i + 1]) ok = false;
        dst[1 + i] = src.bytes[2 * i] ^ std::byte{0x5A};
      }
    });
    --encoding;
    if (half > 0 && src.bytes[0] == std::byte{0xEE}) throw std::runtime_error("told to throw");
    if (!ok) return Status(Code::invalid, "halving: not pairs");
    return half + 1;
  }

  Status decode(Bytes src, const MutableObjectView& dst, const SerdeKey&,
                Parallel&) const override {
    const size_t half = dst.bytes.size() / 2;
    if (src[0] == std::byte{'T'}) throw std::bad_alloc();
    if (src.size() < half + 1 || src[0] != std::byte{'H'}) {
      return {Code::corruption, "halving: not a frame"};
    }
    for (size_t i = 0; i < half; ++i) {
      dst.bytes[2 * i] = dst.bytes[2 * i + 1] = src[1 + i] ^ std::byte{0x5A};
    }
    return {};
  }
};

Buffer pairs(size_t bytes, uint64_t seed) {
  Buffer half = random_bytes(bytes / 2, seed);
  Buffer out;
  out.reserve(bytes);
  for (const std::byte byte : half) out.insert(out.end(), 2, byte);
  if (!out.empty()) out[0] = out[1] = std::byte{1};
  return out;
}

std::unique_ptr<Store> halving_store(const StoreOptions& options,
                                     const std::shared_ptr<Halving>& halving, size_t workers = 2) {
  Result<std::unique_ptr<serde::WorkerPool>> pool = serde::WorkerPool::start(workers);
  EXPECT_TRUE(pool);
  return std::make_unique<SerdeStore>(open_store(options), Serde{halving, halving, "halving"},
                                      DType::bfloat16, *std::move(pool));
}

class SerdeStoreTest : public ::testing::Test {
 protected:
  std::unique_ptr<devserver::DevServer> server_ = start_server();
  std::shared_ptr<Halving> halving_ = std::make_shared<Halving>();
  std::unique_ptr<Store> raw_ = open_store(options_for(*server_));
  std::unique_ptr<Store> store_ = halving_store(options_for(*server_), halving_);
};

TEST_F(SerdeStoreTest, RoundTripsEverySizeAndStoresHalf) {
  const std::vector<size_t> sizes = {
      0, 2, 64, 4096, 2 * kSegment, 2 << 20, 4 * kSegment, 6 << 20, 20'000'000, 2, 1 << 20};
  std::vector<Buffer> payloads;
  std::vector<Item> puts;
  for (size_t i = 0; i < sizes.size(); ++i) payloads.push_back(pairs(sizes[i], i));
  for (size_t i = 0; i < sizes.size(); ++i) {
    puts.push_back(put_item("size/" + std::to_string(i), payloads[i]));
  }
  const std::vector<ItemResult> stored = run(*store_, Operation::put, std::move(puts));
  EXPECT_EQ(bits_of(stored), std::string(sizes.size(), '1'));
  std::vector<Buffer> targets;
  std::vector<Item> gets;
  for (const size_t size : sizes) targets.emplace_back(size, std::byte{0xA5});
  for (size_t i = 0; i < sizes.size(); ++i) {
    gets.push_back(get_item("size/" + std::to_string(i), targets[i]));
  }
  const std::vector<ItemResult> loaded = run(*store_, Operation::get, std::move(gets));
  for (size_t i = 0; i < sizes.size(); ++i) {
    EXPECT_EQ(loaded[i].outcome, Outcome::hit) << sizes[i] << loaded[i].status.message();
    EXPECT_EQ(loaded[i].bytes, sizes[i]);
    EXPECT_EQ(stored[i].bytes, sizes[i]);
    EXPECT_EQ(targets[i], payloads[i]) << sizes[i];
    const Result<ObjectDetails> details = store_->inspect("size/" + std::to_string(i));
    ASSERT_TRUE(details) << details.error().message();
    EXPECT_EQ(details->info.serde, "halving");
    EXPECT_EQ(details->info.raw_bytes, sizes[i]);
    EXPECT_EQ(details->info.bytes, sizes[i] / 2 + 1);
  }
}

TEST_F(SerdeStoreTest, SegmentsOfAnUnknownSizeAreNotAskedForInVain) {
  const Buffer payload = pairs(8 << 20, 1);  // five segments once it is halved
  run(*store_, Operation::put, {put_item("k", payload)});
  const uint64_t before = server_->stats(0)->bytes_out;
  Buffer target(payload.size());
  EXPECT_EQ(bits_of(run(*store_, Operation::get, {get_item("k", target)})), "1");
  EXPECT_EQ(target, payload);
  EXPECT_LT(server_->stats(0)->bytes_out - before, payload.size() / 2 + 4096);
}

TEST_F(SerdeStoreTest, ATargetLargerThanTheObjectIsFilledAtItsFront) {
  const Buffer payload = pairs(3 << 20, 1);
  run(*store_, Operation::put, {put_item("k", payload)});
  Buffer target((4 << 20) + 64, std::byte{0xA5});
  Item item = key_item("k");
  item.target = MutableBytes(target).first(4 << 20);
  const std::vector<ItemResult> results = run(*store_, Operation::get, {item});
  ASSERT_EQ(bits_of(results), "1") << results[0].status.message();
  EXPECT_EQ(results[0].bytes, payload.size());
  EXPECT_TRUE(std::equal(payload.begin(), payload.end(), target.begin()));
  EXPECT_EQ(target.back(), std::byte{0xA5});
}

TEST_F(SerdeStoreTest, ATargetThatIsTooSmallIsAMissThatTellsTheSize) {
  const Buffer payload = pairs(3 << 20, 1);
  run(*store_, Operation::put, {put_item("k", payload)});
  for (const size_t size : {size_t{0}, size_t{2}, payload.size() - 2}) {
    Buffer target(size + 64, std::byte{0xA5});
    Item item = key_item("k");
    item.target = MutableBytes(target).first(size);
    const std::vector<ItemResult> results = run(*store_, Operation::get, {item});
    EXPECT_EQ(bits_of(results), "0");
    EXPECT_EQ(results[0].bytes, payload.size());
    EXPECT_TRUE(std::all_of(target.end() - 64, target.end(),
                            [](std::byte byte) { return byte == std::byte{0xA5}; }));
  }
  EXPECT_EQ(store_->stats().misses_by_reason[static_cast<size_t>(MissReason::too_large)], 3U);
}

TEST_F(SerdeStoreTest, RecordsOfOtherSerdesAreMissesWithAReason) {
  const Buffer payload = pairs(2 << 20, 1);
  run(*raw_, Operation::put, {put_item("raw", payload)});
  run(*store_, Operation::put, {put_item("encoded", payload)});
  Buffer target(payload.size());
  const auto count = [](Store& store) {
    return store.stats().misses_by_reason[static_cast<size_t>(MissReason::other_serde)];
  };
  EXPECT_EQ(bits_of(run(*store_, Operation::exists, {key_item("raw")})), "1");
  std::vector<ItemResult> results = run(*store_, Operation::get, {get_item("raw", target)});
  EXPECT_EQ(bits_of(results), "0");
  EXPECT_NE(results[0].status.message().find("halving"), std::string::npos)
      << results[0].status.message();
  EXPECT_EQ(count(*store_), 1U);
  // LMCache must not go on finding what it cannot load.
  EXPECT_EQ(bits_of(run(*store_, Operation::exists, {key_item("raw")})), "0");

  EXPECT_EQ(bits_of(run(*raw_, Operation::get, {get_item("encoded", target)})), "0");
  EXPECT_EQ(count(*raw_), 1U);
  EXPECT_EQ(bits_of(run(*raw_, Operation::exists, {key_item("encoded")})), "0");
  // Stored anew, it is there for both.
  run(*raw_, Operation::put, {put_item("encoded", payload)});
  EXPECT_EQ(bits_of(run(*raw_, Operation::get, {get_item("encoded", target)})), "1");
  EXPECT_EQ(target, payload);
}

TEST_F(SerdeStoreTest, OneItemThatCannotBeEncodedFailsAlone) {
  Buffer bad = pairs(2 << 20, 1);
  bad[5] = ~bad[4];
  const Buffer good = pairs(2 << 20, 2);
  const Buffer odd(3);
  const Buffer small = pairs(64, 3);
  const std::vector<ItemResult> results =
      run(*store_, Operation::put,
          {put_item("good", good), put_item("bad", bad), put_item("odd", odd),
           put_item("small", small), put_item("", small)});
  EXPECT_EQ(bits_of(results), "1EE1E");
  EXPECT_NE(results[1].status.message().find("not pairs"), std::string::npos);
  EXPECT_NE(results[2].status.message().find("3 bytes, expected a multiple of 2"),
            std::string::npos)
      << results[2].status.message();
  EXPECT_EQ(bits_of(run(*store_, Operation::exists,
                        {key_item("good"), key_item("bad"), key_item("odd"), key_item("small")})),
            "1001");
  const StoreStats::PerOperation puts =
      store_->stats().operations[static_cast<size_t>(Operation::put)];
  EXPECT_EQ(puts.items, 4U);  // a key that no record can have is not counted
  EXPECT_EQ(puts.hits, 2U);
  EXPECT_EQ(puts.errors, 2U);
}

TEST_F(SerdeStoreTest, WhatCannotBeDecodedIsAMissAndAbsentFromThenOn) {
  const Buffer frame = random_bytes(1 << 20, 9);  // its first byte is no magic
  Item forged = put_item("forged", frame);
  forged.serde = "halving";
  forged.raw_bytes = 2 * (frame.size() - 1);
  const Buffer good = pairs(64, 1);
  run(*raw_, Operation::put, {forged});
  run(*store_, Operation::put, {put_item("good", good)});
  Buffer target(forged.raw_bytes), other(good.size());
  const std::vector<ItemResult> results =
      run(*store_, Operation::get, {get_item("forged", target), get_item("good", other)});
  EXPECT_EQ(bits_of(results), "01");
  EXPECT_EQ(results[0].status.code(), Code::corruption);
  EXPECT_EQ(other, good);
  const StoreStats stats = store_->stats();
  EXPECT_EQ(stats.misses_by_reason[static_cast<size_t>(MissReason::undecodable)], 1U);
  EXPECT_EQ(stats.operations[static_cast<size_t>(Operation::get)].hits, 1U);
  EXPECT_EQ(stats.operations[static_cast<size_t>(Operation::get)].misses, 1U);
  EXPECT_EQ(bits_of(run(*store_, Operation::exists, {key_item("forged"), key_item("good")})), "01");
}

TEST_F(SerdeStoreTest, ATransformThatThrowsFailsItsObjectAlone) {
  Buffer bad = pairs(64, 1);
  bad[0] = bad[1] = std::byte{0xEE};
  const Buffer good = pairs(64, 2);
  const std::vector<ItemResult> stored =
      run(*store_, Operation::put, {put_item("bad", bad), put_item("good", good)});
  EXPECT_EQ(bits_of(stored), "E1");
  EXPECT_EQ(stored[0].status.code(), Code::internal);
  EXPECT_NE(stored[0].status.message().find("told to throw"), std::string::npos);
  const Buffer frame(33, std::byte{'T'});
  Item forged = put_item("forged", frame);
  forged.serde = "halving";
  forged.raw_bytes = 64;
  run(*raw_, Operation::put, {forged});
  Buffer target(64), other(64);
  EXPECT_EQ(
      bits_of(run(*store_, Operation::get, {get_item("forged", target), get_item("good", other)})),
      "01");
  EXPECT_EQ(other, good);
}

TEST_F(SerdeStoreTest, RawSizesOfStrangersAreChecked) {
  Item forged;
  const Buffer frame(101, std::byte{'H'});
  Buffer target(200);
  for (const uint64_t raw : {uint64_t{201}, uint64_t{203}, uint64_t{1} << 32, uint64_t{199}}) {
    forged = put_item("forged", frame);
    forged.serde = "halving";
    forged.raw_bytes = raw;
    run(*raw_, Operation::put, {forged});
    EXPECT_EQ(bits_of(run(*store_, Operation::get, {get_item("forged", target)})), "0") << raw;
  }
}

TEST_F(SerdeStoreTest, ABudgetOfOneObjectLetsAllThroughOneByOne) {
  StoreOptions options = options_for(*server_);
  options.max_bytes_in_flight = 1 << 20;
  options.read_timeout = options.write_timeout = std::chrono::seconds(30);
  const std::unique_ptr<Store> narrow = halving_store(options, halving_);
  std::vector<Buffer> payloads, targets;
  for (size_t i = 0; i < 24; ++i) payloads.push_back(pairs((1 + i % 5) << 20, i));
  std::vector<Item> puts, gets;
  for (size_t i = 0; i < payloads.size(); ++i) {
    puts.push_back(put_item("k" + std::to_string(i), payloads[i]));
    targets.emplace_back(payloads[i].size());
  }
  EXPECT_EQ(bits_of(run(*narrow, Operation::put, std::move(puts))), std::string(24, '1'));
  EXPECT_EQ(halving_->encoding_peak, 1);
  for (size_t i = 0; i < payloads.size(); ++i) {
    gets.push_back(get_item("k" + std::to_string(i), targets[i]));
  }
  EXPECT_EQ(bits_of(run(*narrow, Operation::get, std::move(gets))), std::string(24, '1'));
  EXPECT_EQ(targets, payloads);
}

TEST_F(SerdeStoreTest, ASilentClusterEndsABatchByItsDeadline) {
  StoreOptions options = options_for(*server_);
  options.max_bytes_in_flight = 1 << 20;  // so that most objects wait for their turn
  options.read_timeout = options.write_timeout = std::chrono::milliseconds(300);
  const std::unique_ptr<Store> store = halving_store(options, halving_);
  const Buffer payload = pairs(2 << 20, 1);
  std::vector<Item> puts;
  for (int i = 0; i < 16; ++i) puts.push_back(put_item("k" + std::to_string(i), payload));
  ASSERT_TRUE(server_->pause_node(0).ok());
  const TimePoint begin = SteadyClock::now();
  const TimePoint due = store->deadline(Operation::put, puts);
  EXPECT_EQ(bits_of(run(*store, Operation::put, std::move(puts))), std::string(16, 'E'));
  // A failed put may take half a second more to clean up; waves of 300 ms each would take five.
  EXPECT_LT(SteadyClock::now(), due + std::chrono::seconds(2)) << (due - begin).count();
  ASSERT_TRUE(server_->resume_node(0).ok());
}

TEST_F(SerdeStoreTest, CloseDuringFlightEndsEveryBatchOnce) {
  const Buffer payload = pairs(2 << 20, 1);
  for (int round = 0; round < 20; ++round) {
    StoreOptions options = options_for(*server_);
    options.max_bytes_in_flight = round % 2 == 0 ? 3 << 20 : 256 << 20;
    std::unique_ptr<Store> store = halving_store(options, halving_);
    std::vector<Buffer> targets(16, Buffer(payload.size()));
    std::atomic<int> ended{0};
    std::atomic<size_t> results{0};
    for (size_t i = 0; i < 8; ++i) {
      std::vector<Item> items;
      for (size_t k = 0; k < 4; ++k) {
        const std::string key = "k" + std::to_string(4 * i + k);
        items.push_back(i % 2 == 0 ? put_item(key, payload)
                                   : get_item(key, targets[4 * (i / 2) + k]));
      }
      store->submit(i % 2 == 0 ? Operation::put : Operation::get, std::move(items),
                    [&](const std::vector<ItemResult>& given) {
                      results += given.size();
                      ++ended;
                    });
    }
    for (int spin = 0; spin < round * 2000; ++spin) std::this_thread::yield();
    store->close();
    EXPECT_EQ(ended, 8);
    EXPECT_EQ(results, 32U);
    const std::vector<ItemResult> after = run(*store, Operation::put, {put_item("x", payload)});
    EXPECT_EQ(after[0].status.code(), Code::closed);
  }
}

TEST_F(SerdeStoreTest, AConnectorOverItClosesIt) {
  const Buffer payload = pairs(2 << 20, 1);
  for (int round = 0; round < 10; ++round) {
    std::shared_ptr<Store> store = halving_store(options_for(*server_), halving_);
    Result<std::unique_ptr<Connector>> connector = Connector::create(std::move(store));
    ASSERT_TRUE(connector);
    std::vector<Item> items;
    for (int k = 0; k < 6; ++k) items.push_back(put_item("k" + std::to_string(k), payload));
    ASSERT_TRUE((*connector)->submit(Operation::put, std::move(items)));
    if (round % 2 == 0) (*connector)->close();
    EXPECT_LE((*connector)->drain().size(), 1U);
  }
}

TEST(SerdeKey, IsReadFromLMCachesKeyText) {
  const SerdeKey plain = serde_key_of("meta-llama/Llama-3.1-8B@01000100@0@00ff10");
  EXPECT_EQ(plain.chunk_hash, std::string("\x00\xff\x10", 3));
  EXPECT_EQ(plain.cache_salt, "");
  const SerdeKey salted = serde_key_of("m@08050401@3@abcd@tenant@A");
  EXPECT_EQ(salted.chunk_hash, "\xab\xcd");
  EXPECT_EQ(salted.cache_salt, "tenant@A");
  EXPECT_EQ(serde_key_of("any text").chunk_hash, "any text");
  EXPECT_EQ(serde_key_of("a@b@c@not hex").chunk_hash, "a@b@c@not hex");
  EXPECT_EQ(serde_key_of("").chunk_hash, "");
}

}  // namespace
}  // namespace aerokv::testing
