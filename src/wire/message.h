// SPDX-License-Identifier: Apache-2.0
// Units of the Aerospike wire protocol shared by both sides: frame header, message header,
// fields and ops. Pure functions over spans: no sockets, no clock. docs/formats/wire.md has the
// byte tables.
#pragma once

#include <cstdint>
#include <vector>

#include "aerokv/bytes.h"
#include "aerokv/status.h"
#include "base/limits.h"

namespace aerokv::wire {

enum class MessageType : uint8_t { info = 1, security = 2, record = 3, compressed = 4 };

inline constexpr uint8_t kProtocolVersion = 2;
inline constexpr size_t kFrameHeaderBytes = 8;
inline constexpr size_t kMessageHeaderBytes = 22;
inline constexpr size_t kSecurityHeaderBytes = 16;

/// The 8 bytes in front of every message: version, type, 48-bit size of what follows.
struct FrameHeader {
  MessageType type = MessageType::record;
  uint64_t body_bytes = 0;
};

void encode_frame_header(const FrameHeader& header, std::byte* at);

/// Requires bytes.size() >= kFrameHeaderBytes.
/// Errors: protocol if the version is not 2, the type not 1..4, or the size over its limit.
Result<FrameHeader> decode_frame_header(Bytes bytes);

namespace info1 {
inline constexpr uint8_t kRead = 0x01, kGetAll = 0x02, kShortQuery = 0x04, kBatch = 0x08,
                         kNoBinData = 0x20, kReadModeAll = 0x40, kCompressResponse = 0x80;
}
namespace info2 {
inline constexpr uint8_t kWrite = 0x01, kDelete = 0x02, kGenerationEqual = 0x04,
                         kGenerationGreater = 0x08, kDurableDelete = 0x10, kCreateOnly = 0x20,
                         kRelaxedLongQuery = 0x40, kRespondAllOps = 0x80;
}
namespace info3 {
inline constexpr uint8_t kLast = 0x01, kCommitMaster = 0x02, kPartitionDone = 0x04,
                         kUpdateOnly = 0x08, kCreateOrReplace = 0x10, kReplaceOnly = 0x20;
}

/// The 22-byte header of a record message or of one unit of a multi-part answer.
struct MessageHeader {
  uint8_t info1 = 0;
  uint8_t info2 = 0;
  uint8_t info3 = 0;
  uint8_t info4 = 0;
  uint8_t result_code = 0;
  uint32_t generation = 0;       ///< partition id in a partition-done unit
  uint32_t record_ttl = 0;       ///< answers: void-time, seconds since 2010, 0 = never
  uint32_t transaction_ttl = 0;  ///< requests: timeout in ms; batch answers: row index
  uint16_t field_count = 0;
  uint16_t op_count = 0;
};

void encode_message_header(const MessageHeader& header, std::byte* at);

/// Requires bytes.size() >= kMessageHeaderBytes. Cannot fail: every bit pattern is a header.
/// The header size byte is ignored, as the real server does.
MessageHeader decode_message_header(Bytes bytes);

enum class FieldType : uint8_t {
  ns = 0,
  set = 1,
  user_key = 2,
  digest = 4,
  task_id = 7,
  socket_timeout = 9,
  records_per_second = 10,
  partition_ids = 11,
  resume_digests = 12,
  max_records = 13,
  batch = 41,
  batch_with_set = 42,
  filter = 43,
};

enum class OpType : uint8_t {
  read = 1,
  write = 2,
  cdt_read = 3,
  cdt_modify = 4,
  add = 5,
  append = 9,
  prepend = 10,
  touch = 11,
  delete_all = 14,
};

enum class Particle : uint8_t {
  null = 0,
  integer = 1,
  floating = 2,
  string = 3,
  blob = 4,
  boolean = 17,
  hll = 18,
  map = 19,
  list = 20,
  geojson = 23,
};

/// A field inside a message; `value` points into the message.
struct Field {
  uint8_t type = 0;
  Bytes value;
};

/// A bin operation inside a message; `name` and `value` point into the message.
struct Op {
  uint8_t type = 0;
  uint8_t particle = 0;
  std::string_view name;
  Bytes value;
};

/// Walks over fields and ops of a complete message. Every length is compared with the remaining
/// bytes before it is used. After an error the reader must not be used further.
/// Lifetime: results point into `bytes`. Thread-compatible.
class UnitReader {
 public:
  explicit UnitReader(Bytes bytes) : rest_(bytes) {}

  /// Errors: protocol if fewer bytes are left than the unit needs.
  Result<MessageHeader> header();
  Result<Field> field();
  Result<Op> op();

  [[nodiscard]] Bytes rest() const { return rest_; }

 private:
  Bytes rest_;
};

/// Appends units to a byte buffer; the only encoder of requests and answers.
/// Thread-compatible. The caller keeps lengths within limits.h.
class UnitWriter {
 public:
  explicit UnitWriter(std::vector<std::byte>& out) : out_(out) {}

  void header(const MessageHeader& header);
  void field(FieldType type, Bytes value);
  /// The part of a field before its value, for values appended by the caller.
  void field_header(FieldType type, size_t value_bytes);
  void op(OpType type, Particle particle, std::string_view name, Bytes value);
  /// The part of an op before its value; the value travels separately (payloads are not copied).
  void op_header(OpType type, Particle particle, std::string_view name, size_t value_bytes);
  void op_integer(OpType type, std::string_view name, int64_t value);

  void u8(uint8_t value);
  void u16(uint16_t value);
  void u32(uint32_t value);
  void u64(uint64_t value);
  void bytes(Bytes value);

  /// Reserves a frame header at the end of the buffer and returns its offset for end_frame().
  size_t begin_frame();
  /// Fills the header reserved at `at` with everything after it plus `external_bytes` that follow
  /// outside this buffer.
  void end_frame(size_t at, MessageType type, uint64_t external_bytes = 0);

  [[nodiscard]] size_t size() const { return out_.size(); }

 private:
  std::byte* grow(size_t count);
  std::vector<std::byte>& out_;
};

}  // namespace aerokv::wire
