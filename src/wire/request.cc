// SPDX-License-Identifier: Apache-2.0
#include "wire/request.h"

#include <string>

namespace aerokv::wire {
namespace {

constexpr std::byte kTrue{1};
constexpr std::byte kFalse{0};

Status over_limit(const char* what, size_t seen, uint64_t limit) {
  return {Code::invalid, std::string("encode request: ") + what + ": " + std::to_string(seen) +
                             " bytes, limit " + std::to_string(limit)};
}

Status check_names(const RecordRequest& request) {
  if (request.record.ns.empty() || request.record.ns.size() > kNamespaceBytesMax) {
    return over_limit("namespace", request.record.ns.size(), kNamespaceBytesMax);
  }
  if (request.record.set.size() > kSetBytesMax) {
    return over_limit("set", request.record.set.size(), kSetBytesMax);
  }
  if (request.ops.size() > kOpCountMax) return over_limit("ops", request.ops.size(), kOpCountMax);
  for (const BinOp& op : request.ops) {
    if (op.name.size() > kBinNameBytesMax) {
      return over_limit("bin name", op.name.size(), kBinNameBytesMax);
    }
  }
  return {};
}

void append_user_key(UnitWriter& writer, const UserKey& key) {
  writer.field_header(FieldType::user_key, 1 + key.value.size());
  writer.u8(static_cast<uint8_t>(key.particle));
  writer.bytes(key.value);
}

void append_op(UnitWriter& writer, const BinOp& op) {
  if (op.particle == Particle::integer) {
    writer.op_integer(op.type, op.name, op.integer);
  } else {
    writer.op(op.type, op.particle, op.name, op.value);
  }
}

}  // namespace

BinOp BinOp::write_boolean(std::string_view name, bool value) {
  return {OpType::write, Particle::boolean, name, Bytes(value ? &kTrue : &kFalse, 1), 0};
}

RecordRequest RecordRequest::get(const RecordRef& record, std::span<const BinOp> bins,
                                 uint32_t timeout_ms) {
  RecordRequest request;
  request.record = record;
  request.info1 = bins.empty() ? info1::kRead | info1::kGetAll : info1::kRead;
  request.timeout_ms = timeout_ms;
  request.ops = bins;
  return request;
}

RecordRequest RecordRequest::exists(const RecordRef& record, uint32_t timeout_ms) {
  RecordRequest request;
  request.record = record;
  request.info1 = info1::kRead | info1::kNoBinData;
  request.timeout_ms = timeout_ms;
  return request;
}

RecordRequest RecordRequest::put(const RecordRef& record, Exists exists, uint32_t ttl,
                                 std::span<const BinOp> ops, uint32_t timeout_ms) {
  RecordRequest request;
  request.record = record;
  request.info2 = info2::kWrite;
  if (exists == Exists::create_only) request.info2 |= info2::kCreateOnly;
  if (exists == Exists::create_or_replace) request.info3 |= info3::kCreateOrReplace;
  if (exists == Exists::replace_only) request.info3 |= info3::kReplaceOnly;
  if (exists == Exists::update_only) request.info3 |= info3::kUpdateOnly;
  request.ttl = ttl;
  request.timeout_ms = timeout_ms;
  request.ops = ops;
  return request;
}

RecordRequest RecordRequest::remove(const RecordRef& record, uint32_t timeout_ms) {
  RecordRequest request;
  request.record = record;
  request.info2 = info2::kWrite | info2::kDelete;
  request.timeout_ms = timeout_ms;
  return request;
}

RecordRequest RecordRequest::touch(const RecordRef& record, uint32_t ttl, const BinOp& touch_op,
                                   uint32_t timeout_ms) {
  return put(record, Exists::update, ttl, std::span(&touch_op, 1), timeout_ms);
}

RecordRequest RecordRequest::operate(const RecordRef& record, uint32_t ttl,
                                     std::span<const BinOp> ops, uint32_t timeout_ms) {
  RecordRequest request = put(record, Exists::update, ttl, ops, timeout_ms);
  bool writes = false;
  for (const BinOp& op : ops) {
    if (op.type == OpType::read) {
      request.info1 |= info1::kRead;
      if (op.name.empty()) request.info1 |= info1::kGetAll;
    } else {
      writes = true;
    }
  }
  if (!writes) request.info2 = 0;
  return request;
}

void RecordRequest::check_generation(GenerationCheck check, uint32_t expected) {
  if (check == GenerationCheck::equal) info2 |= info2::kGenerationEqual;
  if (check == GenerationCheck::greater) info2 |= info2::kGenerationGreater;
  generation = check == GenerationCheck::none ? 0 : expected;
}

Result<size_t> begin_record_request(const RecordRequest& request, uint16_t op_count,
                                    UnitWriter& writer) {
  AEROKV_TRY(check_names(request));
  const size_t frame_at = writer.begin_frame();
  MessageHeader header;
  header.info1 = request.info1;
  header.info2 = request.info2;
  header.info3 = request.info3;
  header.generation = request.generation;
  header.record_ttl = request.ttl;
  header.transaction_ttl = request.timeout_ms;
  header.field_count = request.user_key ? 4 : 3;
  header.op_count = op_count;
  writer.header(header);
  writer.field(FieldType::ns, as_bytes(request.record.ns));
  writer.field(FieldType::set, as_bytes(request.record.set));
  writer.field(FieldType::digest, request.record.digest);
  if (request.user_key) append_user_key(writer, *request.user_key);
  return frame_at;
}

Status encode_record_request(const RecordRequest& request, Payload payload,
                             std::vector<std::byte>& out) {
  UnitWriter writer(out);
  Result<size_t> begun =
      begin_record_request(request, static_cast<uint16_t>(request.ops.size()), writer);
  if (!begun) return begun.error();
  const size_t frame_at = *begun;
  uint64_t external_bytes = 0;
  for (size_t i = 0; i < request.ops.size(); ++i) {
    const BinOp& op = request.ops[i];
    if (payload == Payload::external && i + 1 == request.ops.size()) {
      external_bytes = op.value.size();
      writer.op_header(op.type, op.particle, op.name, op.value.size());
    } else {
      append_op(writer, op);
    }
  }
  const uint64_t body_bytes = writer.size() - frame_at - kFrameHeaderBytes + external_bytes;
  if (body_bytes > kMessageBytesMax) return over_limit("message", body_bytes, kMessageBytesMax);
  writer.end_frame(frame_at, MessageType::record, external_bytes);
  return {};
}

BatchEncoder::BatchEncoder(uint8_t flags, uint32_t timeout_ms, std::vector<std::byte>& out)
    : out_(out), writer_(out), frame_at_(writer_.begin_frame()) {
  MessageHeader header;
  header.info1 = info1::kBatch;
  header.transaction_ttl = timeout_ms;
  header.field_count = 1;
  writer_.header(header);
  field_at_ = writer_.size();
  writer_.field_header(FieldType::batch, 0);
  writer_.u32(0);
  writer_.u8(flags);
}

Status BatchEncoder::add(uint32_t index, const RecordRequest& row) {
  constexpr uint8_t kRepeat = 0x01, kInfo = 0x02, kGeneration = 0x04, kTtl = 0x08;
  const bool repeat =
      previous_ && !row.user_key && !previous_->user_key && row.record.ns == previous_->record.ns &&
      row.record.set == previous_->record.set && row.info1 == previous_->info1 &&
      row.info2 == previous_->info2 && row.info3 == previous_->info3 &&
      row.generation == previous_->generation && row.ttl == previous_->ttl &&
      row.ops.data() == previous_->ops.data() && row.ops.size() == previous_->ops.size();
  if (!repeat) AEROKV_TRY(check_names(row));
  writer_.u32(index);
  writer_.bytes(row.record.digest);
  ++row_count_;
  if (repeat) {
    writer_.u8(kRepeat);
    return {};
  }
  writer_.u8(row.is_write() ? kInfo | kGeneration | kTtl : kInfo | kTtl);
  writer_.u8(row.info1);
  writer_.u8(row.is_write() ? row.info2 | info2::kRespondAllOps : row.info2);
  writer_.u8(row.info3);
  if (row.is_write()) writer_.u16(static_cast<uint16_t>(row.generation));
  writer_.u32(row.ttl);
  writer_.u16(row.user_key ? 3 : 2);
  writer_.u16(static_cast<uint16_t>(row.ops.size()));
  writer_.field(FieldType::ns, as_bytes(row.record.ns));
  writer_.field(FieldType::set, as_bytes(row.record.set));
  if (row.user_key) append_user_key(writer_, *row.user_key);
  for (const BinOp& op : row.ops) append_op(writer_, op);
  previous_ = row;
  return {};
}

Status BatchEncoder::finish() {
  if (row_count_ == 0) return {Code::invalid, "encode batch: no rows"};
  const size_t body_bytes = writer_.size() - frame_at_ - kFrameHeaderBytes;
  if (body_bytes > kMessageBytesMax) return over_limit("batch", body_bytes, kMessageBytesMax);
  store_be<uint32_t>(out_.data() + field_at_, static_cast<uint32_t>(out_.size() - field_at_ - 4));
  store_be<uint32_t>(out_.data() + field_at_ + 5, row_count_);
  writer_.end_frame(frame_at_, MessageType::record);
  return {};
}

Status encode_query(const QueryRequest& request, std::vector<std::byte>& out) {
  if (request.ns.empty() || request.ns.size() > kNamespaceBytesMax) {
    return over_limit("namespace", request.ns.size(), kNamespaceBytesMax);
  }
  if (request.set.size() > kSetBytesMax) return over_limit("set", request.set.size(), kSetBytesMax);
  if (request.partitions.empty() && request.resume_after.empty()) {
    return {Code::invalid, "encode query: no partitions"};
  }
  UnitWriter writer(out);
  const size_t frame_at = writer.begin_frame();
  MessageHeader header;
  header.info1 = request.header_only ? info1::kRead | info1::kNoBinData : info1::kRead;
  header.info3 = info3::kPartitionDone;  // all bins need no flag here: no ops means all
  header.record_ttl = kReadTouchNever;
  header.field_count =
      static_cast<uint16_t>(3 + !request.set.empty() + !request.partitions.empty() +
                            !request.resume_after.empty() + (request.max_records > 0));
  header.op_count = static_cast<uint16_t>(request.bins.size());
  writer.header(header);
  writer.field(FieldType::ns, as_bytes(request.ns));
  if (!request.set.empty()) writer.field(FieldType::set, as_bytes(request.set));
  writer.field_header(FieldType::socket_timeout, 4);
  writer.u32(request.socket_timeout_ms);
  writer.field_header(FieldType::task_id, 8);
  writer.u64(request.task_id);
  if (!request.partitions.empty()) {
    writer.field_header(FieldType::partition_ids, 2 * request.partitions.size());
    for (const uint16_t id : request.partitions) writer.u16(byte_swap(id));  // little-endian
  }
  if (!request.resume_after.empty()) {
    writer.field_header(FieldType::resume_digests, kDigestBytes * request.resume_after.size());
    for (const Digest& digest : request.resume_after) writer.bytes(digest);
  }
  if (request.max_records > 0) {
    writer.field_header(FieldType::max_records, 8);
    writer.u64(request.max_records);
  }
  for (const BinOp& op : request.bins) append_op(writer, op);
  writer.end_frame(frame_at, MessageType::record);
  return {};
}

Status encode_info(std::span<const std::string_view> commands, std::vector<std::byte>& out) {
  UnitWriter writer(out);
  const size_t frame_at = writer.begin_frame();
  for (const std::string_view command : commands) {
    if (command.empty() || command.find('\n') != std::string_view::npos) {
      return {Code::invalid, "encode info: a command is empty or holds a line feed"};
    }
    writer.bytes(as_bytes(command));
    writer.u8('\n');
  }
  writer.end_frame(frame_at, MessageType::info);
  return {};
}

}  // namespace aerokv::wire
