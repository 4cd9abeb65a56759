// SPDX-License-Identifier: Apache-2.0
#include "store/meta_record.h"

#include <gtest/gtest.h>

#include <deque>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "base/limits.h"
#include "store/sums.h"
#include "wire/message.h"

namespace aerokv::store {
namespace {

using wire::Particle;

// Bins with storage of their own, to build and damage records. Copies share the storage.
class Bins {
 public:
  Bins& set(std::string_view name, Particle particle, std::string_view value) {
    remove(name);
    const std::string& kept = values_->emplace_back(value);
    views_.push_back({name, static_cast<uint8_t>(particle), as_bytes(kept), kept.size()});
    return *this;
  }
  Bins& set_int(std::string_view name, int64_t value) {
    std::byte bytes[8];
    store_be<uint64_t>(bytes, static_cast<uint64_t>(value));
    return set(name, Particle::integer, as_text(bytes));
  }
  Bins& remove(std::string_view name) {
    std::erase_if(views_, [&](const BinView& view) { return view.name == name; });
    return *this;
  }
  BinView& at(std::string_view name) {
    for (BinView& view : views_) {
      if (view.name == name) return view;
    }
    ADD_FAILURE() << "no bin " << name;
    return views_.front();
  }
  void add(const BinView& view) { views_.push_back(view); }

  [[nodiscard]] Result<MetaRecord> decode(PayloadBin payload = PayloadBin::requested) const {
    return decode_meta_record(views_, payload);
  }

 private:
  std::shared_ptr<std::deque<std::string>> values_ = std::make_shared<std::deque<std::string>>();
  std::vector<BinView> views_;
};

// As the Python plug-in writes it: no sums, pin as bool.
Bins segmented() {
  Bins bins;
  bins.set_int("ver", 1).set("state", Particle::string, "ready").set_int("nseg", 3);
  bins.set_int("seg_b", 699051).set_int("tot_b", 2097152).set_int("created_at", 1700000000);
  bins.set("pin", Particle::boolean, std::string_view("\0", 1));
  return bins;
}

Bins inlined() {
  Bins bins = segmented();
  bins.set_int("nseg", 1).set_int("seg_b", 5).set_int("tot_b", 5);
  bins.set("b", Particle::blob, "hello");
  return bins;
}

void expect_corruption(const Bins& bins, std::string_view bin_name,
                       PayloadBin payload = PayloadBin::requested) {
  const auto record = bins.decode(payload);
  ASSERT_FALSE(record);
  EXPECT_EQ(record.error().code(), Code::corruption) << record.error().message();
  EXPECT_NE(record.error().message().find("bin " + std::string(bin_name)), std::string::npos)
      << record.error().message();
}

TEST(MetaRecord, ForeignSegmentedRecord) {
  const auto record = segmented().decode();
  ASSERT_TRUE(record) << record.error().message();
  EXPECT_EQ(record->plan, (SegmentPlan{3, 699051, 2097152}));
  EXPECT_EQ(record->created_at, 1700000000);
  EXPECT_FALSE(record->pin);
  EXPECT_FALSE(record->crc32);
  EXPECT_TRUE(record->sums.empty());
  EXPECT_TRUE(record->metadata.empty());
}

TEST(MetaRecord, ForeignOptionalBins) {
  Bins bins = inlined();
  bins.set_int("pin", 1).set_int("crc32", 0xFFFFFFFF).set("md", Particle::blob, "opaque");
  bins.set("ttl_class", Particle::string, "x").set("wid", Particle::list, "junk");
  bins.remove("created_at");
  const auto record = bins.decode();
  ASSERT_TRUE(record) << record.error().message();
  EXPECT_TRUE(record->pin);
  EXPECT_EQ(record->crc32, 0xFFFFFFFFU);
  EXPECT_EQ(as_text(record->metadata), "opaque");
  EXPECT_EQ(record->created_at, 0);
  bins.remove("pin");
  EXPECT_FALSE(bins.decode()->pin);
}

TEST(MetaRecord, OnlyReadyIsReady) {
  for (const std::string_view state : {"", "Ready", "ready ", "writing", "read"}) {
    const auto record = segmented().set("state", Particle::string, state).decode();
    ASSERT_FALSE(record);
    EXPECT_EQ(record.error().code(), Code::not_found) << state;
  }
  // A record under construction is a miss, whatever else it says.
  EXPECT_EQ(segmented().set("state", Particle::string, "x").remove("nseg").decode().error().code(),
            Code::not_found);
}

Bins encoded() {
  Bins bins = segmented();
  bins.set("state", Particle::string, "encoded").set_int("raw_b", 4194304);
  bins.set("serde", Particle::string, "fp8:float8_e4m3fn");
  return bins;
}

TEST(MetaRecord, EncodedRecordNamesItsSerde) {
  const auto record = encoded().decode();
  ASSERT_TRUE(record) << record.error().message();
  EXPECT_EQ(record->serde, "fp8:float8_e4m3fn");
  EXPECT_EQ(record->raw_bytes, 4194304U);
  EXPECT_EQ(record->plan, (SegmentPlan{3, 699051, 2097152}));
}

TEST(MetaRecord, BinsOfASerdeMeanNothingInAReadyRecord) {
  // An update by a writer without serdes replaces the payload and leaves them behind.
  const auto record = encoded().set("state", Particle::string, "ready").decode();
  ASSERT_TRUE(record) << record.error().message();
  EXPECT_EQ(record->serde, "");
  EXPECT_EQ(record->raw_bytes, 0U);
}

TEST(MetaRecord, EncodedRecordsAreChecked) {
  expect_corruption(encoded().remove("serde"), "serde");
  expect_corruption(encoded().remove("raw_b"), "raw_b");
  expect_corruption(encoded().set_int("serde", 1), "serde");
  expect_corruption(encoded().set("serde", Particle::string, ""), "serde");
  expect_corruption(encoded().set("serde", Particle::string, std::string(256, 'x')), "serde");
  EXPECT_TRUE(encoded().set("serde", Particle::string, std::string(255, 'x')).decode());
  expect_corruption(encoded().set("raw_b", Particle::string, "4"), "raw_b");
  expect_corruption(encoded().set_int("raw_b", -1), "raw_b");
  expect_corruption(encoded().set_int("raw_b", (int64_t{4} << 30) + 1), "raw_b");
}

TEST(MetaRecord, MissingBins) {
  for (const std::string_view name : {"ver", "state", "nseg", "seg_b", "tot_b"}) {
    SCOPED_TRACE(name);
    expect_corruption(segmented().remove(name), name);
  }
  expect_corruption(inlined().remove("b"), "b");
  EXPECT_FALSE(Bins().decode());
}

TEST(MetaRecord, BinsPresentTwice) {
  for (const std::string_view name : {"ver", "state", "nseg", "seg_b", "tot_b", "pin", "b"}) {
    SCOPED_TRACE(name);
    Bins bins = inlined();
    bins.add(bins.at(name));
    expect_corruption(bins, name);
  }
}

TEST(MetaRecord, WrongTypes) {
  const std::vector<Particle> all = {Particle::null,   Particle::integer, Particle::floating,
                                     Particle::string, Particle::blob,    Particle::boolean,
                                     Particle::map,    Particle::list,    Particle::geojson};
  const std::vector<std::pair<std::string_view, std::vector<Particle>>> legal = {
      {"ver", {Particle::integer}},   {"state", {Particle::string}},
      {"nseg", {Particle::integer}},  {"seg_b", {Particle::integer}},
      {"tot_b", {Particle::integer}}, {"created_at", {Particle::integer}},
      {"pin", {Particle::boolean}},   {"crc32", {Particle::integer}},
      {"sums", {Particle::blob}},     {"md", {Particle::blob}},
      {"b", {Particle::blob}}};
  for (const auto& [name, types] : legal) {
    for (const Particle type : all) {
      if (type == types.front()) continue;
      SCOPED_TRACE(std::string(name) + " as " + std::to_string(static_cast<int>(type)));
      Bins bins = inlined();
      bins.set_int("crc32", 1).set("sums", Particle::blob, "12345678");
      bins.set("md", Particle::blob, "m");
      ASSERT_TRUE(bins.decode());
      bins.at(name).particle = static_cast<uint8_t>(type);
      expect_corruption(bins, name);
    }
  }
}

TEST(MetaRecord, IntegersOfWrongLength) {
  for (const std::string_view name : {"ver", "nseg", "seg_b", "tot_b", "created_at", "crc32"}) {
    for (const std::string_view value : {"", "\1", "\0\0\0\1", "\0\0\0\0\0\0\0\0\1"}) {
      SCOPED_TRACE(name);
      expect_corruption(segmented().set(name, Particle::integer, value), name);
    }
    // The value was received elsewhere: its bytes must not be looked at.
    Bins bins = segmented().set_int("crc32", 1);
    bins.at(name).value = {};
    expect_corruption(bins, name);
  }
}

// More bytes exist than are at hand: what is at hand must not be taken for the whole.
TEST(MetaRecord, PartsOfSmallValues) {
  for (const std::string_view name : {"ver", "state", "nseg", "created_at", "pin", "md"}) {
    SCOPED_TRACE(name);
    Bins bins = segmented().set("md", Particle::blob, "opaque");
    ++bins.at(name).value_bytes;
    expect_corruption(bins, name);
  }
}

TEST(MetaRecord, HostileIntegers) {
  const std::vector<int64_t> hostile = {-1,          int64_t{1} << 31, (int64_t{1} << 32) + 1,
                                        1000000000,  INT64_MAX,        INT64_MIN,
                                        -2147483648, int64_t{1} << 62};
  for (const std::string_view name : {"ver", "nseg", "seg_b", "tot_b"}) {
    for (const int64_t value : hostile) {
      SCOPED_TRACE(std::string(name) + " = " + std::to_string(value));
      for (const Bins& base : {segmented(), inlined()}) {
        Bins bins = base;
        bins.set_int(name, value);
        const auto record = bins.decode();
        ASSERT_FALSE(record);
        EXPECT_EQ(record.error().code(), Code::corruption);
      }
    }
  }
  expect_corruption(segmented().set_int("ver", 0), "ver");
  expect_corruption(segmented().set_int("ver", 2), "ver");
  expect_corruption(segmented().set_int("nseg", 0), "nseg");
  expect_corruption(segmented().set_int("created_at", -1), "created_at");
  expect_corruption(segmented().set_int("pin", 2), "pin");
  expect_corruption(segmented().set_int("pin", -1), "pin");
  expect_corruption(segmented().set_int("crc32", -1), "crc32");
  expect_corruption(segmented().set_int("crc32", int64_t{1} << 32), "crc32");
}

TEST(MetaRecord, BooleanPin) {
  EXPECT_TRUE(segmented().set("pin", Particle::boolean, "\1").decode()->pin);
  expect_corruption(segmented().set("pin", Particle::boolean, "\2"), "pin");
  expect_corruption(segmented().set("pin", Particle::boolean, ""), "pin");
  expect_corruption(segmented().set("pin", Particle::boolean, "\1\1"), "pin");
}

TEST(MetaRecord, SizesMustAgree) {
  // (nseg - 1) * seg_b < tot_b <= nseg * seg_b, at both edges.
  EXPECT_TRUE(segmented().set_int("tot_b", 3 * 699051).decode());
  EXPECT_TRUE(segmented().set_int("tot_b", 2 * 699051 + 1).decode());
  expect_corruption(segmented().set_int("tot_b", 3 * 699051 + 1), "tot_b");
  expect_corruption(segmented().set_int("tot_b", 2 * 699051), "tot_b");
  expect_corruption(segmented().set_int("tot_b", 0), "tot_b");
  expect_corruption(segmented().set_int("seg_b", 0), "tot_b");
  expect_corruption(segmented().set_int("seg_b", 0).set_int("tot_b", 0), "tot_b");
  // At the limits of each number.
  Bins most = segmented().set_int("nseg", kSegmentsMax).set_int("seg_b", 65536);
  EXPECT_TRUE(most.set_int("tot_b", int64_t{1} << 32).decode());
  expect_corruption(most.set_int("nseg", kSegmentsMax + 1), "nseg");
  Bins wide = segmented().set_int("seg_b", kRecordBytesMax).set_int("tot_b", 20 << 20);
  EXPECT_TRUE(wide.decode());
  expect_corruption(wide.set_int("seg_b", kRecordBytesMax + 1), "seg_b");
  expect_corruption(segmented().set_int("tot_b", (int64_t{1} << 32) + 1), "tot_b");
}

TEST(MetaRecord, InlinePayload) {
  const auto record = inlined().decode();
  ASSERT_TRUE(record) << record.error().message();
  EXPECT_EQ(record->plan, (SegmentPlan{1, 5, 5}));
  expect_corruption(inlined().set("b", Particle::blob, "hell"), "b");
  expect_corruption(inlined().set("b", Particle::blob, "hello!"), "b");
  expect_corruption(inlined().set("b", Particle::blob, ""), "b");
  // Received elsewhere: only the size is known.
  Bins elsewhere = inlined();
  elsewhere.at("b").value = {};
  EXPECT_TRUE(elsewhere.decode());
  elsewhere.at("b").value_bytes = 6;
  expect_corruption(elsewhere, "b");
  // Not asked for: nothing to check.
  EXPECT_TRUE(inlined().remove("b").decode(PayloadBin::not_requested));
}

TEST(MetaRecord, EmptyPayload) {
  Bins bins = inlined().set_int("seg_b", 0).set_int("tot_b", 0).set("b", Particle::blob, "");
  const auto record = bins.decode();
  ASSERT_TRUE(record) << record.error().message();
  EXPECT_EQ(record->plan, (SegmentPlan{1, 0, 0}));
  expect_corruption(bins.set("b", Particle::blob, "x"), "b");
  expect_corruption(bins.remove("b"), "b");
}

TEST(MetaRecord, PayloadBesideSegmentsIsIgnored) {
  // An update by a writer that does not replace leaves the inline payload of before behind.
  EXPECT_TRUE(segmented().set("b", Particle::blob, "old").decode());
}

TEST(MetaRecord, Sums) {
  const auto blob = encode_sums(std::vector<uint64_t>{1, ~0ULL, 3});
  const auto record = segmented().set("sums", Particle::blob, as_text(blob)).decode();
  ASSERT_TRUE(record);
  EXPECT_EQ(record->sums, (std::vector<uint64_t>{1, ~0ULL, 3}));
  for (const size_t bytes : {0U, 1U, 8U, 16U, 23U}) {
    SCOPED_TRACE(bytes);
    expect_corruption(segmented().set("sums", Particle::blob, as_text(blob).substr(0, bytes)),
                      "sums");
  }
  expect_corruption(segmented().set("sums", Particle::blob, std::string(32, 'x')), "sums");
  Bins elsewhere = segmented().set("sums", Particle::blob, as_text(blob));
  elsewhere.at("sums").value = {};
  expect_corruption(elsewhere, "sums");
}

std::vector<std::byte> encoded_ops(const MetaRecord& record) {
  std::vector<std::byte> out;
  wire::UnitWriter writer(out);
  encode_meta_record(record, writer);
  return out;
}

// Reads the ops back as a server would see them; the payload follows the last op header.
Bins bins_of(Bytes ops, uint16_t count) {
  Bins bins;
  wire::UnitReader reader(ops);
  for (int i = 0; i < count; ++i) {
    const auto op = reader.op();
    EXPECT_TRUE(op) << "op " << i;
    if (!op) break;
    EXPECT_EQ(op->type, static_cast<uint8_t>(wire::OpType::write));
    bins.add({op->name, op->particle, op->value, op->value.size()});
  }
  EXPECT_TRUE(reader.rest().empty());
  return bins;
}

TEST(MetaRecord, EncodeDecodeSegmented) {
  MetaRecord record;
  record.plan = {3, 699051, 2097152};
  record.created_at = 1700000000;
  record.pin = true;
  record.crc32 = 0xCBF43926U;
  record.sums = {1, ~0ULL, 0x0102030405060708ULL};
  record.metadata = {std::byte{1}, std::byte{0}};
  record.serde = "chain(lossless,aesgcm:128)";
  record.raw_bytes = 4194304;
  EXPECT_EQ(meta_op_count(record), 12);
  const auto ops = encoded_ops(record);
  const auto back = bins_of(ops, meta_op_count(record)).decode();
  ASSERT_TRUE(back) << back.error().message();
  EXPECT_EQ(back->plan, record.plan);
  EXPECT_EQ(back->created_at, record.created_at);
  EXPECT_EQ(back->pin, true);
  EXPECT_EQ(back->crc32, record.crc32);
  EXPECT_EQ(back->sums, record.sums);
  EXPECT_EQ(back->metadata, record.metadata);
  EXPECT_EQ(back->serde, record.serde);
  EXPECT_EQ(back->raw_bytes, record.raw_bytes);
}

TEST(MetaRecord, EncodeInlinePutsPayloadLast) {
  MetaRecord record;
  record.plan = {1, 5, 5};
  record.sums = {segment_sum(as_bytes("hello"))};
  EXPECT_EQ(meta_op_count(record), 9);
  auto ops = encoded_ops(record);
  const Bytes payload = as_bytes("hello");
  ops.insert(ops.end(), payload.begin(), payload.end());
  const auto back = bins_of(ops, meta_op_count(record)).decode();
  ASSERT_TRUE(back) << back.error().message();
  EXPECT_EQ(back->plan, record.plan);
  EXPECT_EQ(back->sums, record.sums);
  EXPECT_FALSE(back->crc32);
}

TEST(MetaRecord, EncodedBytes) {
  MetaRecord record;
  record.plan = {1, 0, 0};
  record.created_at = 258;
  const auto ops = encoded_ops(record);
  using namespace std::string_literals;
  const std::string expected =
      "\0\0\0\x0f\2\1\0\3ver\0\0\0\0\0\0\0\1"
      "\0\0\0\x0e\2\3\0\5stateready"
      "\0\0\0\x10\2\1\0\4nseg\0\0\0\0\0\0\0\1"
      "\0\0\0\x11\2\1\0\5seg_b\0\0\0\0\0\0\0\0"
      "\0\0\0\x11\2\1\0\5tot_b\0\0\0\0\0\0\0\0"
      "\0\0\0\x16\2\1\0\ncreated_at\0\0\0\0\0\0\1\2"
      "\0\0\0\x08\2\x11\0\3pin\0"
      "\0\0\0\5\2\4\0\1b"s;
  EXPECT_EQ(as_text(ops), expected);
  EXPECT_EQ(meta_op_count(record), 8);
}

TEST(MetaRecord, BinNamesFitOldServers) {
  for (const std::string_view name :
       {bin::kVersion, bin::kState, bin::kSegmentCount, bin::kSegmentBytes, bin::kTotalBytes,
        bin::kCreatedAt, bin::kPin, bin::kMetadata, bin::kCrc32, bin::kSums, bin::kSum,
        bin::kPayload, bin::kSerde, bin::kRawBytes}) {
    EXPECT_LE(name.size(), 14U) << name;
  }
}

}  // namespace
}  // namespace aerokv::store
