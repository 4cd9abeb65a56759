// SPDX-License-Identifier: Apache-2.0
#include "store/limits.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <limits>

#include "base/limits.h"
#include "wire/result.h"

namespace aerokv::store {
namespace {

constexpr std::array<std::string_view, 3> kRecordLimitKeys = {"max-record-size", "write-block-size",
                                                              "storage-engine.write-block-size"};

// Splits "a=1;b=2" without copying; looks keys up whole.
class Pairs {
 public:
  explicit Pairs(std::string_view text) : text_(text) {}

  /// The value of the first pair with this key.
  [[nodiscard]] std::optional<std::string_view> find(std::string_view key) const {
    std::optional<std::string_view> found;
    walk([&](std::string_view k, std::string_view value) {
      if (k != key) return true;
      found = value;
      return false;
    });
    return found;
  }

  [[nodiscard]] size_t count() const {
    size_t count = 0;
    walk([&](std::string_view, std::string_view) { return ++count > 0; });
    return count;
  }

 private:
  template <typename Visit>
  void walk(Visit visit) const {
    std::string_view rest = text_;
    while (!rest.empty()) {
      const size_t end = std::min(rest.find(';'), rest.size());
      const std::string_view pair = rest.substr(0, end);
      const size_t equals = pair.find('=');
      if (equals != std::string_view::npos && equals > 0 &&
          !visit(pair.substr(0, equals), pair.substr(equals + 1))) {
        return;
      }
      rest.remove_prefix(std::min(end + 1, rest.size()));
    }
  }

  std::string_view text_;
};

template <typename T>
std::optional<T> parse_number(std::string_view text) {
  T value{};
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return std::nullopt;
  return value;
}

std::string printable_start(std::string_view text) {
  std::string out;
  for (const char c : text.substr(0, 80)) out += (c >= ' ' && c <= '~') ? c : '?';
  return out + (text.size() > 80 ? "..." : "");
}

bool starts_with_word(std::string_view text, std::string_view upper) {
  return text.size() >= upper.size() &&
         std::equal(upper.begin(), upper.end(), text.begin(),
                    [](char u, char c) { return u == c || (u | 0x20) == c; });
}

std::string_view strip_echo(std::string_view answer) {
  const size_t tab = answer.find('\t');
  if (tab != std::string_view::npos) answer.remove_prefix(tab + 1);
  while (answer.ends_with('\n') || answer.ends_with('\r')) answer.remove_suffix(1);
  return answer;
}

bool is_usable(std::string_view text, const Pairs& pairs) {
  if (starts_with_word(text, "ERROR") || starts_with_word(text, "FAIL")) return false;
  return pairs.count() > 0 && pairs.find("type") != "unknown";
}

std::string in_namespace(std::string_view name) {
  return "namespace " + std::string(name) + ": ";
}

Status find_record_limit(const Pairs& pairs, NamespaceFacts& facts) {
  for (const std::string_view key : kRecordLimitKeys) {
    const std::optional<std::string_view> text = pairs.find(key);
    if (!text) continue;
    const std::optional<uint64_t> value = parse_number<uint64_t>(*text);
    if (value == 0U) continue;
    if (!value || *value < kServerRecordBytesMin || *value > kServerRecordBytesMax) {
      return {Code::too_big, in_namespace(facts.name) + std::string(key) + "=" +
                                 printable_start(*text) + ", expected " +
                                 std::to_string(kServerRecordBytesMin) + " to " +
                                 std::to_string(kServerRecordBytesMax)};
    }
    facts.record_bytes_max = *value;
    facts.record_bytes_source = key;
    return {};
  }
  return {Code::too_big, in_namespace(facts.name) +
                             "the server names neither max-record-size nor write-block-size; set "
                             "max-record-size"};
}

bool is_true(const Pairs& pairs, std::string_view key) {
  return pairs.find(key) == "true";
}

template <typename T>
std::optional<T> number_of(const Pairs& pairs, std::string_view key) {
  const std::optional<std::string_view> text = pairs.find(key);
  return text ? parse_number<T>(*text) : std::nullopt;
}

Status check_not_zero(const char* option, std::optional<uint64_t> value) {
  if (value != 0U) return {};
  return {Code::invalid, std::string(option) + ": 0, expected at least 1"};
}

// Clamps what the operator wants, or the default where there is no wish.
class Clamp {
 public:
  explicit Clamp(std::vector<std::string>& warnings) : warnings_(warnings) {}

  uint64_t operator()(const char* option, std::optional<uint64_t> wish, uint64_t fallback,
                      uint64_t limit, const std::string& reason) {
    if (wish && *wish > limit) {
      warnings_.push_back(std::string(option) + " " + std::to_string(*wish) + " lowered to " +
                          std::to_string(limit) + ": " + reason);
    }
    return std::min(wish.value_or(fallback), limit);
  }

 private:
  std::vector<std::string>& warnings_;
};

}  // namespace

LimitsFault limits_fault(const Status& status) {
  switch (status.code()) {
    case Code::ok:
      return LimitsFault::none;
    case Code::too_big:
      return LimitsFault::limit;
    case Code::denied:
      return LimitsFault::ttl;
    case Code::invalid:
      return LimitsFault::option;
    default:
      return LimitsFault::probe;
  }
}

Result<NamespaceFacts> parse_namespace_facts(std::string_view name, std::string_view answer) {
  const std::string_view text = strip_echo(answer);
  const Pairs pairs(text);
  if (!is_usable(text, pairs)) {
    return Status(Code::unavailable, in_namespace(name) + "the server answered \"" +
                                         printable_start(text) + "\", expected its settings");
  }
  NamespaceFacts facts;
  facts.name = std::string(name);
  AEROKV_TRY(find_record_limit(pairs, facts));
  facts.nsup_period_s = number_of<uint32_t>(pairs, "nsup-period");
  facts.default_ttl_s = number_of<uint32_t>(pairs, "default-ttl").value_or(0);
  facts.allow_ttl_without_nsup = is_true(pairs, "allow-ttl-without-nsup");
  facts.stop_writes = is_true(pairs, "stop_writes");
  facts.clock_skew_stop_writes = is_true(pairs, "clock_skew_stop_writes");
  facts.strong_consistency = is_true(pairs, "strong-consistency");
  const auto configured = number_of<uint32_t>(pairs, "replication-factor").value_or(0);
  facts.replication_factor =
      number_of<uint32_t>(pairs, "effective_replication_factor").value_or(configured);
  return facts;
}

Result<ResolvedLimits> resolve_limits(const LimitOverrides& overrides,
                                      std::span<const NamespaceFacts> nodes) {
  if (nodes.empty()) {
    return Status(Code::unavailable, "record limit: no node answered");
  }
  AEROKV_TRY(check_not_zero("target_segment_bytes", overrides.target_segment_bytes));
  AEROKV_TRY(check_not_zero("max_segment_bytes", overrides.max_segment_bytes));
  AEROKV_TRY(
      check_not_zero("single_record_threshold_bytes", overrides.single_record_threshold_bytes));
  const NamespaceFacts& smallest = *std::min_element(
      nodes.begin(), nodes.end(), [](const NamespaceFacts& a, const NamespaceFacts& b) {
        return a.record_bytes_max < b.record_bytes_max;
      });
  if (smallest.record_bytes_max < kServerRecordBytesMin) {
    return Status(Code::too_big, in_namespace(smallest.name) + "record limit " +
                                     std::to_string(smallest.record_bytes_max) +
                                     ", expected at least " +
                                     std::to_string(kServerRecordBytesMin));
  }
  ResolvedLimits resolved;
  resolved.record_bytes_max = smallest.record_bytes_max;
  resolved.record_bytes_source = smallest.record_bytes_source;
  const uint64_t effective = smallest.record_bytes_max - kRecordSafetyBytes;
  const std::string by_server = std::string(smallest.record_bytes_source) + " " +
                                std::to_string(smallest.record_bytes_max) + " of namespace " +
                                smallest.name + " less " + std::to_string(kRecordSafetyBytes);
  SegmentLimits& out = resolved.segments;
  Clamp clamp(resolved.warnings);
  out.max_bytes =
      clamp("max_segment_bytes", overrides.max_segment_bytes, effective, effective, by_server);
  const std::string by_max =
      out.max_bytes == effective ? by_server : "max_segment_bytes " + std::to_string(out.max_bytes);
  out.target_bytes = clamp("target_segment_bytes", overrides.target_segment_bytes,
                           kTargetSegmentBytes, out.max_bytes, by_max);
  out.single_record_bytes =
      clamp("single_record_threshold_bytes", overrides.single_record_threshold_bytes,
            out.target_bytes, out.max_bytes, by_max);
  out.min_bytes = overrides.min_segment_bytes;
  return resolved;
}

Result<std::string> check_ttl(int64_t ttl_s, const NamespaceFacts& facts) {
  if (ttl_s < -2 || ttl_s > int64_t{kTtlSecondsMax}) {
    return Status(Code::invalid, "ttl: " + std::to_string(ttl_s) +
                                     " seconds, expected -2 (keep), -1 (never), 0 (namespace "
                                     "default) or 1 to " +
                                     std::to_string(kTtlSecondsMax));
  }
  if (ttl_s <= 0 || facts.nsup_period_s != 0U) return std::string();
  if (facts.allow_ttl_without_nsup) {
    return in_namespace(facts.name) +
           "nsup-period is 0: records expire but are never purged, so the namespace fills up; set "
           "nsup-period above 0";
  }
  return Status(Code::denied,
                in_namespace(facts.name) + "a TTL of " + std::to_string(ttl_s) +
                    " seconds is refused while nsup-period is 0; set nsup-period of the namespace "
                    "above 0 (for example 120), or use a TTL of 0 or -1",
                wire::result::kForbidden);
}

}  // namespace aerokv::store
