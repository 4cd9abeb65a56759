// SPDX-License-Identifier: Apache-2.0
#include "wire/message.h"

#include <gtest/gtest.h>

#include <array>
#include <string>
#include <vector>

namespace aerokv::wire {
namespace {

using FrameBytes = std::array<std::byte, kFrameHeaderBytes>;

FrameBytes frame(uint8_t version, uint8_t type, uint64_t size) {
  FrameBytes bytes;
  store_be<uint64_t>(bytes.data(), uint64_t{version} << 56 | uint64_t{type} << 48 | size);
  return bytes;
}

TEST(FrameHeader, EncodedBytes) {
  FrameBytes bytes;
  encode_frame_header({MessageType::info, 0x20}, bytes.data());
  EXPECT_EQ(as_text(bytes), std::string_view("\2\1\0\0\0\0\0\x20", 8));
}

TEST(FrameHeader, SizeLimits) {
  const std::pair<MessageType, uint64_t> limits[] = {{MessageType::info, kInfoBytesMax},
                                                     {MessageType::security, kSecurityBytesMax},
                                                     {MessageType::record, kMessageBytesMax},
                                                     {MessageType::compressed, kMessageBytesMax}};
  for (const auto& [type, limit] : limits) {
    const auto number = static_cast<uint8_t>(type);
    for (const uint64_t size : {uint64_t{0}, uint64_t{1}, limit}) {
      const auto header = decode_frame_header(frame(2, number, size));
      ASSERT_TRUE(header) << header.error().message();
      EXPECT_EQ(header->type, type);
      EXPECT_EQ(header->body_bytes, size);
    }
    for (const uint64_t size : {limit + 1, uint64_t{0xFFFFFFFFFFFF}}) {
      const auto header = decode_frame_header(frame(2, number, size));
      ASSERT_FALSE(header) << int{number} << " " << size;
      EXPECT_EQ(header.error().code(), Code::protocol);
    }
  }
}

TEST(FrameHeader, EveryVersionAndType) {
  for (unsigned version = 0; version < 256; ++version) {
    for (unsigned type = 0; type < 256; ++type) {
      const bool legal = version == 2 && type >= 1 && type <= 4;
      const auto header =
          decode_frame_header(frame(static_cast<uint8_t>(version), static_cast<uint8_t>(type), 22));
      EXPECT_EQ(header.has_value(), legal) << version << " " << type;
    }
  }
}

TEST(FrameHeader, TlsHelloIsRefused) {
  const std::string hello("\x16\x03\x01\x02\x00\x01\x00\x01", 8);
  EXPECT_FALSE(decode_frame_header(as_bytes(hello)));
}

TEST(MessageHeader, RoundTripAndBytes) {
  MessageHeader header;
  header.info1 = 1;
  header.info2 = 2;
  header.info3 = 3;
  header.info4 = 4;
  header.result_code = 5;
  header.generation = 0x01020304;
  header.record_ttl = 0x05060708;
  header.transaction_ttl = 0x090A0B0C;
  header.field_count = 0x0D0E;
  header.op_count = 0x0F10;
  std::array<std::byte, kMessageHeaderBytes> bytes;
  encode_message_header(header, bytes.data());
  EXPECT_EQ(as_text(bytes),
            std::string_view("\x16\1\2\3\4\5\1\2\3\4\5\6\7\x8\x9\xA\xB\xC\xD\xE\xF\x10", 22));
  bytes[0] = std::byte{99};  // the size byte is not looked at
  const MessageHeader back = decode_message_header(bytes);
  EXPECT_EQ(back.info1, 1);
  EXPECT_EQ(back.info2, 2);
  EXPECT_EQ(back.info3, 3);
  EXPECT_EQ(back.info4, 4);
  EXPECT_EQ(back.result_code, 5);
  EXPECT_EQ(back.generation, header.generation);
  EXPECT_EQ(back.record_ttl, header.record_ttl);
  EXPECT_EQ(back.transaction_ttl, header.transaction_ttl);
  EXPECT_EQ(back.field_count, header.field_count);
  EXPECT_EQ(back.op_count, header.op_count);
}

std::vector<std::byte> written(void (*fill)(UnitWriter&)) {
  std::vector<std::byte> out;
  UnitWriter writer(out);
  fill(writer);
  return out;
}

TEST(UnitReader, FieldsAndOps) {
  const auto bytes = written([](UnitWriter& w) {
    w.field(FieldType::ns, as_bytes("lmcache"));
    w.field(FieldType::set, {});
    w.op(OpType::write, Particle::blob, "b", as_bytes("xyz"));
    w.op(OpType::read, Particle::null, "", {});
    w.op_integer(OpType::write, "n", -1);
  });
  UnitReader reader(bytes);
  const auto ns = reader.field();
  ASSERT_TRUE(ns);
  EXPECT_EQ(ns->type, 0);
  EXPECT_EQ(as_text(ns->value), "lmcache");
  const auto set = reader.field();
  ASSERT_TRUE(set);
  EXPECT_TRUE(set->value.empty());
  const auto blob = reader.op();
  ASSERT_TRUE(blob);
  EXPECT_EQ(blob->name, "b");
  EXPECT_EQ(blob->particle, 4);
  EXPECT_EQ(as_text(blob->value), "xyz");
  const auto all = reader.op();
  ASSERT_TRUE(all);
  EXPECT_TRUE(all->name.empty());
  EXPECT_TRUE(all->value.empty());
  const auto number = reader.op();
  ASSERT_TRUE(number);
  EXPECT_EQ(as_text(number->value), "\xff\xff\xff\xff\xff\xff\xff\xff");
  EXPECT_TRUE(reader.rest().empty());
  EXPECT_FALSE(reader.field());
}

// Every proper prefix of a unit is an error, never a read beyond its end.
TEST(UnitReader, EveryTruncation) {
  const auto field = written([](UnitWriter& w) { w.field(FieldType::ns, as_bytes("abc")); });
  const auto op = written(
      [](UnitWriter& w) { w.op(OpType::write, Particle::string, "name", as_bytes("value")); });
  const auto header = written([](UnitWriter& w) { w.header({}); });
  for (size_t n = 0; n < field.size(); ++n) {
    const std::vector<std::byte> cut(field.begin(), field.begin() + static_cast<ptrdiff_t>(n));
    EXPECT_EQ(UnitReader(cut).field().error().code(), Code::protocol) << n;
  }
  for (size_t n = 0; n < op.size(); ++n) {
    const std::vector<std::byte> cut(op.begin(), op.begin() + static_cast<ptrdiff_t>(n));
    EXPECT_EQ(UnitReader(cut).op().error().code(), Code::protocol) << n;
  }
  for (size_t n = 0; n < header.size(); ++n) {
    const std::vector<std::byte> cut(header.begin(), header.begin() + static_cast<ptrdiff_t>(n));
    EXPECT_EQ(UnitReader(cut).header().error().code(), Code::protocol) << n;
  }
}

TEST(UnitReader, HostileSizes) {
  for (const uint32_t size : {0U, 0x7FFFFFFFU, 0x80000000U, 0xFFFFFFFFU}) {
    auto field = written([](UnitWriter& w) { w.field(FieldType::ns, as_bytes("abc")); });
    store_be<uint32_t>(field.data(), size);
    EXPECT_EQ(UnitReader(field).field().error().code(), Code::protocol) << size;
  }
  for (const uint32_t size : {0U, 3U, 7U, 0x80000000U, 0xFFFFFFFFU}) {
    auto op = written([](UnitWriter& w) { w.op(OpType::read, Particle::null, "name", {}); });
    store_be<uint32_t>(op.data(), size);
    EXPECT_EQ(UnitReader(op).op().error().code(), Code::protocol) << size;
  }
  // A name longer than the op.
  auto op = written([](UnitWriter& w) { w.op(OpType::read, Particle::null, "name", {}); });
  op[7] = std::byte{5};
  EXPECT_EQ(UnitReader(op).op().error().code(), Code::protocol);
}

TEST(UnitWriter, FrameCountsExternalBytes) {
  std::vector<std::byte> out = {std::byte{1}};  // something is in the buffer already
  UnitWriter writer(out);
  const size_t at = writer.begin_frame();
  writer.u32(7);
  writer.end_frame(at, MessageType::record, 1000);
  EXPECT_EQ(at, 1U);
  const auto header = decode_frame_header(Bytes(out).subspan(at));
  ASSERT_TRUE(header);
  EXPECT_EQ(header->body_bytes, 1004U);
}

TEST(UnitWriter, OpHeaderLeavesTheValueToTheCaller) {
  std::vector<std::byte> out;
  UnitWriter(out).op_header(OpType::write, Particle::blob, "b", 5);
  const Bytes value = as_bytes("hello");
  out.insert(out.end(), value.begin(), value.end());
  const auto op = UnitReader(out).op();
  ASSERT_TRUE(op);
  EXPECT_EQ(as_text(op->value), "hello");
}

TEST(Bytes, ByteOrder) {
  std::array<std::byte, 8> bytes;
  store_be<uint64_t>(bytes.data(), 0x0102030405060708ULL);
  EXPECT_EQ(bytes[0], std::byte{1});
  EXPECT_EQ(load_be<uint64_t>(bytes.data()), 0x0102030405060708ULL);
  EXPECT_EQ(load_le<uint16_t>(bytes.data()), 0x0201);
  store_le<uint32_t>(bytes.data(), 0x01020304U);
  EXPECT_EQ(bytes[0], std::byte{4});
  EXPECT_EQ(load_le<uint32_t>(bytes.data()), 0x01020304U);
  EXPECT_EQ(load_be<uint32_t>(bytes.data()), 0x04030201U);
  EXPECT_EQ(byte_swap<uint16_t>(0x0102), 0x0201);
  EXPECT_EQ(byte_swap<uint8_t>(7), 7);
}

}  // namespace
}  // namespace aerokv::wire
