// SPDX-License-Identifier: Apache-2.0
#include "store/plan.h"

#include <string>

#include "base/limits.h"

namespace aerokv::store {
namespace {

uint64_t divide_up(uint64_t dividend, uint64_t divisor) {
  return dividend / divisor + (dividend % divisor != 0 ? 1 : 0);
}

Status over(const std::string& what, uint64_t observed, uint64_t limit) {
  return {Code::invalid, "plan segments: " + what + " " + std::to_string(observed) + ", limit " +
                             std::to_string(limit)};
}

}  // namespace

Result<SegmentPlan> plan_segments(uint64_t payload_bytes, const SegmentLimits& limits) {
  if (payload_bytes > kChunkBytesMax) return over("payload bytes", payload_bytes, kChunkBytesMax);
  if (limits.target_bytes == 0 || limits.max_bytes == 0) {
    return Status(Code::invalid, "plan segments: target and maximum must be at least 1");
  }
  const SegmentPlan single{1, payload_bytes, payload_bytes};
  const bool fits_one_record = payload_bytes <= limits.max_bytes;
  // Holds for an empty payload too, whatever the limits.
  if (fits_one_record && payload_bytes <= limits.single_record_bytes) return single;
  const uint64_t count = divide_up(payload_bytes, limits.target_bytes);
  const uint64_t segment_bytes = divide_up(payload_bytes, count);
  if (segment_bytes < limits.min_bytes && fits_one_record) return single;
  if (segment_bytes > limits.max_bytes) {
    return over(
        "target_segment_bytes " + std::to_string(limits.target_bytes) + " gives segments of bytes",
        segment_bytes, limits.max_bytes);
  }
  if (count > kSegmentsMax) return over("segment count", count, kSegmentsMax);
  return SegmentPlan{static_cast<uint32_t>(count), segment_bytes, payload_bytes};
}

}  // namespace aerokv::store
