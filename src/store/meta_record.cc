// SPDX-License-Identifier: Apache-2.0
#include "store/meta_record.h"

#include <array>
#include <limits>
#include <string>

#include "base/limits.h"
#include "store/sums.h"

namespace aerokv::store {
namespace {

using wire::Particle;

Status damaged(std::string_view name, const std::string& why) {
  return {Code::corruption, "meta record: bin " + std::string(name) + ": " + why};
}

bool has_type(const BinView& view, Particle particle) {
  return view.particle == static_cast<uint8_t>(particle);
}

Status wrong_type(const BinView& view, const char* expected) {
  return damaged(view.name,
                 "particle type " + std::to_string(view.particle) + ", expected " + expected);
}

// The bins of the schema found in one record, each at most once.
class Found {
 public:
  Status collect(std::span<const BinView> bins) {
    for (const BinView& view : bins) {
      const size_t slot = slot_of(view.name);
      if (slot == kNames.size()) continue;
      if (slots_[slot] != nullptr) return damaged(view.name, "present twice");
      slots_[slot] = &view;
    }
    return {};
  }

  /// Requires that `name` is in kNames.
  [[nodiscard]] const BinView* find(std::string_view name) const { return slots_[slot_of(name)]; }

 private:
  static constexpr std::array kNames = {
      bin::kVersion,   bin::kState, bin::kSegmentCount, bin::kSegmentBytes, bin::kTotalBytes,
      bin::kCreatedAt, bin::kPin,   bin::kMetadata,     bin::kCrc32,        bin::kSums,
      bin::kPayload,   bin::kSerde, bin::kRawBytes};

  static size_t slot_of(std::string_view name) {
    size_t slot = 0;
    while (slot < kNames.size() && kNames[slot] != name) ++slot;
    return slot;
  }

  std::array<const BinView*, kNames.size()> slots_{};
};

Result<int64_t> integer(const BinView& view, int64_t min, int64_t max) {
  if (!has_type(view, Particle::integer)) return wrong_type(view, "integer");
  if (view.value.size() != 8 || view.value_bytes != 8) {
    return damaged(view.name, std::to_string(view.value_bytes) + " bytes, expected 8");
  }
  const auto value = static_cast<int64_t>(load_be<uint64_t>(view.value.data()));
  if (value < min || value > max) {
    return damaged(view.name, "value " + std::to_string(value) + ", expected " +
                                  std::to_string(min) + " to " + std::to_string(max));
  }
  return value;
}

Result<int64_t> required_integer(const Found& found, std::string_view name, int64_t min,
                                 int64_t max) {
  const BinView* view = found.find(name);
  if (view == nullptr) return damaged(name, "missing");
  return integer(*view, min, max);
}

// A small value whose bytes are all at hand.
Status check_small(const BinView& view, Particle particle, const char* type_name) {
  if (!has_type(view, particle)) return wrong_type(view, type_name);
  if (view.value.size() != view.value_bytes) {
    return damaged(view.name, std::to_string(view.value.size()) + " of " +
                                  std::to_string(view.value_bytes) + " bytes at hand");
  }
  return {};
}

/// Whether the state is "encoded".
Result<bool> decode_state(const Found& found) {
  const BinView* view = found.find(bin::kState);
  if (view == nullptr) return damaged(bin::kState, "missing");
  AEROKV_TRY(check_small(*view, Particle::string, "string"));
  const std::string_view state = as_text(view->value);
  if (state == kStateReady) return false;
  if (state == kStateEncoded) return true;
  return Status(Code::not_found, "meta record: not ready");
}

Status decode_serde(const Found& found, MetaRecord& record) {
  const BinView* view = found.find(bin::kSerde);
  if (view == nullptr) return damaged(bin::kSerde, "missing");
  AEROKV_TRY(check_small(*view, Particle::string, "string"));
  if (view->value.empty() || view->value.size() > kSerdeTagBytesMax) {
    return damaged(bin::kSerde, std::to_string(view->value.size()) + " bytes, expected 1 to " +
                                    std::to_string(kSerdeTagBytesMax));
  }
  record.serde = as_text(view->value);
  const auto raw = required_integer(found, bin::kRawBytes, 0, kChunkBytesMax);
  if (!raw) return raw.error();
  record.raw_bytes = static_cast<uint64_t>(*raw);
  return {};
}

Result<SegmentPlan> decode_plan(const Found& found) {
  const auto count = required_integer(found, bin::kSegmentCount, 1, kSegmentsMax);
  if (!count) return count.error();
  // Inline payloads and segments are both parts of one record.
  const auto segment = required_integer(found, bin::kSegmentBytes, 0, kRecordBytesMax);
  if (!segment) return segment.error();
  const auto total = required_integer(found, bin::kTotalBytes, 0, kChunkBytesMax);
  if (!total) return total.error();
  const SegmentPlan plan{static_cast<uint32_t>(*count), static_cast<uint64_t>(*segment),
                         static_cast<uint64_t>(*total)};
  // Both products stay below 2^40: no overflow.
  const bool has_last_byte = plan.total_bytes <= plan.segment_count * plan.segment_bytes;
  const bool needs_last_segment =
      plan.total_bytes > (plan.segment_count - 1) * plan.segment_bytes ||
      (plan.segment_count == 1 && plan.total_bytes == 0);
  if (!has_last_byte || !needs_last_segment) {
    return damaged(bin::kTotalBytes, "value " + std::to_string(plan.total_bytes) +
                                         " contradicts nseg " + std::to_string(plan.segment_count) +
                                         " of seg_b " + std::to_string(plan.segment_bytes));
  }
  return plan;
}

Result<bool> decode_pin(const Found& found) {
  const BinView* view = found.find(bin::kPin);
  if (view == nullptr) return false;
  if (has_type(*view, Particle::integer)) {
    const auto value = integer(*view, 0, 1);
    if (!value) return value.error();
    return *value == 1;
  }
  AEROKV_TRY(check_small(*view, Particle::boolean, "boolean or integer"));
  if (view->value.size() != 1 || std::to_integer<uint8_t>(view->value[0]) > 1) {
    return damaged(bin::kPin, "not a boolean");
  }
  return view->value[0] == std::byte{1};
}

Status check_payload(const Found& found, const SegmentPlan& plan) {
  const BinView* view = found.find(bin::kPayload);
  if (view == nullptr) return damaged(bin::kPayload, "missing");
  if (!has_type(*view, Particle::blob)) return wrong_type(*view, "blob");
  if (view->value_bytes != plan.total_bytes) {
    return damaged(bin::kPayload, std::to_string(view->value_bytes) + " bytes, tot_b says " +
                                      std::to_string(plan.total_bytes));
  }
  return {};
}

Status decode_optional(const Found& found, MetaRecord& record) {
  if (const BinView* view = found.find(bin::kCreatedAt); view != nullptr) {
    const auto value = integer(*view, 0, std::numeric_limits<int64_t>::max());
    if (!value) return value.error();
    record.created_at = *value;
  }
  if (const BinView* view = found.find(bin::kCrc32); view != nullptr) {
    const auto value = integer(*view, 0, std::numeric_limits<uint32_t>::max());
    if (!value) return value.error();
    record.crc32 = static_cast<uint32_t>(*value);
  }
  if (const BinView* view = found.find(bin::kSums); view != nullptr) {
    AEROKV_TRY(check_small(*view, Particle::blob, "blob"));
    auto sums = decode_sums(view->value, record.plan.segment_count);
    if (!sums) return sums.error().with_context("meta record: bin sums");
    record.sums = *std::move(sums);
  }
  if (const BinView* view = found.find(bin::kMetadata); view != nullptr) {
    AEROKV_TRY(check_small(*view, Particle::blob, "blob"));
    record.metadata.assign(view->value.begin(), view->value.end());
  }
  return {};
}

}  // namespace

Result<MetaRecord> decode_meta_record(std::span<const BinView> bins, PayloadBin payload) {
  Found found;
  AEROKV_TRY(found.collect(bins));
  const auto encoded = decode_state(found);
  if (!encoded) return encoded.error();
  const auto version = required_integer(found, bin::kVersion, kSchemaVersion, kSchemaVersion);
  if (!version) return version.error();
  const auto plan = decode_plan(found);
  if (!plan) return plan.error();
  const auto pin = decode_pin(found);
  if (!pin) return pin.error();
  MetaRecord record;
  record.plan = *plan;
  record.pin = *pin;
  AEROKV_TRY(decode_optional(found, record));
  if (*encoded) AEROKV_TRY(decode_serde(found, record));
  if (plan->is_inline() && payload == PayloadBin::requested) {
    AEROKV_TRY(check_payload(found, *plan));
  }
  return record;
}

uint16_t meta_op_count(const MetaRecord& record) {
  int count = 7;
  if (!record.metadata.empty()) ++count;
  if (record.crc32) ++count;
  if (!record.sums.empty()) ++count;
  if (!record.serde.empty()) count += 2;
  if (record.plan.is_inline()) ++count;
  return static_cast<uint16_t>(count);
}

void encode_meta_record(const MetaRecord& record, wire::UnitWriter& writer) {
  using wire::OpType;
  const SegmentPlan& plan = record.plan;
  writer.op_integer(OpType::write, bin::kVersion, kSchemaVersion);
  writer.op(OpType::write, Particle::string, bin::kState,
            as_bytes(record.serde.empty() ? kStateReady : kStateEncoded));
  writer.op_integer(OpType::write, bin::kSegmentCount, plan.segment_count);
  writer.op_integer(OpType::write, bin::kSegmentBytes, static_cast<int64_t>(plan.segment_bytes));
  writer.op_integer(OpType::write, bin::kTotalBytes, static_cast<int64_t>(plan.total_bytes));
  writer.op_integer(OpType::write, bin::kCreatedAt, record.created_at);
  const std::array pin = {std::byte{record.pin}};
  writer.op(OpType::write, Particle::boolean, bin::kPin, pin);
  if (!record.metadata.empty()) {
    writer.op(OpType::write, Particle::blob, bin::kMetadata, record.metadata);
  }
  if (record.crc32) writer.op_integer(OpType::write, bin::kCrc32, *record.crc32);
  if (!record.sums.empty()) {
    writer.op_header(OpType::write, Particle::blob, bin::kSums, 8 * record.sums.size());
    for (const uint64_t sum : record.sums) writer.u64(sum);
  }
  if (!record.serde.empty()) {
    writer.op(OpType::write, Particle::string, bin::kSerde, as_bytes(record.serde));
    writer.op_integer(OpType::write, bin::kRawBytes, static_cast<int64_t>(record.raw_bytes));
  }
  if (plan.is_inline()) {
    writer.op_header(OpType::write, Particle::blob, bin::kPayload, plan.total_bytes);
  }
}

}  // namespace aerokv::store
