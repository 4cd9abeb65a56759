// SPDX-License-Identifier: Apache-2.0
// The reference, one element after the other.
#include "codec/fp8_scalar.h"

#include <bit>
#include <cmath>
#include <cstring>
#include <type_traits>

#include "codec/fp8_kernels.h"

namespace aerokv::codec {
namespace {

template <typename T>
T load(const void* base, size_t index) {
  T value;
  std::memcpy(&value, static_cast<const std::byte*>(base) + index * sizeof(T), sizeof(T));
  return value;
}

template <typename T>
void store(void* base, size_t index, T value) {
  std::memcpy(static_cast<std::byte*>(base) + index * sizeof(T), &value, sizeof(T));
}

// Each type: the unsigned integer that holds it, and its way to and from the bits of a float32.
struct Bf16 {
  using Bits = uint16_t;
  static constexpr uint32_t widen(Bits value) { return bf16_to_f32_bits(value); }
  static constexpr Bits narrow(uint32_t value) { return f32_to_bf16_bits(value); }
};
struct F16 {
  using Bits = uint16_t;
  static constexpr uint32_t widen(Bits value) { return f16_to_f32_bits(value); }
  static constexpr Bits narrow(uint32_t value) { return f32_to_f16_bits(value); }
};
struct F32 {
  using Bits = uint32_t;
  static constexpr uint32_t widen(Bits value) { return value; }
  static constexpr Bits narrow(uint32_t value) { return value; }
};

template <typename Source, Fp8Format format, Overflow overflow>
void encode(const void* src, void* dst, size_t count, bool /*is_streaming*/) {
  for (size_t i = 0; i < count; ++i) {
    const uint32_t value = Source::widen(load<typename Source::Bits>(src, i));
    store(dst, i, f32_to_fp8(value, format, overflow));
  }
}

// Unscaled, torch gives the NaN of bfloat16 no sign.
template <Fp8Format format, typename Target>
constexpr auto decode_one(uint8_t code) {
  const uint32_t value = fp8_to_f32(code, format);
  if constexpr (std::is_same_v<Target, Bf16>) {
    if ((value & 0x7fffffffU) > 0x7f800000U) return uint16_t{0x7fc0};
  }
  return Target::narrow(value);
}

template <Fp8Format format, typename Target>
void decode(const void* src, void* dst, size_t count, bool /*is_streaming*/) {
  for (size_t i = 0; i < count; ++i) {
    store(dst, i, decode_one<format, Target>(load<uint8_t>(src, i)));
  }
}

template <typename Source>
unsigned abs_max(const void* src, size_t count) {
  using Bits = decltype(Source::narrow(0));
  constexpr Bits kMagnitude = static_cast<Bits>(~Bits{0}) >> 1;
  Bits largest = 0;  // magnitudes order as their bits do, NaN above all
  for (size_t i = 0; i < count; ++i) {
    const Bits magnitude = load<Bits>(src, i) & kMagnitude;
    if (magnitude > largest) largest = magnitude;
  }
  return largest;
}

// What x86-64 makes of an operation that has no answer. Other processors choose other bits.
constexpr uint32_t kNoAnswer = 0xffc00000U;
constexpr uint32_t kQuiet = 0x400000U;

uint32_t bits_of(float value) {
  return std::bit_cast<uint32_t>(value);
}

template <typename Source>
void encode_scaled(const void* src, void* dst, size_t count, bool /*is_streaming*/, float scale) {
  for (size_t i = 0; i < count; ++i) {
    const auto value = std::bit_cast<float>(Source::widen(load<typename Source::Bits>(src, i)));
    uint32_t quotient = bits_of(value);
    if (!std::isnan(value)) {
      const float divided = value / scale;
      quotient = std::isnan(scale)     ? bits_of(scale)
                 : std::isnan(divided) ? kNoAnswer
                                       : bits_of(divided);
    }
    store(dst, i, f32_to_fp8(quotient, Fp8Format::e4m3fn, Overflow::saturate));
  }
}

template <typename Target>
void decode_scaled(const void* src, void* dst, size_t count, bool /*is_streaming*/, float scale) {
  for (size_t i = 0; i < count; ++i) {
    uint32_t product = fp8_to_f32(load<uint8_t>(src, i), Fp8Format::e4m3fn);
    if (std::isnan(scale)) {
      product = bits_of(scale) | kQuiet;
    } else if (const auto value = std::bit_cast<float>(product); !std::isnan(value)) {
      const float multiplied = value * scale;
      product = std::isnan(multiplied) ? kNoAnswer : bits_of(multiplied);
    }
    store(dst, i, Target::narrow(product));
  }
}

constexpr Fp8Format kE4 = Fp8Format::e4m3fn;
constexpr Fp8Format kE5 = Fp8Format::e5m2;
constexpr Overflow kSat = Overflow::saturate;
constexpr Overflow kNone = Overflow::nan;

template <Fp8Format format, typename Target>
constexpr void fill(unsigned char (&bytes)[2][128]) {
  constexpr int kLowest = 8 * (sizeof(typename Target::Bits) - 2);
  for (unsigned code = 0; code < 128; ++code) {
    const auto value = decode_one<format, Target>(static_cast<uint8_t>(code));
    bytes[0][code] = static_cast<unsigned char>(value >> kLowest);
    bytes[1][code] = static_cast<unsigned char>(value >> (kLowest + 8));
  }
}

constexpr Fp8Decoded make_decoded() noexcept {
  Fp8Decoded decoded = {};
  fill<kE4, Bf16>(decoded.at[kE4m3][kBf16]);
  fill<kE4, F16>(decoded.at[kE4m3][kF16]);
  fill<kE4, F32>(decoded.at[kE4m3][kF32]);
  fill<kE5, Bf16>(decoded.at[kE5m2][kBf16]);
  fill<kE5, F16>(decoded.at[kE5m2][kF16]);
  fill<kE5, F32>(decoded.at[kE5m2][kF32]);
  return decoded;
}

}  // namespace

constinit const Fp8Decoded kFp8Decoded = make_decoded();

float divide_by_448(float value) {
  return value / 448.0F;
}

const Fp8Kernels kFp8Scalar = {
    .encode = {{{encode<Bf16, kE4, kSat>, encode<Bf16, kE4, kNone>},
                {encode<Bf16, kE5, kSat>, encode<Bf16, kE5, kNone>}},
               {{encode<F16, kE4, kSat>, encode<F16, kE4, kNone>},
                {encode<F16, kE5, kSat>, encode<F16, kE5, kNone>}},
               {{encode<F32, kE4, kSat>, encode<F32, kE4, kNone>},
                {encode<F32, kE5, kSat>, encode<F32, kE5, kNone>}}},
    .decode = {{decode<kE4, Bf16>, decode<kE4, F16>, decode<kE4, F32>},
               {decode<kE5, Bf16>, decode<kE5, F16>, decode<kE5, F32>}},
    .abs_max = {abs_max<Bf16>, abs_max<F16>, abs_max<F32>},
    .encode_scaled = {encode_scaled<Bf16>, encode_scaled<F16>, encode_scaled<F32>},
    .decode_scaled = {decode_scaled<Bf16>, decode_scaled<F16>, decode_scaled<F32>},
};

}  // namespace aerokv::codec
