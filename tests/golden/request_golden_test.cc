// SPDX-License-Identifier: Apache-2.0
// The engine's requests against those that the official client was seen to send. Each recorded
// request is taken apart into what a caller would ask for, built again by the encoder for that
// operation, and compared whole.
#include <gtest/gtest.h>

#include <algorithm>
#include <deque>
#include <map>
#include <optional>
#include <set>
#include <string>

#include "recordings.h"
#include "wire/request.h"
#include "wire/security.h"

namespace aerokv::golden {
namespace {

using wire::BinOp;
using wire::FieldType;
using wire::OpType;
using wire::Particle;
using wire::RecordRequest;

// Operations that the engine does not offer, with the reason.
const std::map<std::string, std::string>& exceptions() {
  static const std::map<std::string, std::string> kExceptions = {
      {"batch_delete_durable",
       "durable deletes are for Enterprise servers; the official client then writes the second row "
       "in full, where the encoder writes a repeat of the same meaning"},
      {"compressed_put", "the engine sends no compressed messages: KV data does not deflate"},
      {"compressed_batch", "the engine sends no compressed messages"},
  };
  return kExceptions;
}

// A record request or batch row taken apart; views point into the recording.
struct Parsed {
  wire::MessageHeader header;
  wire::RecordRef record;
  std::optional<wire::UserKey> user_key;
  std::vector<BinOp> ops;
};

void parse_field(const wire::Field& field, Parsed& parsed) {
  switch (static_cast<FieldType>(field.type)) {
    case FieldType::ns:
      parsed.record.ns = as_text(field.value);
      break;
    case FieldType::set:
      parsed.record.set = as_text(field.value);
      break;
    case FieldType::digest:
      ASSERT_EQ(field.value.size(), kDigestBytes);
      std::copy(field.value.begin(), field.value.end(), parsed.record.digest.begin());
      break;
    case FieldType::user_key:
      ASSERT_FALSE(field.value.empty());
      parsed.user_key =
          wire::UserKey{static_cast<Particle>(field.value[0]), field.value.subspan(1)};
      break;
    default:
      FAIL() << "field type " << int{field.type};
  }
}

void parse_ops(wire::UnitReader& reader, size_t count, std::vector<BinOp>& ops) {
  for (size_t i = 0; i < count; ++i) {
    const auto op = reader.op();
    ASSERT_TRUE(op) << op.error().message();
    BinOp& kept = ops.emplace_back();
    kept.type = static_cast<OpType>(op->type);
    kept.particle = static_cast<Particle>(op->particle);
    kept.name = op->name;
    kept.value = op->value;
    if (kept.particle == Particle::integer) {
      ASSERT_EQ(op->value.size(), 8U);
      kept.integer = static_cast<int64_t>(load_be<uint64_t>(op->value.data()));
    }
  }
}

bool is_read(const BinOp& op) {
  return op.type == OpType::read;
}
bool is_plain_write(const BinOp& op) {
  return op.type == OpType::write;
}

// What a caller of the encoders would have asked for.
RecordRequest operation_of(const Parsed& parsed, uint32_t timeout_ms) {
  const wire::MessageHeader& header = parsed.header;
  const std::vector<BinOp>& ops = parsed.ops;
  if ((header.info2 & wire::info2::kDelete) != 0) {
    return RecordRequest::remove(parsed.record, timeout_ms);
  }
  if ((header.info1 & wire::info1::kNoBinData) != 0) {
    return RecordRequest::exists(parsed.record, timeout_ms);
  }
  if ((header.info2 & wire::info2::kWrite) == 0 && std::all_of(ops.begin(), ops.end(), is_read)) {
    return RecordRequest::get(parsed.record, ops, timeout_ms);
  }
  if (ops.size() == 1 && ops[0].type == OpType::touch) {
    return RecordRequest::touch(parsed.record, header.record_ttl, ops[0], timeout_ms);
  }
  if (!std::all_of(ops.begin(), ops.end(), is_plain_write)) {
    return RecordRequest::operate(parsed.record, header.record_ttl, ops, timeout_ms);
  }
  wire::Exists exists = wire::Exists::update;
  if ((header.info2 & wire::info2::kCreateOnly) != 0) exists = wire::Exists::create_only;
  if ((header.info3 & wire::info3::kCreateOrReplace) != 0) exists = wire::Exists::create_or_replace;
  if ((header.info3 & wire::info3::kReplaceOnly) != 0) exists = wire::Exists::replace_only;
  if ((header.info3 & wire::info3::kUpdateOnly) != 0) exists = wire::Exists::update_only;
  return RecordRequest::put(parsed.record, exists, header.record_ttl, ops, timeout_ms);
}

// Adds what a caller sets beside the operation itself. Every other bit must come from the encoder.
void add_options(const Parsed& parsed, RecordRequest& request) {
  const wire::MessageHeader& header = parsed.header;
  request.user_key = parsed.user_key;
  if ((header.info2 & wire::info2::kGenerationEqual) != 0) {
    request.check_generation(wire::GenerationCheck::equal, header.generation);
  }
  if ((header.info2 & wire::info2::kGenerationGreater) != 0) {
    request.check_generation(wire::GenerationCheck::greater, header.generation);
  }
  if (!request.is_write()) request.ttl = header.record_ttl;  // read-touch percent
  request.info1 |= header.info1 & (wire::info1::kReadModeAll | wire::info1::kCompressResponse);
  request.info2 |= header.info2 & wire::info2::kDurableDelete;
  request.info3 |= header.info3 & wire::info3::kCommitMaster;
}

std::vector<std::byte> rebuild_record(Bytes body) {
  wire::UnitReader reader(body);
  Parsed parsed;
  parsed.header = *reader.header();
  for (int i = 0; i < parsed.header.field_count; ++i) {
    const auto field = reader.field();
    EXPECT_TRUE(field);
    if (!field) return {};
    parse_field(*field, parsed);
  }
  parse_ops(reader, parsed.header.op_count, parsed.ops);
  RecordRequest request = operation_of(parsed, parsed.header.transaction_ttl);
  add_options(parsed, request);
  std::vector<std::byte> out;
  const Status status = encode_record_request(request, wire::Payload::inside, out);
  EXPECT_TRUE(status) << status.message();
  return out;
}

// Reads the rows of a batch field.
class RowReader {
 public:
  explicit RowReader(Bytes field) : rest_(field) {}

  template <typename T>
  T take() {
    EXPECT_GE(rest_.size(), sizeof(T));
    const T value = load_be<T>(rest_.data());
    rest_ = rest_.subspan(sizeof(T));
    return value;
  }

  /// The next row, or nothing for a repeat of the one before; its digest in either case.
  std::optional<Parsed> row(uint32_t& index, wire::Digest& digest) {
    index = take<uint32_t>();
    std::copy_n(rest_.begin(), kDigestBytes, digest.begin());
    rest_ = rest_.subspan(kDigestBytes);
    const auto type = take<uint8_t>();
    if (type == 1) return std::nullopt;
    Parsed parsed;
    parsed.header.info1 = take<uint8_t>();
    parsed.header.info2 = take<uint8_t>();
    parsed.header.info3 = take<uint8_t>();
    if ((type & 4) != 0) parsed.header.generation = take<uint16_t>();
    if ((type & 8) != 0) parsed.header.record_ttl = take<uint32_t>();
    const auto field_count = take<uint16_t>();
    const auto op_count = take<uint16_t>();
    wire::UnitReader reader(rest_);
    for (int i = 0; i < field_count; ++i) parse_field(*reader.field(), parsed);
    parse_ops(reader, op_count, parsed.ops);
    rest_ = reader.rest();
    return parsed;
  }

 private:
  Bytes rest_;
};

std::vector<std::byte> rebuild_batch(Bytes body) {
  wire::UnitReader reader(body);
  const wire::MessageHeader header = *reader.header();
  RowReader rows(reader.field()->value);
  const auto row_count = rows.take<uint32_t>();
  std::vector<std::byte> out;
  wire::BatchEncoder batch(rows.take<uint8_t>(), header.transaction_ttl, out);
  std::deque<Parsed> kept;  // requests point into their ops
  RecordRequest request;
  for (uint32_t i = 0; i < row_count; ++i) {
    uint32_t index = 0;
    wire::Digest digest;
    if (auto parsed = rows.row(index, digest)) {
      kept.push_back(*std::move(parsed));
      request = operation_of(kept.back(), 0);
      add_options(kept.back(), request);
    }
    request.record.digest = digest;
    const Status status = batch.add(index, request);
    EXPECT_TRUE(status) << status.message();
  }
  const Status status = batch.finish();
  EXPECT_TRUE(status) << status.message();
  return out;
}

std::vector<std::byte> rebuild_query(Bytes body) {
  wire::UnitReader reader(body);
  const wire::MessageHeader header = *reader.header();
  wire::QueryRequest query;
  std::vector<uint16_t> partitions;
  std::vector<wire::Digest> digests;
  for (int i = 0; i < header.field_count; ++i) {
    const wire::Field field = *reader.field();
    switch (static_cast<FieldType>(field.type)) {
      case FieldType::ns:
        query.ns = as_text(field.value);
        break;
      case FieldType::set:
        query.set = as_text(field.value);
        break;
      case FieldType::task_id:
        query.task_id = load_be<uint64_t>(field.value.data());
        break;
      case FieldType::socket_timeout:
        query.socket_timeout_ms = load_be<uint32_t>(field.value.data());
        break;
      case FieldType::max_records:
        query.max_records = load_be<uint64_t>(field.value.data());
        break;
      case FieldType::partition_ids:
        for (size_t at = 0; at < field.value.size(); at += 2) {
          partitions.push_back(load_le<uint16_t>(field.value.data() + at));
        }
        break;
      case FieldType::resume_digests:
        for (size_t at = 0; at < field.value.size(); at += kDigestBytes) {
          std::copy_n(field.value.begin() + static_cast<ptrdiff_t>(at), kDigestBytes,
                      digests.emplace_back().begin());
        }
        break;
      default:
        ADD_FAILURE() << "field type " << int{field.type};
    }
  }
  std::vector<BinOp> bins;
  parse_ops(reader, header.op_count, bins);
  query.header_only = (header.info1 & wire::info1::kNoBinData) != 0;
  query.bins = bins;
  query.partitions = partitions;
  query.resume_after = digests;
  std::vector<std::byte> out;
  const Status status = encode_query(query, out);
  EXPECT_TRUE(status) << status.message();
  return out;
}

std::vector<std::byte> rebuild_info(Bytes body) {
  std::vector<std::string_view> commands;
  std::string_view text = as_text(body);
  while (!text.empty()) {
    const size_t end = text.find('\n');
    commands.push_back(text.substr(0, end));
    text.remove_prefix(end + 1);
  }
  std::vector<std::byte> out;
  const Status status = wire::encode_info(commands, out);
  EXPECT_TRUE(status) << status.message();
  return out;
}

std::vector<std::byte> rebuild_login(Bytes body) {
  EXPECT_EQ(body[2], std::byte{20});  // the command: login
  wire::UnitReader reader(body.subspan(wire::kSecurityHeaderBytes));
  const auto user = reader.field();
  const auto credential = reader.field();
  std::vector<std::byte> out;
  EXPECT_TRUE(wire::encode_login(as_text(user->value), as_text(credential->value), out));
  return out;
}

std::vector<std::byte> rebuild(const Exchange& exchange) {
  const auto frame = wire::decode_frame_header(exchange.request);
  EXPECT_TRUE(frame) << frame.error().message();
  const Bytes body = Bytes(exchange.request).subspan(wire::kFrameHeaderBytes);
  if (frame->type == wire::MessageType::info) return rebuild_info(body);
  if (frame->type == wire::MessageType::security) return rebuild_login(body);
  const wire::MessageHeader header = wire::decode_message_header(body);
  if ((header.info1 & wire::info1::kBatch) != 0) return rebuild_batch(body);
  if ((header.info3 & wire::info3::kPartitionDone) != 0) return rebuild_query(body);
  return rebuild_record(body);
}

void expect_equal(const std::vector<Exchange>& exchanges, size_t expected_count) {
  size_t compared = 0;
  for (const Exchange& exchange : exchanges) {
    if (!exchange.is_official || exceptions().count(exchange.name) > 0) continue;
    SCOPED_TRACE(exchange.name);
    ASSERT_NO_FATAL_FAILURE({
      EXPECT_EQ(to_hex(rebuild(exchange)).substr(0, 2000),
                to_hex(exchange.request).substr(0, 2000));
    });
    EXPECT_TRUE(rebuild(exchange) == exchange.request);
    ++compared;
  }
  EXPECT_EQ(compared, expected_count);
}

TEST(GoldenRequests, EqualThoseOfTheOfficialClient) {
  expect_equal(load_exchanges(), 203);
}

// Requests that were built by hand for the recording and that the engine sends too.
TEST(GoldenRequests, EqualRecordedRequestsBeyondTheOfficialClient) {
  const std::set<std::string> names = {"put_blob_1048519",
                                       "put_blob_1048519_get",
                                       "put_blob_1048519_delete",
                                       "put_blob_1048520",
                                       "put_blob_1048516_ttl",
                                       "get_empty_set_field",
                                       "batch_exists_1",
                                       "batch_exists_256",
                                       "batch_read_full_rows",
                                       "batch_read_index_values",
                                       "batch_read_mixed_rows",
                                       "batch_read_flags_inline_all",
                                       "batch_write_repeat",
                                       "batch_write_policies",
                                       "batch_error_stops",
                                       "query_one_partition",
                                       "query_three_partitions",
                                       "query_resume",
                                       "query_partition_and_resume",
                                       "query_max_records",
                                       "query_whole_namespace",
                                       "info_replicas",
                                       "info_racks",
                                       "info_same_twice"};
  std::vector<Exchange> chosen = load_exchanges();
  std::erase_if(chosen, [&](const Exchange& e) { return names.count(e.name) == 0; });
  for (Exchange& exchange : chosen) exchange.is_official = true;
  expect_equal(chosen, names.size());
}

TEST(GoldenRequests, EqualTheConnectSequenceOfTheOfficialClient) {
  expect_equal(load_connect_sequence(), 28);
}

TEST(GoldenRequests, ExceptionsAreRecordedRequests) {
  std::set<std::string> official;
  for (const Exchange& exchange : load_exchanges()) {
    if (exchange.is_official) official.insert(exchange.name);
  }
  for (const auto& exception : exceptions()) {
    EXPECT_EQ(official.count(exception.first), 1U) << exception.first;
    EXPECT_FALSE(exception.second.empty());
  }
}

}  // namespace
}  // namespace aerokv::golden
