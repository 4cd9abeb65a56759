// SPDX-License-Identifier: Apache-2.0
#include "store/keys.h"

#include <charconv>

#include "base/limits.h"

namespace aerokv::store {
namespace {

constexpr std::string_view kMetaSuffix = "|m";
constexpr std::string_view kSegmentInfix = "|s|";

std::optional<uint32_t> parse_index(std::string_view digits) {
  const bool is_canonical = digits == "0" || (!digits.empty() && digits[0] != '0');
  uint32_t index = 0;
  const auto [end, error] = std::from_chars(digits.data(), digits.data() + digits.size(), index);
  if (!is_canonical || error != std::errc() || end != digits.data() + digits.size()) {
    return std::nullopt;
  }
  return index;
}

}  // namespace

Status check_logical_key(std::string_view key) {
  if (key.empty()) return {Code::invalid, "key: 0 bytes, expected at least 1"};
  if (key.size() > kKeyBytesMax) {
    return {Code::invalid,
            "key: " + std::to_string(key.size()) + " bytes, limit " + std::to_string(kKeyBytesMax)};
  }
  return {};
}

std::string meta_user_key(std::string_view key) {
  std::string user_key;
  user_key.reserve(key.size() + kMetaSuffix.size());
  user_key.append(key).append(kMetaSuffix);
  return user_key;
}

std::string segment_user_key(std::string_view key, uint32_t segment_index) {
  char digits[10];
  const auto [end, error] = std::to_chars(digits, digits + sizeof(digits), segment_index);
  static_cast<void>(error);  // ten digits hold every uint32_t
  std::string user_key;
  user_key.reserve(key.size() + kSegmentInfix.size() + sizeof(digits));
  user_key.append(key).append(kSegmentInfix).append(digits, end);
  return user_key;
}

std::optional<RecordName> parse_user_key(std::string_view user_key) {
  RecordName name;
  if (user_key.ends_with(kMetaSuffix)) {
    name.logical_key = user_key.substr(0, user_key.size() - kMetaSuffix.size());
  } else {
    const size_t bar = user_key.rfind('|');
    if (bar == std::string_view::npos || !user_key.substr(0, bar + 1).ends_with(kSegmentInfix)) {
      return std::nullopt;
    }
    const std::optional<uint32_t> index = parse_index(user_key.substr(bar + 1));
    if (!index) return std::nullopt;
    name.kind = RecordKind::segment;
    name.segment_index = *index;
    name.logical_key = user_key.substr(0, bar + 1 - kSegmentInfix.size());
  }
  if (!check_logical_key(name.logical_key)) return std::nullopt;
  return name;
}

}  // namespace aerokv::store
