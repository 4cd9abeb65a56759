// SPDX-License-Identifier: Apache-2.0
// Requests against bytes written down from the official client's traffic. tests/golden compares
// many more, whole.
#include "wire/request.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace aerokv::wire {
namespace {

std::vector<std::byte> from_hex(std::string_view text) {
  std::vector<std::byte> bytes;
  unsigned nibble = 0;
  bool has_nibble = false;
  for (const char c : text) {
    if (c == ' ') continue;
    const auto digit = static_cast<unsigned>(c <= '9' ? c - '0' : c - 'a' + 10);
    if (has_nibble) bytes.push_back(static_cast<std::byte>(nibble << 4 | digit));
    nibble = digit;
    has_nibble = !has_nibble;
  }
  return bytes;
}

// ns "lmcache", set "kv_chunks", digest of "test|m".
constexpr std::string_view kThreeFields =
    "00000008 00 6c6d6361636865 0000000a 01 6b765f6368756e6b73"
    "00000015 04 bc888b175ff6504102b76512b2c9262088cc9b0f";

RecordRef record() {
  return {"lmcache", "kv_chunks", compute_digest("kv_chunks", "test|m")};
}

std::vector<std::byte> encoded(const RecordRequest& request, Payload payload = Payload::inside) {
  std::vector<std::byte> out;
  const Status status = encode_record_request(request, payload, out);
  EXPECT_TRUE(status.ok()) << status.message();
  return out;
}

void expect_bytes(const std::vector<std::byte>& seen, const std::string& expected_hex) {
  EXPECT_EQ(as_text(seen), as_text(from_hex(expected_hex)));
}

TEST(Request, PutThreeBins) {
  const std::string blob = "\1\2\3";
  const BinOp ops[] = {BinOp::write_blob("d", as_bytes(blob)), BinOp::write_integer("n", 7),
                       BinOp::write_text("s", "hi")};
  expect_bytes(encoded(RecordRequest::put(record(), Exists::update, 0, ops, 1000)),
               "0203000000000071 160001000000 00000000 00000000 000003e8 0003 0003" +
                   std::string(kThreeFields) +
                   "00000008 02 04 00 01 64 010203 0000000d 02 01 00 01 6e 0000000000000007"
                   "00000007 02 03 00 01 73 6869");
}

TEST(Request, Get) {
  expect_bytes(encoded(RecordRequest::get(record(), {}, 1000)),
               "0203000000000049 160300000000 00000000 00000000 000003e8 0003 0000" +
                   std::string(kThreeFields));
  const BinOp bins[] = {BinOp::read("n")};
  expect_bytes(encoded(RecordRequest::get(record(), bins, 1000)),
               "0203000000000052 160100000000 00000000 00000000 000003e8 0003 0001" +
                   std::string(kThreeFields) + "00000005 01 00 00 01 6e");
}

TEST(Request, ExistsAndRemove) {
  expect_bytes(encoded(RecordRequest::exists(record(), 1000)),
               "0203000000000049 162100000000 00000000 00000000 000003e8 0003 0000" +
                   std::string(kThreeFields));
  expect_bytes(encoded(RecordRequest::remove(record(), 1000)),
               "0203000000000049 160003000000 00000000 00000000 000003e8 0003 0000" +
                   std::string(kThreeFields));
}

TEST(Request, CreateOrReplaceWithTtlAndKey) {
  const BinOp ops[] = {BinOp::write_blob("d", as_bytes("y"))};
  RecordRequest request = RecordRequest::put(record(), Exists::create_or_replace, 100, ops, 1000);
  request.user_key = UserKey{Particle::string, as_bytes("test|m")};
  expect_bytes(encoded(request),
               "020300000000005f 160001100000 00000000 00000064 000003e8 0004 0001" +
                   std::string(kThreeFields) +
                   "00000008 02 03 746573747c6d 00000006 02 04 00 01 64 79");
}

TEST(Request, ExistsPoliciesAndGenerations) {
  const BinOp ops[] = {BinOp::write_integer("n", 1)};
  const auto flags = [&](Exists exists) {
    const RecordRequest request = RecordRequest::put(record(), exists, 0, ops, 0);
    return std::pair<int, int>(request.info2, request.info3);
  };
  EXPECT_EQ(flags(Exists::update), std::pair(0x01, 0x00));
  EXPECT_EQ(flags(Exists::create_only), std::pair(0x21, 0x00));
  EXPECT_EQ(flags(Exists::create_or_replace), std::pair(0x01, 0x10));
  EXPECT_EQ(flags(Exists::replace_only), std::pair(0x01, 0x20));
  EXPECT_EQ(flags(Exists::update_only), std::pair(0x01, 0x08));
  RecordRequest request = RecordRequest::put(record(), Exists::update, 0, ops, 0);
  request.check_generation(GenerationCheck::equal, 99);
  EXPECT_EQ(request.info2, 0x05);
  EXPECT_EQ(request.generation, 99U);
  request = RecordRequest::put(record(), Exists::update, 0, ops, 0);
  request.check_generation(GenerationCheck::greater, 7);
  EXPECT_EQ(request.info2, 0x09);
  request = RecordRequest::put(record(), Exists::update, 0, ops, 0);
  request.check_generation(GenerationCheck::none, 7);
  EXPECT_EQ(request.info2, 0x01);
  EXPECT_EQ(request.generation, 0U);
}

TEST(Request, TouchAndOperate) {
  const BinOp touch = BinOp::touch();
  expect_bytes(encoded(RecordRequest::touch(record(), 50, touch, 1000)),
               "0203000000000051 160001000000 00000000 00000032 000003e8 0003 0001" +
                   std::string(kThreeFields) + "00000004 0b 00 00 00");
  const BinOp ops[] = {BinOp::write_integer("q", 1), BinOp::read("q")};
  expect_bytes(encoded(RecordRequest::operate(record(), 0, ops, 1000)),
               "0203000000000063 160101000000 00000000 00000000 000003e8 0003 0002" +
                   std::string(kThreeFields) +
                   "0000000d 02 01 00 01 71 0000000000000001 00000005 01 00 00 01 71");
}

TEST(Request, BooleanBin) {
  EXPECT_EQ(as_text(BinOp::write_boolean("p", true).value), "\1");
  EXPECT_EQ(as_text(BinOp::write_boolean("p", false).value), std::string_view("\0", 1));
  EXPECT_EQ(BinOp::write_boolean("p", true).particle, Particle::boolean);
}

// The frame counts the payload, and what is appended is the same up to it.
TEST(Request, ExternalPayload) {
  for (const size_t bytes : {size_t{0}, size_t{1}, size_t{100000}}) {
    const std::vector<std::byte> payload(bytes, std::byte{0x5A});
    const BinOp ops[] = {BinOp::write_integer("n", 1), BinOp::write_blob("b", payload)};
    const RecordRequest request = RecordRequest::put(record(), Exists::update, 0, ops, 1000);
    auto outside = encoded(request, Payload::external);
    const auto inside = encoded(request, Payload::inside);
    ASSERT_EQ(outside.size() + bytes, inside.size());
    outside.insert(outside.end(), payload.begin(), payload.end());
    EXPECT_EQ(outside, inside);
  }
}

TEST(Request, AppendsBehindWhatIsThere) {
  std::vector<std::byte> out = encoded(RecordRequest::exists(record(), 1000));
  const std::vector<std::byte> one = out;
  ASSERT_TRUE(encode_record_request(RecordRequest::exists(record(), 1000), Payload::inside, out));
  ASSERT_EQ(out.size(), 2 * one.size());
  EXPECT_TRUE(std::equal(one.begin(), one.end(), out.begin() + static_cast<ptrdiff_t>(one.size())));
}

Code code_of(const RecordRequest& request, Payload payload = Payload::inside) {
  std::vector<std::byte> out;
  return encode_record_request(request, payload, out).code();
}

TEST(Request, NameLimits) {
  const std::string ns31(31, 'n'), ns32(32, 'n'), set63(63, 's'), set64(64, 's');
  const std::string bin15(15, 'b'), bin16(16, 'b');
  const auto put = [](std::string_view ns, std::string_view set, std::string_view name) {
    const BinOp ops[] = {BinOp::write_integer(name, 1)};
    return code_of(RecordRequest::put({ns, set, {}}, Exists::update, 0, ops, 0));
  };
  EXPECT_EQ(put(ns31, set63, bin15), Code::ok);
  EXPECT_EQ(put(ns32, set63, bin15), Code::invalid);
  EXPECT_EQ(put("", set63, bin15), Code::invalid);
  EXPECT_EQ(put(ns31, set64, bin15), Code::invalid);
  EXPECT_EQ(put(ns31, "", bin15), Code::ok);
  EXPECT_EQ(put(ns31, set63, bin16), Code::invalid);
}

TEST(Request, OpAndMessageLimits) {
  std::vector<BinOp> ops(kOpCountMax, BinOp::write_integer("n", 1));
  EXPECT_EQ(code_of(RecordRequest::put(record(), Exists::update, 0, ops, 0)), Code::ok);
  ops.push_back(ops.front());
  EXPECT_EQ(code_of(RecordRequest::put(record(), Exists::update, 0, ops, 0)), Code::invalid);
  // Header 22, fields 51, op header 9: the value fills the message to its limit. Only counted,
  // never touched: the payload stays outside.
  const size_t room = kMessageBytesMax - 22 - 51 - 9;
  const std::vector<std::byte> value(room + 1);
  const BinOp fits[] = {BinOp::write_blob("b", Bytes(value).first(room))};
  const BinOp over[] = {BinOp::write_blob("b", value)};
  EXPECT_EQ(code_of(RecordRequest::put(record(), Exists::update, 0, fits, 0), Payload::external),
            Code::ok);
  EXPECT_EQ(code_of(RecordRequest::put(record(), Exists::update, 0, over, 0), Payload::external),
            Code::invalid);
}

TEST(Batch, ReadOfThreeKeys) {
  const char* digests[] = {"bc888b175ff6504102b76512b2c9262088cc9b0f",
                           "6e007db547713bd666d72be1c75eb68e6c0f5488",
                           "2d5e22e872988e48b5a8f654d3077340e58d67be"};
  std::vector<std::byte> out;
  BatchEncoder batch(0x0D, 1000, out);
  for (uint32_t i = 0; i < 3; ++i) {
    RecordRef ref = record();
    const auto digest = from_hex(digests[i]);
    std::copy(digest.begin(), digest.end(), ref.digest.begin());
    ASSERT_TRUE(batch.add(i, RecordRequest::get(ref, {}, 0)));
  }
  EXPECT_EQ(batch.row_count(), 3U);
  ASSERT_TRUE(batch.finish());
  expect_bytes(out,
               "0203000000000090 160800000000 00000000 00000000 000003e8 0001 0000"
               "00000076 29 00000003 0d"
               "00000000 bc888b175ff6504102b76512b2c9262088cc9b0f 0a"
               "03 00 00 00000000 0002 0000 00000008 00 6c6d6361636865"
               "0000000a 01 6b765f6368756e6b73"
               "00000001 6e007db547713bd666d72be1c75eb68e6c0f5488 01"
               "00000002 2d5e22e872988e48b5a8f654d3077340e58d67be 01");
}

TEST(Batch, RemoveAndWriteRows) {
  std::vector<std::byte> out;
  BatchEncoder removes(0x0D, 1000, out);
  ASSERT_TRUE(removes.add(0, RecordRequest::remove(record(), 0)));
  ASSERT_TRUE(removes.finish());
  expect_bytes(out,
               "0203000000000060 160800000000 00000000 00000000 000003e8 0001 0000"
               "00000046 29 00000001 0d 00000000 bc888b175ff6504102b76512b2c9262088cc9b0f 0e"
               "00 83 00 0000 00000000 0002 0000 00000008 00 6c6d6361636865"
               "0000000a 01 6b765f6368756e6b73");
  out.clear();
  BatchEncoder writes(0x0D, 1000, out);
  const BinOp ops[] = {BinOp::write_blob("d", as_bytes("AA"))};
  ASSERT_TRUE(writes.add(5, RecordRequest::put(record(), Exists::update, 9, ops, 0)));
  ASSERT_TRUE(writes.finish());
  expect_bytes(out,
               "020300000000006b 160800000000 00000000 00000000 000003e8 0001 0000"
               "00000051 29 00000001 0d 00000005 bc888b175ff6504102b76512b2c9262088cc9b0f 0e"
               "00 81 00 0000 00000009 0002 0001 00000008 00 6c6d6361636865"
               "0000000a 01 6b765f6368756e6b73 00000007 02 04 00 01 64 4141");
}

TEST(Batch, RepeatOnlyWhatIsEqual) {
  const BinOp one[] = {BinOp::read("b")};
  const BinOp other[] = {BinOp::read("b")};
  const auto bytes_of_second = [&](const RecordRequest& first, const RecordRequest& second) {
    std::vector<std::byte> out;
    BatchEncoder batch(0x0D, 1000, out);
    EXPECT_TRUE(batch.add(0, first));
    const size_t before = out.size();
    EXPECT_TRUE(batch.add(1, second));
    return out.size() - before;
  };
  constexpr size_t kRepeat = 25;
  const RecordRequest base = RecordRequest::get(record(), one, 0);
  EXPECT_EQ(bytes_of_second(base, base), kRepeat);
  EXPECT_GT(bytes_of_second(base, RecordRequest::get(record(), other, 0)), kRepeat);
  EXPECT_GT(bytes_of_second(base, RecordRequest::exists(record(), 0)), kRepeat);
  RecordRequest changed = base;
  changed.record.set = "golden";
  EXPECT_GT(bytes_of_second(base, changed), kRepeat);
  changed = base;
  changed.record.ns = "nsup0";
  EXPECT_GT(bytes_of_second(base, changed), kRepeat);
  changed = base;
  changed.ttl = 1;
  EXPECT_GT(bytes_of_second(base, changed), kRepeat);
  changed = base;
  changed.user_key = UserKey{Particle::string, as_bytes("k")};
  EXPECT_GT(bytes_of_second(base, changed), kRepeat);
  EXPECT_GT(bytes_of_second(changed, changed), kRepeat);
}

TEST(Batch, Errors) {
  std::vector<std::byte> out;
  BatchEncoder empty(0x0D, 1000, out);
  EXPECT_EQ(empty.finish().code(), Code::invalid);
  out.clear();
  BatchEncoder batch(0x0D, 1000, out);
  const std::string set64(64, 's');
  EXPECT_EQ(batch.add(0, RecordRequest::exists({"lmcache", set64, {}}, 0)).code(), Code::invalid);
}

TEST(Query, HeaderOnlyOfASet) {
  std::vector<uint16_t> partitions(kPartitionCount);
  for (size_t i = 0; i < partitions.size(); ++i) partitions[i] = static_cast<uint16_t>(i);
  QueryRequest query;
  query.ns = "lmcache";
  query.set = "kv_chunks";
  query.task_id = 0x8a9b3e0af8cef687ULL;
  query.partitions = partitions;
  std::vector<std::byte> out;
  ASSERT_TRUE(encode_query(query, out));
  ASSERT_EQ(out.size(), 8U + 0x204b);
  const auto start = from_hex(
      "020300000000204b 162100040000 00000000 ffffffff 00000000 0005 0000"
      "00000008 00 6c6d6361636865 0000000a 01 6b765f6368756e6b73"
      "00000005 09 00007530 00000009 07 8a9b3e0af8cef687 00002001 0b 0000 0100 0200 0300");
  EXPECT_EQ(as_text(Bytes(out).first(start.size())), as_text(start));
  EXPECT_EQ(as_text(Bytes(out).last(2)), "\xff\x0f");
}

TEST(Query, Errors) {
  std::vector<std::byte> out;
  QueryRequest query;
  query.ns = "lmcache";
  EXPECT_EQ(encode_query(query, out).code(), Code::invalid);
  const uint16_t partition = 0;
  query.partitions = {&partition, 1};
  EXPECT_TRUE(encode_query(query, out));
  query.ns = "";
  EXPECT_EQ(encode_query(query, out).code(), Code::invalid);
  query.ns = "lmcache";
  const std::string set64(64, 's');
  query.set = set64;
  EXPECT_EQ(encode_query(query, out).code(), Code::invalid);
}

TEST(InfoRequest, BytesAndErrors) {
  const std::string_view commands[] = {"node", "partition-generation", "build"};
  std::vector<std::byte> out;
  ASSERT_TRUE(encode_info(commands, out));
  EXPECT_EQ(as_text(out),
            std::string_view("\2\1\0\0\0\0\0\x20node\npartition-generation\nbuild\n", 40));
  const std::string_view injected[] = {"node\ntruncate:namespace=lmcache"};
  EXPECT_EQ(encode_info(injected, out).code(), Code::invalid);
  const std::string_view empty[] = {""};
  EXPECT_EQ(encode_info(empty, out).code(), Code::invalid);
}

}  // namespace
}  // namespace aerokv::wire
