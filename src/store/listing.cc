// SPDX-License-Identifier: Apache-2.0
#include "store/listing.h"

#include <algorithm>
#include <array>
#include <optional>

#include "base/hex.h"
#include "store/meta_record.h"
#include "store/meta_wait.h"
#include "store/partition_scan.h"
#include "store/record_commands.h"
#include "store/row_batch.h"

namespace aerokv::store {
namespace {

// Partitions of one step: a set of a million records gives about 60,000 of them per step.
constexpr uint32_t kPartitionsPerStep = 256;

constexpr std::array kListedBins = {bin::kState,      bin::kSegmentCount, bin::kSegmentBytes,
                                    bin::kTotalBytes, bin::kCreatedAt,    bin::kPin,
                                    bin::kSerde,      bin::kRawBytes};

std::optional<int64_t> integer_of(const ScannedRecord::Bin& found) {
  if (found.particle != static_cast<uint8_t>(wire::Particle::integer) || found.value.size() != 8) {
    return std::nullopt;
  }
  return static_cast<int64_t>(load_be<uint64_t>(found.value.data()));
}

void read_number(std::string_view name, int64_t number, ObjectInfo& object) {
  if (name == bin::kTotalBytes) {
    object.bytes = static_cast<uint64_t>(number);
  } else if (name == bin::kSegmentCount) {
    object.segment_count = static_cast<uint32_t>(number);
  } else if (name == bin::kSegmentBytes) {
    object.segment_bytes = static_cast<uint64_t>(number);
  } else if (name == bin::kCreatedAt) {
    object.created_at = number;
  } else if (name == bin::kPin) {
    object.pin = number != 0;
  } else if (name == bin::kRawBytes && number >= 0) {
    object.raw_bytes = static_cast<uint64_t>(number);
  }
}

/// What a meta record says, unchecked: a listing shows damaged ones too. Nothing for other records.
std::optional<ObjectInfo> object_of(const ScannedRecord& record) {
  ObjectInfo object;
  bool is_meta = false;
  bool is_encoded = false;
  for (const ScannedRecord::Bin& found : record.bins) {
    if (const std::optional<int64_t> number = integer_of(found)) {
      is_meta = is_meta || (found.name == bin::kTotalBytes && *number >= 0);
      read_number(found.name, *number, object);
    } else if (found.name == bin::kPin && found.value.size() == 1) {
      object.pin = found.value[0] != std::byte{0};
    } else if (found.name == bin::kState) {
      is_encoded = as_text(found.value) == kStateEncoded;
      object.ready = is_encoded || as_text(found.value) == kStateReady;
    } else if (found.name == bin::kSerde) {
      object.serde = as_text(found.value);
    }
  }
  if (!is_meta) return std::nullopt;
  if (!is_encoded) {
    object.serde.clear();
    object.raw_bytes = object.bytes;
  }
  const std::optional<RecordName> name = parse_user_key(record.user_key);
  if (name && name->kind == RecordKind::meta) object.key = name->logical_key;
  object.digest = to_hex(record.digest);
  object.generation = record.generation;
  object.expires_in = expires_in(record.void_time);
  return object;
}

std::vector<RowResult> look_at(const std::shared_ptr<Context>& context,
                               std::vector<RowBatch::Row> rows, TimePoint deadline) {
  Latch latch(1);
  std::vector<RowResult> results;
  RowBatch::start(*context->client,
                  {RowBatch::Template::Kind::read_integer, context->options.ns,
                   context->options.set_name, bin::kSum},
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
    const Status status =
        scan_partitions(context, std::move(partitions), {kListedBins, false, kSerdeTagBytesMax},
                        [&](const ScannedRecord& record) {
                          if (std::optional<ObjectInfo> object = object_of(record)) {
                            objects.push_back(*std::move(object));
                          }
                        });
    if (!status.ok()) return status.with_context("list");
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
  details.info.digest = to_hex(wait.get.digest());
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
  std::vector<wire::Digest> digests;
  for (const RowBatch::Row& row : rows) digests.push_back(row.digest);
  const std::vector<RowResult> found = look_at(context, std::move(rows), deadline);
  for (size_t i = 0; i < found.size(); ++i) {
    if (!found[i].status.ok()) return found[i].status;
    RecordInfo& record = details.records.emplace_back();
    record.user_key = names[i];
    record.digest = to_hex(digests[i]);
    record.present = found[i].is_found();
    record.generation = found[i].generation;
    record.expires_in = expires_in(found[i].void_time);
    record.node = found[i].node ? found[i].node->name() : "";
    if (i > 0 && record.present && !meta->sums.empty()) {
      record.sum_agrees = found[i].integer && sum_from_bin(*found[i].integer) == meta->sums[i - 1];
    }
  }
  return details;
}

}  // namespace aerokv::store
