// SPDX-License-Identifier: Apache-2.0
// Conversions of single numbers, on their bits: the reference that every kernel is compared with.
// Integer arithmetic only. docs/formats/fp8.md says the same in words.
#pragma once

#include <bit>
#include <cstdint>

#include "codec/fp8.h"

namespace aerokv::codec {

/// `value` / 2^`shift`, to nearest, ties to even. Requires shift >= 1; any large shift gives 0.
constexpr uint32_t shift_to_even(uint32_t value, uint32_t shift) {
  if (shift > 31) return 0;
  const uint32_t whole = value >> shift;
  const uint32_t rest = value & ((1U << shift) - 1);
  const uint32_t half = 1U << (shift - 1);
  const bool is_up = rest > half || (rest == half && (whole & 1U) != 0);
  return whole + (is_up ? 1U : 0U);
}

constexpr uint32_t bf16_to_f32_bits(uint16_t value) {
  return uint32_t{value} << 16;
}

/// Exact; NaN becomes quiet and keeps sign and payload.
constexpr uint32_t f16_to_f32_bits(uint16_t value) {
  const uint32_t sign = (uint32_t{value} & 0x8000U) << 16;
  const uint32_t magnitude = value & 0x7fffU;
  const uint32_t fraction = magnitude & 0x3ffU;
  if (magnitude > 0x7c00) return sign | 0x7fc00000U | (fraction << 13);
  if (magnitude == 0x7c00) return sign | 0x7f800000U;
  if (magnitude >= 0x400) return sign | ((magnitude << 13) + (112U << 23));
  if (fraction == 0) return sign;
  // Subnormal: fraction * 2^-24, with its leading one moved to where float32 hides it.
  const auto width = static_cast<uint32_t>(std::bit_width(fraction));
  return sign | ((102 + width) << 23) | ((fraction << (24 - width)) & 0x7fffffU);
}

/// To nearest even. Every NaN becomes 0xffff.
constexpr uint16_t f32_to_bf16_bits(uint32_t value) {
  if ((value & 0x7fffffffU) > 0x7f800000U) return 0xffff;
  return static_cast<uint16_t>((value + 0x7fffU + ((value >> 16) & 1U)) >> 16);
}

/// To nearest even. NaN becomes quiet and keeps its sign and the front of its payload.
constexpr uint16_t f32_to_f16_bits(uint32_t value) {
  const uint32_t sign = (value >> 16) & 0x8000U;
  const uint32_t magnitude = value & 0x7fffffffU;
  uint32_t result = 0;
  if (magnitude > 0x7f800000U) {
    result = 0x7e00U | ((magnitude >> 13) & 0x3ffU);
  } else if (magnitude >= 0x477ff000U) {  // from halfway between 65,504 and 65,536
    result = 0x7c00U;
  } else if (magnitude >= 0x38800000U) {
    result = shift_to_even(magnitude - (112U << 23), 13);
  } else {
    const uint32_t exponent = magnitude >> 23;
    result = shift_to_even((magnitude & 0x7fffffU) | 0x800000U, 126 - exponent);
  }
  return static_cast<uint16_t>(sign | result);
}

/// What the two formats differ in.
struct Fp8Shape {
  uint32_t fraction_bits;
  uint32_t bias;
  uint32_t largest;        ///< code of the largest number
  uint32_t overflow_from;  ///< float32 bits above which the nearest code is past `largest`
};
inline constexpr Fp8Shape kFp8Shapes[] = {
    {3, 7, 0x7e, 0x43e80000U},    // 464, halfway between 448 and the 480 that is NaN's code
    {2, 15, 0x7b, 0x476fffffU}};  // just below 61,440, which is halfway to 65,536

constexpr uint8_t f32_to_fp8(uint32_t value, Fp8Format format, Overflow overflow) {
  const Fp8Shape& shape = kFp8Shapes[static_cast<size_t>(format)];
  const uint32_t sign = (value >> 24) & 0x80U;
  const uint32_t magnitude = value & 0x7fffffffU;
  const uint32_t exponent = magnitude >> 23;
  const uint32_t cut = 23 - shape.fraction_bits;
  uint32_t result = 0;
  if (magnitude > 0x7f800000U) {
    result = 0x7f;
  } else if (magnitude > shape.overflow_from) {
    result = format == Fp8Format::e5m2 ? 0x7cU : overflow == Overflow::nan ? 0x7fU : shape.largest;
  } else if (exponent > 127 - shape.bias) {
    result = shift_to_even(magnitude - ((127 - shape.bias) << 23), cut);
  } else {
    // Subnormal in 8 bits: a multiple of 2^(1 - bias - fraction_bits). Subnormal float32 numbers
    // are so far below that a leading one too many does not matter.
    result = shift_to_even((magnitude & 0x7fffffU) | 0x800000U, cut + 128 - shape.bias - exponent);
  }
  return static_cast<uint8_t>(sign | result);
}

constexpr uint32_t fp8_to_f32(uint8_t code, Fp8Format format) {
  const Fp8Shape& shape = kFp8Shapes[static_cast<size_t>(format)];
  const uint32_t sign = (uint32_t{code} & 0x80U) << 24;
  const uint32_t magnitude = code & 0x7fU;
  const uint32_t fraction = magnitude & ((1U << shape.fraction_bits) - 1);
  if (format == Fp8Format::e5m2 && magnitude == 0x7c) return sign | 0x7f800000U;
  if (magnitude > (format == Fp8Format::e5m2 ? 0x7cU : shape.largest)) {
    return sign | 0x7fc00000U | (fraction << (23 - shape.fraction_bits));
  }
  if (magnitude == fraction) {
    if (fraction == 0) return sign;
    const auto width = static_cast<uint32_t>(std::bit_width(fraction));
    const uint32_t exponent = 127 - shape.bias - shape.fraction_bits + width;
    return sign | (exponent << 23) | ((fraction << (24 - width)) & 0x7fffffU);
  }
  return sign | ((magnitude << (23 - shape.fraction_bits)) + ((127 - shape.bias) << 23));
}

}  // namespace aerokv::codec
