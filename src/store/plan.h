// SPDX-License-Identifier: Apache-2.0
// The segment plan: how many records an object of a given size takes, and which bytes go where.
// A pure function, the same for writers and readers of every version of the schema.
#pragma once

#include <algorithm>
#include <cstdint>

#include "aerokv/status.h"

namespace aerokv::store {

/// What the planner may use. resolve_limits() in limits.h makes one from the server's limits.
struct SegmentLimits {
  uint64_t target_bytes = 0;         ///< preferred segment size
  uint64_t max_bytes = 0;            ///< no segment is larger
  uint64_t min_bytes = 0;            ///< smaller segments are avoided when one record holds all
  uint64_t single_record_bytes = 0;  ///< objects up to this size are one record
};

/// The layout of one object. Invariants for total_bytes > 0:
/// (segment_count - 1) * segment_bytes < total_bytes <= segment_count * segment_bytes.
/// An empty object has one segment of 0 bytes.
struct SegmentPlan {
  uint32_t segment_count = 1;
  uint64_t segment_bytes = 0;
  uint64_t total_bytes = 0;

  /// True if the payload lies in the meta record itself.
  [[nodiscard]] bool is_inline() const { return segment_count == 1; }

  /// Offset of segment `index` in the object. Requires index < segment_count.
  [[nodiscard]] uint64_t offset(uint32_t index) const { return index * segment_bytes; }

  /// Bytes of segment `index`; only the last one may be shorter than segment_bytes.
  /// Requires index < segment_count.
  [[nodiscard]] uint64_t bytes(uint32_t index) const {
    return std::min(segment_bytes, total_bytes - offset(index));
  }

  friend bool operator==(const SegmentPlan&, const SegmentPlan&) = default;
};

/// One record if the payload is within single_record_bytes and max_bytes; else
/// ceil(payload / target) segments of equal size, the last one shorter. If those would be smaller
/// than min_bytes and one record can hold the payload, one record.
/// Errors: invalid if the payload is over kChunkBytesMax, a limit is 0, the plan needs more than
/// kSegmentsMax segments, or target_bytes leads to segments over max_bytes.
Result<SegmentPlan> plan_segments(uint64_t payload_bytes, const SegmentLimits& limits);

}  // namespace aerokv::store
