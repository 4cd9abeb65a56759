// SPDX-License-Identifier: Apache-2.0
#include "devserver/request.h"

namespace aerokv::devserver {
namespace {

void take_number(Bytes value, std::optional<uint64_t>& number) {
  if (value.size() == 8) number = load_be<uint64_t>(value.data());
}

void take_field(const wire::Field& field, Request& request) {
  using wire::FieldType;
  switch (static_cast<FieldType>(field.type)) {
    case FieldType::ns:
      request.ns = as_text(field.value);
      break;
    case FieldType::set:
      request.set = as_text(field.value);
      break;
    case FieldType::user_key:
      request.key = field.value;
      break;
    case FieldType::digest:
      request.digest = field.value;
      break;
    case FieldType::task_id:
      take_number(field.value, request.task_id);
      break;
    case FieldType::max_records:
      take_number(field.value, request.max_records);
      break;
    case FieldType::partition_ids:
      request.partition_ids = field.value;
      break;
    case FieldType::resume_digests:
      request.resume_digests = field.value;
      break;
    case FieldType::filter:
      request.has_filter = true;
      break;
    case FieldType::batch:
    case FieldType::batch_with_set:
      request.batch = field.value;
      break;
    default:
      if (field.type == 21 || field.type == 22) request.has_index_range = true;
      if (field.type >= 30 && field.type <= 33) request.has_udf = true;
      break;
  }
}

}  // namespace

void RecordRequest::clear_record() {
  header = {};
  ns.reset();
  set.reset();
  digest.reset();
  key = {};
  has_filter = false;
  ops.clear();
  buffer = BufferRef();
}

void Request::clear() {
  clear_record();
  batch.reset();
  task_id.reset();
  max_records.reset();
  partition_ids.reset();
  resume_digests.reset();
  has_index_range = false;
  has_udf = false;
}

bool parse_request(Bytes body, Request& request) {
  request.clear();
  wire::UnitReader reader(body);
  const auto header = reader.header();
  if (!header) return false;
  request.header = *header;
  for (uint32_t i = 0; i < header->field_count; ++i) {
    const auto field = reader.field();
    if (!field) return false;
    take_field(*field, request);
  }
  for (uint32_t i = 0; i < header->op_count; ++i) {
    const auto op = reader.op();
    if (!op) return false;
    request.ops.push_back(*op);
  }
  return reader.rest().empty();
}

RequestKind kind_of(const RecordRequest& request) {
  if (request.is_delete()) return RequestKind::remove;
  if (request.is_write()) {
    if (request.is_read()) return RequestKind::operate;
    bool only_touch = !request.ops.empty();
    for (const wire::Op& op : request.ops) {
      const auto type = static_cast<wire::OpType>(op.type);
      if (type != wire::OpType::touch) only_touch = false;
      if (type != wire::OpType::touch && type != wire::OpType::write) return RequestKind::operate;
    }
    return only_touch ? RequestKind::touch : RequestKind::put;
  }
  if (!request.is_read()) return RequestKind::other;
  return (request.header.info1 & wire::info1::kNoBinData) != 0 ? RequestKind::exists
                                                               : RequestKind::get;
}

}  // namespace aerokv::devserver
