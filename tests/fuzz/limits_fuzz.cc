// SPDX-License-Identifier: Apache-2.0
// A namespace's info text, and what follows from it.
#include "fuzz.h"
#include "store/limits.h"

using aerokv::fuzz::require;
namespace store = aerokv::store;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text = aerokv::as_text(aerokv::fuzz::input(data, size));
  const auto facts = store::parse_namespace_facts("lmcache", text);
  if (!facts) {
    const store::LimitsFault fault = store::limits_fault(facts.error());
    require(fault == store::LimitsFault::probe || fault == store::LimitsFault::limit);
    require(facts.error().message().size() < 400);
    return 0;
  }
  require(facts->record_bytes_max >= store::kServerRecordBytesMin);
  require(facts->record_bytes_max <= store::kServerRecordBytesMax);
  for (const int64_t ttl : {-3, -2, -1, 0, 1, 86400}) {
    const auto checked = store::check_ttl(ttl, *facts);
    if (ttl <= 0 && ttl >= -2) require(checked.has_value());
  }
  const auto limits = store::resolve_limits({}, {&*facts, 1});
  require(limits.has_value());
  require(limits->segments.max_bytes == facts->record_bytes_max - store::kRecordSafetyBytes);
  for (const uint64_t payload : {uint64_t{0}, uint64_t{1}, uint64_t{1} << 20, uint64_t{80} << 20}) {
    const auto plan = store::plan_segments(payload, limits->segments);
    require(plan && plan->segment_bytes <= limits->segments.max_bytes);
  }
  return 0;
}
