// SPDX-License-Identifier: Apache-2.0
#include "base/hex.h"

namespace aerokv {
namespace {

constexpr std::string_view kDigits = "0123456789abcdef";

}  // namespace

std::string to_hex(Bytes bytes) {
  std::string text;
  text.reserve(2 * bytes.size());
  for (const std::byte byte : bytes) {
    text += kDigits[std::to_integer<size_t>(byte) >> 4];
    text += kDigits[std::to_integer<size_t>(byte) & 15];
  }
  return text;
}

std::optional<std::string> from_hex(std::string_view digits) {
  if (digits.size() % 2 != 0) return std::nullopt;
  std::string bytes;
  bytes.reserve(digits.size() / 2);
  for (size_t i = 0; i < digits.size(); i += 2) {
    const size_t high = kDigits.find(digits[i]);
    const size_t low = kDigits.find(digits[i + 1]);
    if (high == std::string_view::npos || low == std::string_view::npos) return std::nullopt;
    bytes += static_cast<char>(high * 16 + low);
  }
  return bytes;
}

}  // namespace aerokv
