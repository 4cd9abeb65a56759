// SPDX-License-Identifier: Apache-2.0
// What every fuzz target needs: bytes as the decoders see them, and a check that is never
// compiled out.
#pragma once

#include <cstddef>
#include <cstdint>

#include "aerokv/bytes.h"

namespace aerokv::fuzz {

/// Ends the program as a crash, so that libFuzzer keeps the input.
inline void require(bool condition) {
  if (!condition) __builtin_trap();
}

inline Bytes input(const uint8_t* data, size_t size) {
  return {reinterpret_cast<const std::byte*>(data), size};
}

/// Takes one byte from the front of `bytes`; 0 if there is none.
inline uint8_t take(Bytes& bytes) {
  if (bytes.empty()) return 0;
  const auto value = std::to_integer<uint8_t>(bytes.front());
  bytes = bytes.subspan(1);
  return value;
}

}  // namespace aerokv::fuzz
