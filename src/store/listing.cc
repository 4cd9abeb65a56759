// SPDX-License-Identifier: Apache-2.0
#include "store/listing.h"

#include <algorithm>
#include <array>
#include <condition_variable>
#include <map>
#include <mutex>
#include <random>

#include "store/meta_record.h"
#include "store/record_commands.h"
#include "store/row_batch.h"
#include "wire/request.h"

namespace aerokv::store {
namespace {

// Partitions of one step: a set of a million records gives about 60,000 of them per step.
constexpr uint32_t kPartitionsPerStep = 256;
constexpr uint32_t kAttemptsMax = 5;
constexpr std::chrono::seconds kQueryTimeout{30};

/// Lets a caller wait for work on I/O threads. The count is fixed before the work starts.
class Latch {
 public:
  explicit Latch(size_t count) : left_(count) {}
  void count_down() {
    const std::scoped_lock lock(mutex_);
    if (--left_ == 0) condition_.notify_all();
  }
  void wait() {
    std::unique_lock lock(mutex_);
    condition_.wait(lock, [this] { return left_ == 0; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable condition_;
  size_t left_;
};

std::string hex(Bytes bytes) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string text;
  for (const std::byte byte : bytes) {
    text += kDigits[std::to_integer<size_t>(byte) >> 4];
    text += kDigits[std::to_integer<size_t>(byte) & 15];
  }
  return text;
}

int64_t expires_in(uint32_t void_time) {
  if (void_time == 0) return -1;
  return std::max<int64_t>(0, int64_t{void_time} + kServerEpochSeconds - unix_seconds());
}

/// Reads some partitions of the set from one node.
class SetQuery final : public client::Command {
 public:
  SetQuery(const Context& context, client::NodePtr node, std::vector<uint16_t> asked,
           uint64_t task_id, Latch& latch)
      : context_(context), partitions(std::move(asked)), task_id_(task_id), latch_(latch) {
    plan.node = std::move(node);
    plan.kind = wire::ReplyKind::query;
    plan.deadline = SteadyClock::now() + kQueryTimeout;
  }

  Status encode(uint32_t, Encoded& request) override {
    const std::array<wire::BinOp, 8> bins = {
        wire::BinOp::read(bin::kState),        wire::BinOp::read(bin::kSegmentCount),
        wire::BinOp::read(bin::kSegmentBytes), wire::BinOp::read(bin::kTotalBytes),
        wire::BinOp::read(bin::kCreatedAt),    wire::BinOp::read(bin::kPin),
        wire::BinOp::read(bin::kSerde),        wire::BinOp::read(bin::kRawBytes)};
    wire::QueryRequest query;
    query.ns = context_.options.ns;
    query.set = context_.options.set_name;
    query.header_only = false;
    query.bins = bins;
    query.task_id = task_id_;
    query.partitions = partitions;
    return wire::encode_query(query, request.head);
  }

  [[nodiscard]] uint8_t result_code() const override { return wire::result::kOk; }

  Status unit(const wire::MessageHeader& header) override {
    current_ = {};
    is_meta_ = is_encoded_ = false;
    const bool is_partition = (header.info3 & wire::info3::kPartitionDone) != 0;
    is_record_ = !is_partition && (header.info3 & wire::info3::kLast) == 0 &&
                 header.result_code == wire::result::kOk;
    if (is_record_) {
      current_.generation = header.generation;
      current_.expires_in = expires_in(header.record_ttl);
    } else if (is_partition && header.result_code != wire::result::kOk) {
      unavailable.push_back(static_cast<uint16_t>(header.generation));
    } else {
      final_code = header.result_code;
    }
    return {};
  }

  Status field(const wire::Field& field) override {
    if (field.type == static_cast<uint8_t>(wire::FieldType::digest)) {
      current_.digest = hex(field.value);
    } else if (field.type == static_cast<uint8_t>(wire::FieldType::user_key) &&
               field.value.size() > 1) {
      const std::optional<RecordName> name = parse_user_key(as_text(field.value.subspan(1)));
      if (name && name->kind == RecordKind::meta) current_.key = name->logical_key;
    }
    return {};
  }

  wire::ValueTarget value_target(std::string_view, uint8_t, uint64_t bytes) override {
    return bytes <= kSerdeTagBytesMax ? wire::ValueTarget::copy() : wire::ValueTarget::skip();
  }

  Status value(std::string_view bin, uint8_t particle, Bytes value) override {
    if (particle == static_cast<uint8_t>(wire::Particle::integer) && value.size() == 8) {
      const auto number = static_cast<int64_t>(load_be<uint64_t>(value.data()));
      if (bin == bin::kTotalBytes) {
        is_meta_ = number >= 0;
        current_.bytes = static_cast<uint64_t>(number);
      } else if (bin == bin::kSegmentCount) {
        current_.segment_count = static_cast<uint32_t>(number);
      } else if (bin == bin::kSegmentBytes) {
        current_.segment_bytes = static_cast<uint64_t>(number);
      } else if (bin == bin::kCreatedAt) {
        current_.created_at = number;
      } else if (bin == bin::kPin) {
        current_.pin = number != 0;
      } else if (bin == bin::kRawBytes && number >= 0) {
        current_.raw_bytes = static_cast<uint64_t>(number);
      }
    } else if (bin == bin::kPin && value.size() == 1) {
      current_.pin = value[0] != std::byte{0};
    } else if (bin == bin::kState) {
      is_encoded_ = as_text(value) == kStateEncoded;
      current_.ready = is_encoded_ || as_text(value) == kStateReady;
    } else if (bin == bin::kSerde) {
      current_.serde = as_text(value);
    }
    return {};
  }

  Status unit_end() override {
    if (!is_encoded_) {
      current_.serde.clear();
      current_.raw_bytes = current_.bytes;
    }
    if (is_record_ && is_meta_) objects.push_back(std::move(current_));
    return {};
  }

  void done(Status end) override {
    status = std::move(end);
    latch_.count_down();
  }

 private:
  const Context& context_;

 public:
  // Results, read after the latch.
  const std::vector<uint16_t> partitions;
  std::vector<ObjectInfo> objects;
  std::vector<uint16_t> unavailable;
  uint8_t final_code = 0;
  Status status;

 private:
  const uint64_t task_id_;
  Latch& latch_;
  ObjectInfo current_;
  bool is_record_ = false;
  bool is_meta_ = false;
  bool is_encoded_ = false;
};

uint64_t random_task_id() {
  thread_local std::mt19937_64 generator{std::random_device{}()};
  return generator();
}

/// Reads `partitions` and appends what is there. Returns those that no node could give.
std::vector<uint16_t> query_partitions(Context& context, const std::vector<uint16_t>& partitions,
                                       uint32_t attempt, std::vector<ObjectInfo>& objects,
                                       Status& failure) {
  client::Client& client = *context.client;
  const std::shared_ptr<const client::ClusterMap> map = client.map();
  std::map<client::NodePtr, std::vector<uint16_t>> by_node;
  std::vector<uint16_t> failed;
  for (const uint16_t partition : partitions) {
    if (client::NodePtr node = client.node_for(*map, partition, false, attempt)) {
      by_node[node].push_back(partition);
    } else {
      failed.push_back(partition);
    }
  }
  Latch latch(by_node.size());
  std::vector<std::unique_ptr<SetQuery>> queries;
  std::vector<client::Command*> commands;
  for (auto& [node, list] : by_node) {
    queries.push_back(
        std::make_unique<SetQuery>(context, node, std::move(list), random_task_id(), latch));
    commands.push_back(queries.back().get());
  }
  if (commands.empty()) return failed;
  client.submit(commands);
  latch.wait();
  for (const std::unique_ptr<SetQuery>& query : queries) {
    Status status = query->status;
    if (status.ok()) status = wire::status_from_result(query->final_code, "list");
    if (!status.ok()) {  // what it sent before is sent again by the next attempt
      failed.insert(failed.end(), query->partitions.begin(), query->partitions.end());
      failure = std::move(status);
      continue;
    }
    for (ObjectInfo& object : query->objects) objects.push_back(std::move(object));
    failed.insert(failed.end(), query->unavailable.begin(), query->unavailable.end());
  }
  return failed;
}

/// Waits for one meta read.
class MetaWait final : private CommandOwner {
 public:
  explicit MetaWait(Context& context) : get(context, *this) {}
  void run(client::Client& client) {
    client.submit(&get);
    latch_.wait();
  }
  MetaGet get;

 private:
  void command_done() override { latch_.count_down(); }
  Latch latch_{1};
};

std::vector<RowResult> look_at(const std::shared_ptr<Context>& context,
                               std::vector<RowBatch::Row> rows, TimePoint deadline) {
  Latch latch(1);
  std::vector<RowResult> results;
  RowBatch::start(
      *context->client,
      {RowBatch::Template::Kind::exists, context->options.ns, context->options.set_name, {}},
      std::move(rows), deadline, [&](std::vector<RowResult> found) {
        results = std::move(found);
        latch.count_down();
      });
  latch.wait();
  return results;
}

}  // namespace

Result<std::vector<ObjectInfo>> list_objects(Context& context, uint32_t& cursor, size_t count) {
  std::vector<ObjectInfo> objects;
  while (cursor < kPartitionCount && objects.size() < std::max<size_t>(1, count)) {
    std::vector<uint16_t> partitions;
    const uint32_t end = std::min(cursor + kPartitionsPerStep, kPartitionCount);
    for (uint32_t p = cursor; p < end; ++p) partitions.push_back(static_cast<uint16_t>(p));
    Status failure(Code::unavailable, "list: partitions are unavailable");
    for (uint32_t attempt = 0; attempt < kAttemptsMax && !partitions.empty(); ++attempt) {
      partitions = query_partitions(context, partitions, attempt, objects, failure);
      if (!partitions.empty()) context.client->refresh_soon();
    }
    if (!partitions.empty()) return failure;
    cursor = end;
  }
  return objects;
}

Result<ObjectDetails> inspect_object(const std::shared_ptr<Context>& context,
                                     const std::string& key) {
  AEROKV_TRY(check_logical_key(key));
  const TimePoint deadline = SteadyClock::now() + context->options.read_timeout;
  MetaWait wait(*context);
  wait.get.prepare(context->meta_digest(key), false, deadline, 0);
  wait.run(*context->client);
  if (wait.get.is_missing()) return Status(Code::not_found, "inspect: no such object");
  AEROKV_TRY(wait.get.outcome("inspect: read the meta record"));
  Result<MetaRecord> meta = wait.get.decode();
  if (!meta) return meta.error();

  ObjectDetails details;
  details.info.key = key;
  details.info.digest = hex(wait.get.digest());
  details.info.bytes = meta->plan.total_bytes;
  details.info.segment_count = meta->plan.segment_count;
  details.info.segment_bytes = meta->plan.segment_bytes;
  details.info.created_at = meta->created_at;
  details.info.expires_in = expires_in(wait.get.header().record_ttl);
  details.info.generation = wait.get.header().generation;
  details.info.pin = meta->pin;
  details.info.ready = true;
  details.info.raw_bytes = meta->serde.empty() ? meta->plan.total_bytes : meta->raw_bytes;
  details.info.serde = meta->serde;
  details.has_sums = !meta->sums.empty();
  details.has_crc32 = meta->crc32.has_value();
  details.metadata_bytes = meta->metadata.size();

  std::vector<RowBatch::Row> rows = {{context->meta_digest(key), 0}};
  std::vector<std::string> names = {meta_user_key(key)};
  for (uint32_t i = 0; !meta->plan.is_inline() && i < meta->plan.segment_count; ++i) {
    rows.push_back({context->segment_digest(key, i), 0});
    names.push_back(segment_user_key(key, i));
  }
  const std::vector<RowResult> found = look_at(context, std::move(rows), deadline);
  for (size_t i = 0; i < found.size(); ++i) {
    if (!found[i].status.ok()) return found[i].status;
    details.records.push_back({names[i], found[i].is_found(), found[i].generation,
                               expires_in(found[i].void_time),
                               found[i].node ? found[i].node->name() : ""});
  }
  return details;
}

}  // namespace aerokv::store
