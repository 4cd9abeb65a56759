// SPDX-License-Identifier: Apache-2.0
// Records in the set that no correct writer leaves: every bin of the schema missing, of a wrong
// type, out of range, or in contradiction to another.
#include <limits>

#include "store/keys.h"
#include "store/meta_record.h"
#include "store/sums.h"
#include "tests/fault/raw_records.h"
#include "tests/fault/world.h"

namespace aerokv::testing {
namespace {

namespace bin = store::bin;
using wire::BinOp;
using wire::OpType;
using wire::Particle;

constexpr size_t kPayload = 3 * kSegment - 100;

struct Mutation {
  std::string name;
  std::string_view bin;
  std::optional<BinOp> op;  ///< in place of the right one; empty = left out
};

BinOp typed(Particle particle, std::string_view name, Bytes value) {
  return {OpType::write, particle, name, value, 0};
}

Bytes zeros(size_t count) {
  static const Buffer kZeros(120 << 10);
  return Bytes(kZeros).first(count);
}

/// Wrong in any bin: another type, no value at all.
void add_types(std::vector<Mutation>& all, std::string_view name) {
  static const Buffer kDouble = {std::byte{0x40}, std::byte{9}, std::byte{0}, std::byte{0},
                                 std::byte{0},    std::byte{0}, std::byte{0}, std::byte{0}};
  static const Buffer kList = {std::byte{0x91}, std::byte{1}};
  static const Buffer kMap = {std::byte{0x81}, std::byte{1}, std::byte{1}};
  const std::string prefix(name);
  all.push_back({prefix + " missing", name, std::nullopt});
  all.push_back({prefix + " text", name, BinOp::write_text(name, "1")});
  all.push_back({prefix + " empty text", name, BinOp::write_text(name, "")});
  all.push_back({prefix + " blob", name, BinOp::write_blob(name, zeros(8))});
  all.push_back({prefix + " empty blob", name, BinOp::write_blob(name, {})});
  all.push_back({prefix + " large blob", name, BinOp::write_blob(name, zeros(50000))});
  all.push_back({prefix + " double", name, typed(Particle::floating, name, kDouble)});
  all.push_back({prefix + " list", name, typed(Particle::list, name, kList)});
  all.push_back({prefix + " map", name, typed(Particle::map, name, kMap)});
  all.push_back({prefix + " bool", name, BinOp::write_boolean(name, true)});
}

void add_numbers(std::vector<Mutation>& all, std::string_view name) {
  constexpr auto kMin = std::numeric_limits<int64_t>::min();
  constexpr auto kMax = std::numeric_limits<int64_t>::max();
  for (const int64_t value :
       {kMin, kMin + 1, int64_t{-1}, int64_t{0}, int64_t{1}, int64_t{2}, int64_t{3}, int64_t{4},
        int64_t{65536}, int64_t{65537}, int64_t{kPayload - 1}, int64_t{kPayload + 1},
        int64_t{1} << 23, (int64_t{1} << 23) + 1, int64_t{1} << 31, int64_t{1} << 32,
        int64_t{1} << 40, int64_t{1} << 62, kMax}) {
    all.push_back(
        {std::string(name) + " " + std::to_string(value), name, BinOp::write_integer(name, value)});
  }
}

std::vector<Mutation> meta_mutations() {
  std::vector<Mutation> all;
  for (const std::string_view name :
       {bin::kVersion, bin::kState, bin::kSegmentCount, bin::kSegmentBytes, bin::kTotalBytes,
        bin::kCreatedAt, bin::kPin, bin::kMetadata, bin::kCrc32, bin::kSums, bin::kPayload}) {
    add_types(all, name);
    add_numbers(all, name);
  }
  for (const char* state : {"READY", "ready ", "read", "pending", "\xff\xfe"}) {
    all.push_back(
        {std::string("state ") + state, bin::kState, BinOp::write_text(bin::kState, state)});
  }
  for (const size_t bytes : {1U, 7U, 8U, 16U, 23U, 24U, 25U, 32U, 65536U}) {
    all.push_back({"sums of " + std::to_string(bytes), bin::kSums,
                   BinOp::write_blob(bin::kSums, zeros(bytes))});
  }
  return all;
}

class HostileRecords : public ::testing::Test {
 protected:
  HostileRecords() {
    StoreOptions options = impatient_options(*server_);
    options.verify = Verify::full;
    store_ = open_store(options);
    raw_ = std::make_unique<RawRecords>(options);
  }

  [[nodiscard]] std::vector<BinOp> meta_ops(bool is_inline) const {
    const Buffer& payload = is_inline ? small_ : large_;
    std::vector<BinOp> ops = {
        BinOp::write_integer(bin::kVersion, 1),
        BinOp::write_text(bin::kState, "ready"),
        BinOp::write_integer(bin::kSegmentCount, is_inline ? 1 : 3),
        BinOp::write_integer(bin::kSegmentBytes, is_inline ? 3000 : kSegment),
        BinOp::write_integer(bin::kTotalBytes, static_cast<int64_t>(payload.size())),
        BinOp::write_integer(bin::kCreatedAt, 1700000000),
        BinOp::write_boolean(bin::kPin, false),
        BinOp::write_blob(bin::kMetadata, zeros(5)),
        BinOp::write_integer(bin::kCrc32, store::crc32(payload)),
        BinOp::write_blob(bin::kSums, is_inline ? small_sums_ : large_sums_)};
    if (is_inline) ops.push_back(BinOp::write_blob(bin::kPayload, payload));
    return ops;
  }

  void put_segments(const std::string& key) {
    for (uint32_t i = 0; i < 3; ++i) {
      const size_t offset = i * kSegment;
      const Bytes slice = Bytes(large_).subspan(offset, std::min(kSegment, kPayload - offset));
      const auto sum = static_cast<int64_t>(store::segment_sum(slice));
      raw_->put(store::segment_user_key(key, i),
                {BinOp::write_integer(bin::kSum, sum), BinOp::write_blob(bin::kPayload, slice)});
    }
  }

  /// Everything that a store can do with a key; only exact loads count as hits.
  void use(const std::string& key, const Buffer& expected) {
    for (const size_t size : {expected.size(), expected.size() + kSegment, size_t{10}}) {
      Guarded buffer(size);
      const auto loaded = run(*store_, Operation::get, {get_into(key, buffer)});
      EXPECT_TRUE(buffer.is_intact()) << key;
      EXPECT_NE(loaded[0].outcome, Outcome::error) << key << ": " << loaded[0].status.message();
      if (loaded[0].outcome == Outcome::hit) {
        EXPECT_EQ(loaded[0].bytes, expected.size()) << key;
        EXPECT_TRUE(buffer.holds(expected)) << key << ": wrong bytes";
        ++hits_;
      }
    }
    EXPECT_NE(bits_of(run(*store_, Operation::exists, {key_item(key)})), "E");
    // Looking for all segments that a record claims to have may take too long.
    const auto touched = run(*store_, Operation::touch, {key_item(key)});
    EXPECT_TRUE(touched[0].outcome != Outcome::error || touched[0].status.code() == Code::timeout)
        << key << ": " << touched[0].status.message();
    static_cast<void>(store_->inspect(key));
    EXPECT_EQ(bits_of(run(*store_, Operation::remove, {key_item(key)})), "1") << key;
    const Buffer healed = random_bytes(expected.size(), 99);
    EXPECT_EQ(bits_of(run(*store_, Operation::put, {put_item(key, healed)})), "1") << key;
    Guarded buffer(healed.size());
    EXPECT_EQ(bits_of(run(*store_, Operation::exists, {key_item(key)})), "1") << key;
    EXPECT_EQ(bits_of(run(*store_, Operation::get, {get_into(key, buffer)})), "1") << key;
    EXPECT_TRUE(buffer.holds(healed)) << key;
    EXPECT_EQ(bits_of(run(*store_, Operation::remove, {key_item(key)})), "1") << key;
  }

  static Buffer sums_of(const Buffer& payload, size_t segment) {
    std::vector<uint64_t> sums;
    for (size_t at = 0; at < payload.size(); at += segment) {
      sums.push_back(
          store::segment_sum(Bytes(payload).subspan(at, std::min(segment, payload.size() - at))));
    }
    return store::encode_sums(sums);
  }

  std::unique_ptr<devserver::DevServer> server_ = start_server(small_record_server());
  std::unique_ptr<Store> store_;
  std::unique_ptr<RawRecords> raw_;
  const Buffer small_ = random_bytes(3000, 1);
  const Buffer large_ = random_bytes(kPayload, 2);
  const Buffer small_sums_ = sums_of(small_, small_.size());
  const Buffer large_sums_ = sums_of(large_, kSegment);
  int hits_ = 0;
};

TEST_F(HostileRecords, MetaRecordsOfAnyKind) {
  for (const bool is_inline : {true, false}) {
    for (const Mutation& mutation : meta_mutations()) {
      const std::string key = (is_inline ? "inline " : "segments ") + mutation.name;
      std::vector<BinOp> ops = meta_ops(is_inline);
      std::erase_if(ops, [&](const BinOp& op) { return op.name == mutation.bin; });
      if (mutation.op) ops.push_back(*mutation.op);
      if (!is_inline) put_segments(key);
      raw_->put(store::meta_user_key(key), ops);
      use(key, is_inline ? small_ : large_);
      if (HasFatalFailure()) return;
    }
  }
  EXPECT_GT(hits_, 20) << "some of the mutations change nothing that counts";
}

TEST_F(HostileRecords, ListsAndInspectsThemAll) {
  size_t count = 0;
  for (const Mutation& mutation : meta_mutations()) {
    std::vector<BinOp> ops = meta_ops(true);
    std::erase_if(ops, [&](const BinOp& op) { return op.name == mutation.bin; });
    if (mutation.op) ops.push_back(*mutation.op);
    raw_->put(store::meta_user_key("listed " + std::to_string(count++)), ops);
  }
  uint32_t cursor = 0;
  size_t listed = 0;
  while (cursor < kPartitionCount) {
    const Result<std::vector<ObjectInfo>> page = store_->list(cursor, 1000);
    ASSERT_TRUE(page) << page.error().message();
    listed += page->size();
  }
  EXPECT_GT(listed, count / 2);
  EXPECT_LE(listed, count);
}

TEST_F(HostileRecords, SegmentsOfAnyKind) {
  const Bytes slice = Bytes(large_).subspan(kSegment, kSegment);
  const auto sum = static_cast<int64_t>(store::segment_sum(slice));
  const BinOp good_sum = BinOp::write_integer(bin::kSum, sum);
  const BinOp good_slice = BinOp::write_blob(bin::kPayload, slice);
  Buffer longer(slice.begin(), slice.end());
  longer.push_back(std::byte{1});
  Buffer flipped(slice.begin(), slice.end());
  flipped[1000] ^= std::byte{1};
  const std::pair<const char*, std::vector<BinOp>> segments[] = {
      {"good", {good_sum, good_slice}},
      {"no sum", {good_slice}},
      {"no payload", {good_sum}},
      {"wrong sum", {BinOp::write_integer(bin::kSum, sum ^ 1), good_slice}},
      {"sum is text", {BinOp::write_text(bin::kSum, "12345678"), good_slice}},
      {"sum is a blob", {BinOp::write_blob(bin::kSum, zeros(8)), good_slice}},
      {"shorter", {good_sum, BinOp::write_blob(bin::kPayload, slice.first(kSegment - 1))}},
      {"empty", {good_sum, BinOp::write_blob(bin::kPayload, {})}},
      {"longer", {good_sum, BinOp::write_blob(bin::kPayload, longer)}},
      {"much longer", {good_sum, BinOp::write_blob(bin::kPayload, zeros(100000))}},
      {"flipped", {good_sum, BinOp::write_blob(bin::kPayload, flipped)}},
      {"text", {good_sum, typed(Particle::string, bin::kPayload, slice)}},
      {"number", {good_sum, BinOp::write_integer(bin::kPayload, 1)}},
      {"more bins",
       {BinOp::write_integer("a", 1), good_sum, BinOp::write_text("z", "z"),
        BinOp::write_blob("zz", zeros(9000)), good_slice}},
      {"wrong crc32", {good_sum, BinOp::write_integer(bin::kCrc32, 1), good_slice}},
  };
  for (const auto& [name, ops] : segments) {
    const std::string key = std::string("segment ") + name;
    put_segments(key);
    raw_->put(store::segment_user_key(key, 1), ops);
    raw_->put(store::meta_user_key(key), meta_ops(false));
    const int before = hits_;
    use(key, large_);
    const bool is_good = key == "segment good" || key == "segment more bins";
    EXPECT_EQ(hits_ - before, is_good ? 2 : 0) << key;
  }
}

/// Counts in meta records cost nothing but requests: removing many objects that claim to have
/// many segments needs no memory for all of them.
TEST_F(HostileRecords, ClaimedSegmentsNeedNoMemory) {
  constexpr size_t kKeys = 30;
  std::vector<Item> items;
  for (size_t i = 0; i < kKeys; ++i) {
    const std::string key = "claims " + std::to_string(i);
    raw_->put(store::meta_user_key(key),
              {BinOp::write_integer(bin::kVersion, 1), BinOp::write_text(bin::kState, "ready"),
               BinOp::write_integer(bin::kSegmentCount, 65536),
               BinOp::write_integer(bin::kSegmentBytes, 65536),
               BinOp::write_integer(bin::kTotalBytes, int64_t{65536} * 65536)});
    items.push_back(key_item(key));
  }
  // Good neighbours are served all the same.
  const Buffer payload = random_bytes(2 * kSegment, 1);
  ASSERT_EQ(bits_of(run(*store_, Operation::put, {put_item("good", payload)})), "1");
  items.push_back(key_item("good"));
  const size_t before = peak_resident_bytes();
  EXPECT_EQ(bits_of(run(*store_, Operation::touch, items)).back(), '1');
  EXPECT_EQ(bits_of(run(*store_, Operation::remove, items)), std::string(kKeys + 1, '1'));
  // Sanitizers keep what was freed; what they add is not ours.
  EXPECT_TRUE(kSlowness > 1 || peak_resident_bytes() < before + (size_t{100} << 20));
  EXPECT_EQ(bits_of(run(*store_, Operation::exists, items)), std::string(kKeys + 1, '0'));
}

}  // namespace
}  // namespace aerokv::testing
