// SPDX-License-Identifier: Apache-2.0
#include "wire/message.h"

#include <string>

namespace aerokv::wire {
namespace {

uint8_t byte_at(Bytes bytes, size_t index) {
  return std::to_integer<uint8_t>(bytes[index]);
}

Status short_of(const char* what, uint64_t needed, size_t remaining) {
  return {Code::protocol, std::string("decode message: ") + what + ": " + std::to_string(needed) +
                              " bytes needed, " + std::to_string(remaining) + " remaining"};
}

uint64_t body_bytes_max(MessageType type) {
  switch (type) {
    case MessageType::info:
      return kInfoBytesMax;
    case MessageType::security:
      return kSecurityBytesMax;
    default:
      return kMessageBytesMax;
  }
}

}  // namespace

void encode_frame_header(const FrameHeader& header, std::byte* at) {
  const uint64_t word = uint64_t{kProtocolVersion} << 56 |
                        uint64_t{static_cast<uint8_t>(header.type)} << 48 | header.body_bytes;
  store_be<uint64_t>(at, word);
}

Result<FrameHeader> decode_frame_header(Bytes bytes) {
  const auto word = load_be<uint64_t>(bytes.data());
  const auto version = static_cast<uint8_t>(word >> 56);
  const auto type = static_cast<uint8_t>(word >> 48);
  const uint64_t size = word & 0xFFFFFFFFFFFFULL;
  if (version != kProtocolVersion) {
    return Status(Code::protocol, "decode frame: version " + std::to_string(version) +
                                      ", expected " + std::to_string(kProtocolVersion));
  }
  if (type < 1 || type > 4) {
    return Status(Code::protocol,
                  "decode frame: type " + std::to_string(type) + ", expected 1 to 4");
  }
  const FrameHeader header{static_cast<MessageType>(type), size};
  if (size > body_bytes_max(header.type)) {
    return Status(Code::protocol, "decode frame: type " + std::to_string(type) + ": size " +
                                      std::to_string(size) + ", limit " +
                                      std::to_string(body_bytes_max(header.type)));
  }
  return header;
}

void encode_message_header(const MessageHeader& header, std::byte* at) {
  at[0] = std::byte{kMessageHeaderBytes};
  at[1] = std::byte{header.info1};
  at[2] = std::byte{header.info2};
  at[3] = std::byte{header.info3};
  at[4] = std::byte{header.info4};
  at[5] = std::byte{header.result_code};
  store_be<uint32_t>(at + 6, header.generation);
  store_be<uint32_t>(at + 10, header.record_ttl);
  store_be<uint32_t>(at + 14, header.transaction_ttl);
  store_be<uint16_t>(at + 18, header.field_count);
  store_be<uint16_t>(at + 20, header.op_count);
}

MessageHeader decode_message_header(Bytes bytes) {
  MessageHeader header;
  header.info1 = byte_at(bytes, 1);
  header.info2 = byte_at(bytes, 2);
  header.info3 = byte_at(bytes, 3);
  header.info4 = byte_at(bytes, 4);
  header.result_code = byte_at(bytes, 5);
  header.generation = load_be<uint32_t>(bytes.data() + 6);
  header.record_ttl = load_be<uint32_t>(bytes.data() + 10);
  header.transaction_ttl = load_be<uint32_t>(bytes.data() + 14);
  header.field_count = load_be<uint16_t>(bytes.data() + 18);
  header.op_count = load_be<uint16_t>(bytes.data() + 20);
  return header;
}

Result<MessageHeader> UnitReader::header() {
  if (rest_.size() < kMessageHeaderBytes) {
    return short_of("header", kMessageHeaderBytes, rest_.size());
  }
  const MessageHeader header = decode_message_header(rest_);
  rest_ = rest_.subspan(kMessageHeaderBytes);
  return header;
}

Result<Field> UnitReader::field() {
  if (rest_.size() < 5) return short_of("field header", 5, rest_.size());
  const auto size = load_be<uint32_t>(rest_.data());
  if (size < 1) return Status(Code::protocol, "decode message: field size 0, expected at least 1");
  if (size > rest_.size() - 4) return short_of("field", size, rest_.size() - 4);
  Field field{byte_at(rest_, 4), rest_.subspan(5, size - 1)};
  rest_ = rest_.subspan(4 + size_t{size});
  return field;
}

Result<Op> UnitReader::op() {
  if (rest_.size() < 8) return short_of("op header", 8, rest_.size());
  const auto size = load_be<uint32_t>(rest_.data());
  const size_t name_bytes = byte_at(rest_, 7);
  if (size > rest_.size() - 4) return short_of("op", size, rest_.size() - 4);
  if (size < 4 + name_bytes) {
    return Status(Code::protocol, "decode message: op size " + std::to_string(size) +
                                      " is below 4 + name length " + std::to_string(name_bytes));
  }
  Op op{byte_at(rest_, 4), byte_at(rest_, 5), as_text(rest_.subspan(8, name_bytes)),
        rest_.subspan(8 + name_bytes, size - 4 - name_bytes)};
  rest_ = rest_.subspan(4 + size_t{size});
  return op;
}

std::byte* UnitWriter::grow(size_t count) {
  out_.resize(out_.size() + count);
  return out_.data() + out_.size() - count;
}

void UnitWriter::header(const MessageHeader& header) {
  encode_message_header(header, grow(kMessageHeaderBytes));
}

void UnitWriter::field_header(FieldType type, size_t value_bytes) {
  std::byte* at = grow(5);
  store_be<uint32_t>(at, static_cast<uint32_t>(value_bytes + 1));
  at[4] = std::byte{static_cast<uint8_t>(type)};
}

void UnitWriter::field(FieldType type, Bytes value) {
  field_header(type, value.size());
  bytes(value);
}

void UnitWriter::op_header(OpType type, Particle particle, std::string_view name,
                           size_t value_bytes) {
  std::byte* at = grow(8);
  store_be<uint32_t>(at, static_cast<uint32_t>(4 + name.size() + value_bytes));
  at[4] = std::byte{static_cast<uint8_t>(type)};
  at[5] = std::byte{static_cast<uint8_t>(particle)};
  at[6] = std::byte{0};
  at[7] = std::byte{static_cast<uint8_t>(name.size())};
  bytes(as_bytes(name));
}

void UnitWriter::op(OpType type, Particle particle, std::string_view name, Bytes value) {
  op_header(type, particle, name, value.size());
  bytes(value);
}

void UnitWriter::op_integer(OpType type, std::string_view name, int64_t value) {
  op_header(type, Particle::integer, name, 8);
  u64(static_cast<uint64_t>(value));
}

void UnitWriter::u8(uint8_t value) {
  *grow(1) = std::byte{value};
}
void UnitWriter::u16(uint16_t value) {
  store_be(grow(2), value);
}
void UnitWriter::u32(uint32_t value) {
  store_be(grow(4), value);
}
void UnitWriter::u64(uint64_t value) {
  store_be(grow(8), value);
}

void UnitWriter::bytes(Bytes value) {
  if (!value.empty()) std::memcpy(grow(value.size()), value.data(), value.size());
}

size_t UnitWriter::begin_frame() {
  grow(kFrameHeaderBytes);
  return out_.size() - kFrameHeaderBytes;
}

void UnitWriter::end_frame(size_t at, MessageType type, uint64_t external_bytes) {
  const uint64_t body_bytes = out_.size() - at - kFrameHeaderBytes + external_bytes;
  encode_frame_header({type, body_bytes}, out_.data() + at);
}

}  // namespace aerokv::wire
