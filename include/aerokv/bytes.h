// SPDX-License-Identifier: Apache-2.0
// Byte views and byte-order access: the one way this project looks at memory.
#pragma once

#include <bit>
#include <cstddef>
#include <cstdint>
#include <cstring>
#include <span>
#include <string_view>
#include <type_traits>

namespace aerokv {

/// A borrowed, read-only run of bytes. Whoever makes one says how long it stays valid.
using Bytes = std::span<const std::byte>;

/// A borrowed, writable run of bytes.
using MutableBytes = std::span<std::byte>;

/// The bytes of `text`, valid as long as `text` is.
inline Bytes as_bytes(std::string_view text) {
  return std::as_bytes(std::span<const char>(text.data(), text.size()));
}

/// `bytes` seen as text, valid as long as `bytes` are. No encoding is checked.
inline std::string_view as_text(Bytes bytes) {
  return {reinterpret_cast<const char*>(bytes.data()), bytes.size()};
}

template <typename T>
constexpr T byte_swap(T value) {
  static_assert(std::is_unsigned_v<T>);
  if constexpr (sizeof(T) == 1) {
    return value;
  } else if constexpr (sizeof(T) == 2) {
    return __builtin_bswap16(value);
  } else if constexpr (sizeof(T) == 4) {
    return __builtin_bswap32(value);
  } else {
    static_assert(sizeof(T) == 8);
    return __builtin_bswap64(value);
  }
}

/// Reads a big-endian unsigned integer at `at`; the caller has checked that sizeof(T) bytes exist.
template <typename T>
T load_be(const std::byte* at) {
  T value;
  std::memcpy(&value, at, sizeof(T));
  return std::endian::native == std::endian::little ? byte_swap(value) : value;
}

/// Writes a big-endian unsigned integer at `at`; the caller has checked that sizeof(T) bytes exist.
template <typename T>
void store_be(std::byte* at, T value) {
  if (std::endian::native == std::endian::little) value = byte_swap(value);
  std::memcpy(at, &value, sizeof(T));
}

/// Little-endian twins; the protocol uses them for partition ids only.
template <typename T>
T load_le(const std::byte* at) {
  T value;
  std::memcpy(&value, at, sizeof(T));
  return std::endian::native == std::endian::big ? byte_swap(value) : value;
}

template <typename T>
void store_le(std::byte* at, T value) {
  if (std::endian::native == std::endian::big) value = byte_swap(value);
  std::memcpy(at, &value, sizeof(T));
}

}  // namespace aerokv
