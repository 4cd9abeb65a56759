// SPDX-License-Identifier: Apache-2.0
// Encoders of every request that a client sends. Byte for byte those of the official client for
// the same operation (tests/golden/aerospike).
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string_view>
#include <vector>

#include "wire/digest.h"
#include "wire/message.h"

namespace aerokv::wire {

/// Addresses one record. Names are borrowed and must outlive the encoding call.
struct RecordRef {
  std::string_view ns;
  std::string_view set;
  Digest digest{};
};

/// A user key to be stored with the record or checked against the stored one.
struct UserKey {
  Particle particle = Particle::string;
  Bytes value;
};

/// One bin operation of a request. For Particle::integer the value is `integer`, else `value`.
struct BinOp {
  OpType type = OpType::read;
  Particle particle = Particle::null;
  std::string_view name;
  Bytes value;
  int64_t integer = 0;

  static BinOp read(std::string_view name) { return {OpType::read, Particle::null, name, {}, 0}; }
  static BinOp write_integer(std::string_view name, int64_t value) {
    return {OpType::write, Particle::integer, name, {}, value};
  }
  static BinOp write_text(std::string_view name, std::string_view value) {
    return {OpType::write, Particle::string, name, as_bytes(value), 0};
  }
  static BinOp write_blob(std::string_view name, Bytes value) {
    return {OpType::write, Particle::blob, name, value, 0};
  }
  static BinOp write_boolean(std::string_view name, bool value);
  static BinOp touch() { return {OpType::touch, Particle::null, {}, {}, 0}; }
};

/// What a write does about a record that exists already.
enum class Exists : uint8_t { update, create_only, create_or_replace, replace_only, update_only };

enum class GenerationCheck : uint8_t { none, equal, greater };

inline constexpr uint32_t kTtlNamespaceDefault = 0;
inline constexpr uint32_t kTtlNeverExpire = 0xFFFFFFFF;
inline constexpr uint32_t kTtlKeep = 0xFFFFFFFE;

/// Reads: how much of the remaining life makes the server renew the TTL, in percent.
inline constexpr uint32_t kReadTouchServerDefault = 0;
inline constexpr uint32_t kReadTouchNever = 0xFFFFFFFF;

/// One single-record request, or one row of a batch.
struct RecordRequest {
  RecordRef record;
  uint8_t info1 = 0;
  uint8_t info2 = 0;
  uint8_t info3 = 0;
  uint32_t generation = 0;
  uint32_t ttl = 0;         ///< writes: TTL; reads: read-touch percent
  uint32_t timeout_ms = 0;  ///< server-side; 0 = server default (1 s). Rows inherit the envelope's
  std::optional<UserKey> user_key;
  std::span<const BinOp> ops;

  /// All bins if `bins` is empty, else those named by read ops.
  static RecordRequest get(const RecordRef& record, std::span<const BinOp> bins,
                           uint32_t timeout_ms);
  /// Generation and expiry only.
  static RecordRequest exists(const RecordRef& record, uint32_t timeout_ms);
  static RecordRequest put(const RecordRef& record, Exists exists, uint32_t ttl,
                           std::span<const BinOp> ops, uint32_t timeout_ms);
  static RecordRequest remove(const RecordRef& record, uint32_t timeout_ms);
  /// `touch_op` must be BinOp::touch() and outlive the request.
  static RecordRequest touch(const RecordRef& record, uint32_t ttl, const BinOp& touch_op,
                             uint32_t timeout_ms);
  /// Reads and writes in order; info bits follow from the ops.
  static RecordRequest operate(const RecordRef& record, uint32_t ttl, std::span<const BinOp> ops,
                               uint32_t timeout_ms);

  void check_generation(GenerationCheck check, uint32_t expected);
  [[nodiscard]] bool is_write() const { return (info2 & info2::kWrite) != 0; }
};

/// Whether the value of the last op is written into the buffer or follows outside of it.
enum class Payload : uint8_t { inside, external };

/// Appends one complete frame. With Payload::external the value of the last op (a blob) is
/// counted but not appended: the caller sends it right behind these bytes.
/// Errors: invalid if namespace, set, a bin name or the whole message is over its limit.
Status encode_record_request(const RecordRequest& request, Payload payload,
                             std::vector<std::byte>& out);

/// Appends everything before the ops: frame header, message header, fields. The caller appends
/// exactly `op_count` ops and then calls writer.end_frame() with the returned offset.
Result<size_t> begin_record_request(const RecordRequest& request, uint16_t op_count,
                                    UnitWriter& writer);

/// Builds one batch message row by row. A row that equals the one before (apart from the digest)
/// is written as a repeat; equality of ops is identity of the span.
/// Source: server batch protocol, version 6.0 and later.
class BatchEncoder {
 public:
  static constexpr uint8_t kInlineMemory = 0x01, kInlineDevice = 0x02, kAnswerAll = 0x04,
                           kReportFailing = 0x08;

  /// `out` is appended to and must outlive the encoder.
  BatchEncoder(uint8_t flags, uint32_t timeout_ms, std::vector<std::byte>& out);

  /// `index` comes back in the answer of this row. Writes get the respond-all flag, as the
  /// official client does.
  Status add(uint32_t index, const RecordRequest& row);

  /// Completes the frame. Errors: invalid without rows, or if the message is too long.
  Status finish();

  [[nodiscard]] uint32_t row_count() const { return row_count_; }

 private:
  std::vector<std::byte>& out_;
  UnitWriter writer_;
  size_t frame_at_;
  size_t field_at_ = 0;
  uint32_t row_count_ = 0;
  std::optional<RecordRequest> previous_;
};

/// A primary-index query of one node.
struct QueryRequest {
  std::string_view ns;
  std::string_view set;  ///< empty: the whole namespace
  bool header_only = true;
  std::span<const BinOp> bins;  ///< read ops; empty = all (unless header_only)
  uint64_t task_id = 0;         ///< must differ from every running or recent query
  uint32_t socket_timeout_ms = 30000;
  uint64_t max_records = 0;  ///< 0 = no limit
  std::span<const uint16_t> partitions;
  std::span<const Digest> resume_after;  ///< continue these partitions behind the digest
};

Status encode_query(const QueryRequest& request, std::vector<std::byte>& out);

/// One info request of several commands.
/// Errors: invalid if a command is empty or holds a line feed.
Status encode_info(std::span<const std::string_view> commands, std::vector<std::byte>& out);

}  // namespace aerokv::wire
