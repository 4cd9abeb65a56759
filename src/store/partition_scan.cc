// SPDX-License-Identifier: Apache-2.0
#include "store/partition_scan.h"

#include <algorithm>
#include <map>
#include <random>

#include "wire/request.h"

namespace aerokv::store {
namespace {

constexpr uint32_t kAttemptsMax = 5;
constexpr std::chrono::seconds kQueryTimeout{30};
constexpr size_t kBinsMax = 16;  // of one record: more than any form asks for

/// Reads some partitions of the set from one node.
class PartitionQuery final : public client::Command {
 public:
  PartitionQuery(const Context& context, const ScanForm& form, client::NodePtr node,
                 std::vector<uint16_t> asked, uint64_t task_id, Latch& latch)
      : context_(context),
        form_(form),
        task_id_(task_id),
        latch_(latch),
        partitions(std::move(asked)) {
    plan.node = std::move(node);
    plan.kind = wire::ReplyKind::query;
    plan.deadline = SteadyClock::now() + kQueryTimeout;
  }

  Status encode(uint32_t, Encoded& request) override {
    std::vector<wire::BinOp> bins;
    for (const std::string_view name : form_.bins) bins.push_back(wire::BinOp::read(name));
    wire::QueryRequest query;
    query.ns = context_.options.ns;
    query.set = context_.options.set_name;
    query.header_only = form_.header_only;
    query.bins = bins;
    query.task_id = task_id_;
    query.partitions = partitions;
    return wire::encode_query(query, request.head);
  }

  [[nodiscard]] uint8_t result_code() const override { return wire::result::kOk; }

  Status unit(const wire::MessageHeader& header) override {
    current_ = {};
    const bool is_partition = (header.info3 & wire::info3::kPartitionDone) != 0;
    is_record_ = !is_partition && (header.info3 & wire::info3::kLast) == 0 &&
                 header.result_code == wire::result::kOk;
    if (is_record_) {
      current_.generation = header.generation;
      current_.void_time = header.record_ttl;
    } else if (is_partition && header.result_code != wire::result::kOk) {
      unavailable.push_back(static_cast<uint16_t>(header.generation));
    } else {
      final_code = header.result_code;
    }
    return {};
  }

  Status field(const wire::Field& field) override {
    if (field.type == static_cast<uint8_t>(wire::FieldType::digest) &&
        field.value.size() == kDigestBytes) {
      std::copy(field.value.begin(), field.value.end(), current_.digest.begin());
    } else if (field.type == static_cast<uint8_t>(wire::FieldType::user_key) &&
               field.value.size() > 1) {
      current_.user_key = as_text(field.value.subspan(1));
    }
    return {};
  }

  wire::ValueTarget value_target(std::string_view bin, uint8_t particle, uint64_t bytes) override {
    if (current_.bins.size() >= kBinsMax) return wire::ValueTarget::skip();
    if (bytes <= std::min(form_.value_bytes_max, wire::kCopiedValueBytesMax)) {
      return wire::ValueTarget::copy();
    }
    current_.bins.push_back({std::string(bin), particle, {}, bytes});
    return wire::ValueTarget::skip();
  }

  Status value(std::string_view bin, uint8_t particle, Bytes value) override {
    current_.bins.push_back(
        {std::string(bin), particle, {value.begin(), value.end()}, value.size()});
    return {};
  }

  Status unit_end() override {
    if (is_record_) records.push_back(std::move(current_));
    return {};
  }

  void done(Status end) override {
    status = std::move(end);
    latch_.count_down();
  }

 private:
  const Context& context_;
  const ScanForm& form_;
  const uint64_t task_id_;
  Latch& latch_;
  ScannedRecord current_;
  bool is_record_ = false;

 public:
  // Results, read after the latch.
  const std::vector<uint16_t> partitions;
  std::vector<ScannedRecord> records;
  std::vector<uint16_t> unavailable;
  uint8_t final_code = 0;
  Status status;
};

uint64_t random_task_id() {
  thread_local std::mt19937_64 generator{std::random_device{}()};
  return generator();
}

/// Reads `partitions` once. Returns those that no node could give.
std::vector<uint16_t> query_partitions(Context& context, const std::vector<uint16_t>& partitions,
                                       const ScanForm& form, uint32_t attempt,
                                       const std::function<void(ScannedRecord&&)>& visit,
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
  std::vector<std::unique_ptr<PartitionQuery>> queries;
  std::vector<client::Command*> commands;
  for (auto& [node, list] : by_node) {
    queries.push_back(std::make_unique<PartitionQuery>(context, form, node, std::move(list),
                                                       random_task_id(), latch));
    commands.push_back(queries.back().get());
  }
  if (commands.empty()) return failed;
  client.submit(commands);
  latch.wait();
  for (const std::unique_ptr<PartitionQuery>& query : queries) {
    Status status = query->status;
    if (status.ok()) status = wire::status_from_result(query->final_code, "scan");
    if (!status.ok()) {  // what it sent before is sent again by the next attempt
      failed.insert(failed.end(), query->partitions.begin(), query->partitions.end());
      failure = std::move(status);
      continue;
    }
    for (ScannedRecord& record : query->records) visit(std::move(record));
    failed.insert(failed.end(), query->unavailable.begin(), query->unavailable.end());
  }
  return failed;
}

}  // namespace

std::vector<BinView> ScannedRecord::views() const {
  std::vector<BinView> out;
  out.reserve(bins.size());
  for (const Bin& bin : bins) out.push_back({bin.name, bin.particle, bin.value, bin.value_bytes});
  return out;
}

Status scan_partitions(Context& context, std::vector<uint16_t> partitions, const ScanForm& form,
                       const std::function<void(ScannedRecord&&)>& visit) {
  Status failure(Code::unavailable, "scan: partitions are unavailable");
  for (uint32_t attempt = 0; attempt < kAttemptsMax && !partitions.empty(); ++attempt) {
    partitions = query_partitions(context, partitions, form, attempt, visit, failure);
    if (!partitions.empty()) context.client->refresh_soon();
  }
  return partitions.empty() ? Status() : failure;
}

int64_t expires_in(uint32_t void_time) {
  if (void_time == 0) return -1;
  return std::max<int64_t>(0, int64_t{void_time} + kServerEpochSeconds - unix_seconds());
}

}  // namespace aerokv::store
