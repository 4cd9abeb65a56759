// SPDX-License-Identifier: Apache-2.0
// What a namespace allows, read from the info answer of each node, and the segment limits and TTL
// rules that follow. Pure functions over text; the caller asks all nodes and logs the warnings.
//
// How failures are told apart: each carries a LimitsFault, and limits_fault() reads it back from
// the Status. The mapping is one to one for the functions of this header:
//   probe     Code::unavailable  no usable answer: no namespace text, or an error text of the
//   server limit     Code::too_big      the answer names no record limit, or one outside 128 KiB..8
//   MiB ttl       Code::denied, server_result 22   the server would refuse the configured TTL
//   option    Code::invalid      one of our own options is out of range; the message names it
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "aerokv/status.h"
#include "store/plan.h"

namespace aerokv::store {

/// Record limits that a server can have; anything else is a misread answer.
inline constexpr uint64_t kServerRecordBytesMin = 128ULL << 10;
inline constexpr uint64_t kServerRecordBytesMax = 8ULL << 20;

/// Left free in each record for bin names, keys and the server's own overhead.
inline constexpr uint64_t kRecordSafetyBytes = 64ULL << 10;

enum class LimitsFault : uint8_t { none, probe, limit, ttl, option };

/// Which kind of failure `status` is; `status` must come from a function of this header.
LimitsFault limits_fault(const Status& status);

/// One node's view of a namespace.
struct NamespaceFacts {
  std::string name;
  uint64_t record_bytes_max = 0;
  std::string_view record_bytes_source;   ///< the key of the answer, a string literal
  std::optional<uint32_t> nsup_period_s;  ///< 0 = expired records are never purged
  uint32_t default_ttl_s = 0;
  bool allow_ttl_without_nsup = false;
  bool stop_writes = false;
  bool clock_skew_stop_writes = false;
  bool strong_consistency = false;
  uint32_t replication_factor = 0;  ///< the effective one, else the configured one, else 0
};

/// Reads the answer to `namespace/<name>`: "key=value" pairs separated by ';', with or without
/// "namespace/<name>" and a tab in front and a line feed behind. Keys are compared whole. The
/// limit is the first of max-record-size, write-block-size and storage-engine.write-block-size
/// that is present and not 0.
/// Errors: unavailable (probe) with the start of the answer; too_big (limit).
Result<NamespaceFacts> parse_namespace_facts(std::string_view name, std::string_view answer);

/// The preferred segment size where the operator names none and the server allows it.
inline constexpr uint64_t kTargetSegmentBytes = 4ULL << 20;

/// What an operator configured; empty = derived from the server.
struct LimitOverrides {
  std::optional<uint64_t> target_segment_bytes;
  std::optional<uint64_t> max_segment_bytes;
  uint64_t min_segment_bytes = 64ULL << 10;
  std::optional<uint64_t> single_record_threshold_bytes;
};

struct ResolvedLimits {
  SegmentLimits segments;
  uint64_t record_bytes_max = 0;         ///< the smallest of all nodes
  std::string_view record_bytes_source;  ///< the key that it came from
  std::vector<std::string> warnings;     ///< one line for each option that was clamped
};

/// The limits for a cluster whose nodes gave `nodes`; the smallest record limit wins. Options
/// over the limit are clamped, with a warning; defaults are clamped in silence. A target over
/// max_segment_bytes is clamped too: that changes no plan that would have been possible, and makes
/// the others possible. Errors: unavailable (probe) if `nodes` is empty; too_big (limit) if a
/// node's limit is out of range; invalid (option) for an option of 0 bytes.
Result<ResolvedLimits> resolve_limits(const LimitOverrides& overrides,
                                      std::span<const NamespaceFacts> nodes);

/// Whether a write with `ttl_s` can succeed: 0 namespace default, -1 never expires, -2 keep,
/// else seconds. The value is a warning to log, empty if there is none.
/// Errors: denied (ttl) if the namespace has nsup-period 0 and does not allow a TTL then; the
/// message says what to change. invalid (option) if `ttl_s` is below -2 or over ten years.
Result<std::string> check_ttl(int64_t ttl_s, const NamespaceFacts& facts);

}  // namespace aerokv::store
