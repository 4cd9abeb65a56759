// SPDX-License-Identifier: Apache-2.0
// Two processes write one key at the same time while a third one reads it.
#include <atomic>
#include <random>
#include <thread>

#include "tests/fault/raw_records.h"
#include "tests/fault/world.h"

namespace aerokv::testing {
namespace {

constexpr uint64_t kRounds = 1000;
constexpr size_t kLargest = 40 << 10;
constexpr size_t kLabelBytes = 24;  // writer, round, size

/// Content that says of itself what it is, so that a reader can tell a whole one.
Buffer labelled(uint64_t writer, uint64_t round, size_t size) {
  Buffer bytes = random_bytes(size, writer << 32 | round);
  const uint64_t label[3] = {writer, round, size};
  std::memcpy(bytes.data(), label, kLabelBytes);
  return bytes;
}

/// The writer and round whose content this is completely, or nothing.
std::optional<std::pair<uint64_t, uint64_t>> identify(Bytes bytes) {
  if (bytes.size() < kLabelBytes) return std::nullopt;
  uint64_t label[3];
  std::memcpy(label, bytes.data(), kLabelBytes);
  if (label[2] != bytes.size()) return std::nullopt;
  const Buffer expected = labelled(label[0], label[1], bytes.size());
  if (!std::equal(bytes.begin(), bytes.end(), expected.begin())) return std::nullopt;
  return std::pair(label[0], label[1]);
}

StoreOptions small_segments(const devserver::DevServer& server, uint64_t target) {
  StoreOptions options = impatient_options(server);
  options.request_timeout = std::chrono::milliseconds(2000);
  options.write_request_timeout = std::chrono::milliseconds(2000);
  options.read_timeout = options.write_timeout = std::chrono::seconds(20);
  options.target_segment_bytes = target;
  options.min_segment_bytes = 1024;
  return options;
}

class TwoWriters : public ::testing::Test {
 protected:
  std::unique_ptr<devserver::DevServer> server_ = start_server(small_record_server());
  std::unique_ptr<Store> first_ = open_store(small_segments(*server_, 8 << 10));
  std::unique_ptr<Store> second_ = open_store(small_segments(*server_, 12 << 10));
  std::unique_ptr<Store> reader_ = open_store(small_segments(*server_, 8 << 10));
  std::atomic<bool> stopping_{false};
};

TEST_F(TwoWriters, OfDifferentContentNeverMix) {
  const uint64_t seed = std::random_device{}();
  RecordProperty("seed", std::to_string(seed));
  std::printf("seed %llu\n", static_cast<unsigned long long>(seed));
  std::mt19937_64 generator(seed);
  uint64_t read_hits = 0;
  uint64_t reads = 0;
  std::thread reading([&] {
    while (!stopping_) {
      Guarded buffer(kLargest);
      const auto results = run(*reader_, Operation::get, {get_into("k", buffer)});
      ++reads;
      EXPECT_TRUE(buffer.is_intact());
      EXPECT_NE(results[0].outcome, Outcome::error) << results[0].status.message();
      if (results[0].outcome != Outcome::hit) continue;
      ++read_hits;
      EXPECT_TRUE(identify(buffer.target().first(results[0].bytes))) << "a mixture was loaded";
    }
  });
  uint64_t wins[2] = {0, 0};
  for (uint64_t round = 0; round < kRounds && !HasFailure(); ++round) {
    const auto size = [&] { return kLabelBytes + generator() % (kLargest - kLabelBytes); };
    const Buffer contents[2] = {labelled(0, round, size()),
                                labelled(1, round, generator() % 4 == 0 ? 600 : size())};
    std::vector<ItemResult> other;
    std::thread writing(
        [&] { other = run(*second_, Operation::put, {put_item("k", contents[1])}); });
    const auto results = run(*first_, Operation::put, {put_item("k", contents[0])});
    writing.join();
    ASSERT_EQ(bits_of(results) + bits_of(other), "11")
        << results[0].status.message() << other[0].status.message();
    Guarded buffer(kLargest);
    const auto loaded = run(*first_, Operation::get, {get_into("k", buffer)});
    ASSERT_NE(loaded[0].outcome, Outcome::error) << loaded[0].status.message();
    if (loaded[0].outcome != Outcome::hit) continue;
    const auto whose = identify(buffer.target().first(loaded[0].bytes));
    ASSERT_TRUE(whose) << "round " << round << ": a mixture was loaded";
    EXPECT_EQ(whose->second, round) << "an older content came back";
    ++wins[whose->first];
  }
  stopping_ = true;
  reading.join();
  std::printf("wins %llu and %llu of %llu rounds, %llu of %llu concurrent reads hit\n",
              static_cast<unsigned long long>(wins[0]), static_cast<unsigned long long>(wins[1]),
              static_cast<unsigned long long>(kRounds), static_cast<unsigned long long>(read_hits),
              static_cast<unsigned long long>(reads));
  EXPECT_GT(wins[0] + wins[1], kRounds / 20) << "next to nothing was loaded";
  const Buffer last = labelled(0, kRounds, kLargest);
  ASSERT_EQ(bits_of(run(*first_, Operation::put, {put_item("k", last)})), "1");
  Guarded buffer(kLargest);
  ASSERT_EQ(bits_of(run(*reader_, Operation::get, {get_into("k", buffer)})), "1");
  EXPECT_TRUE(buffer.holds(last));
}

TEST_F(TwoWriters, OfTheSameContentAreBothRight) {
  const Buffer content = labelled(7, 7, kLargest);
  ASSERT_EQ(bits_of(run(*first_, Operation::put, {put_item("k", content)})), "1");
  std::unique_ptr<Store> twin = open_store(small_segments(*server_, 8 << 10));
  std::thread writing([&] {
    while (!stopping_) {
      EXPECT_EQ(bits_of(run(*twin, Operation::put, {put_item("k", content)})), "1");
    }
  });
  for (int i = 0; i < 300; ++i) {
    EXPECT_EQ(bits_of(run(*first_, Operation::put, {put_item("k", content)})), "1");
    Guarded buffer(kLargest);
    const auto results = run(*reader_, Operation::get, {get_into("k", buffer)});
    ASSERT_EQ(bits_of(results), "1") << results[0].status.message();
    ASSERT_TRUE(buffer.holds(content));
  }
  stopping_ = true;
  writing.join();
}

/// An object of a writer that knows no sums, half overwritten by us: the front of the new content
/// must never be loaded with the rest of the old one.
TEST_F(TwoWriters, AFailedOverwriteOfAnObjectWithoutSumsIsNoMixture) {
  const Buffer old = random_bytes(kLargest, 1);
  const Buffer fresh = random_bytes(kLargest, 2);
  RawRecords(first_->options()).put_object_without_sums("k", old, 8 << 10);
  Guarded before(kLargest);
  ASSERT_EQ(bits_of(run(*reader_, Operation::get, {get_into("k", before)})), "1");
  ASSERT_TRUE(before.holds(old));
  devserver::Fault fault;
  fault.kinds = devserver::mask_of(devserver::RequestKind::put, devserver::RequestKind::remove);
  fault.action = devserver::FaultAction::result_code;
  fault.code = 22;
  fault.skip = 2;
  server_->add_fault(fault);
  EXPECT_EQ(bits_of(run(*first_, Operation::put, {put_item("k", fresh)})), "E");
  server_->clear_faults();
  Guarded after(kLargest);
  const auto results = run(*reader_, Operation::get, {get_into("k", after)});
  EXPECT_TRUE(results[0].outcome == Outcome::miss || after.holds(old)) << "a mixture was loaded";
}

}  // namespace
}  // namespace aerokv::testing
