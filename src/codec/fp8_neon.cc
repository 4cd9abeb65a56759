// SPDX-License-Identifier: Apache-2.0
// NEON of 64-bit Arm, 16 elements at a time.
//
// Encoding works in lanes of 16 bits; float32 is cut to its upper half, whose last bit becomes 1 if
// anything was cut off, so that rounding again goes the same way. Decoding looks both upper bytes
// of each result up. There are no stores around the caches.
#if defined(__aarch64__)
#include <arm_neon.h>

#include <cstdint>

#include "codec/fp8_kernels.h"

namespace aerokv::codec {
namespace {

constexpr size_t kBlock = 16;

template <typename Block>
void run(const Block& block, const void* source, void* target, size_t count) {
  const auto* src = static_cast<const uint8_t*>(source);
  auto* dst = static_cast<uint8_t*>(target);
  for (; count >= kBlock; count -= kBlock) {
    block.run(src, dst);
    src += kBlock * Block::kSourceBytes;
    dst += kBlock * Block::kTargetBytes;
  }
  if (count == 0) return;
  uint8_t from[kBlock * 4] = {};
  uint8_t to[kBlock * 4];
  __builtin_memcpy(from, src, count * Block::kSourceBytes);
  block.run(from, to);
  __builtin_memcpy(dst, to, count * Block::kTargetBytes);
}

uint16x8_t load_words(const uint8_t* from) {
  return vreinterpretq_u16_u8(vld1q_u8(from));
}
uint32x4_t load_longs(const uint8_t* from) {
  return vreinterpretq_u32_u8(vld1q_u8(from));
}

// ---------------------------------------------------------------------------------------------
// Encode

uint16x4_t cut_to_odd(uint32x4_t value) {
  const uint16x4_t rest = vmovn_u32(value);
  return vorr_u16(vshrn_n_u32(value, 16), vand_u16(vtst_u16(rest, rest), vdup_n_u16(1)));
}

uint16x8_t cut_to_odd(uint32x4_t front, uint32x4_t back) {
  return vcombine_u16(cut_to_odd(front), cut_to_odd(back));
}

struct Bf16 {
  static constexpr size_t kBytes = 2;
  static constexpr int kFractionBits = 7;
  static constexpr int kBias = 127;
  static constexpr int kInfinity = 0x7f80;
  static uint16x8_t numbers(const uint8_t* src) { return load_words(src); }
};
struct F16 {
  static constexpr size_t kBytes = 2;
  static constexpr int kFractionBits = 10;
  static constexpr int kBias = 15;
  static constexpr int kInfinity = 0x7c00;
  static uint16x8_t numbers(const uint8_t* src) { return load_words(src); }
};
struct F32 : Bf16 {  // cut to odd
  static constexpr size_t kBytes = 4;
  static uint16x8_t numbers(const uint8_t* src) {
    return cut_to_odd(load_longs(src), load_longs(src + 16));
  }
};

struct E4m3 {
  static constexpr int kBias = 7;
  static constexpr int kFractionBits = 3;
};
struct E5m2 {
  static constexpr int kBias = 15;
  static constexpr int kFractionBits = 2;
};

/// Codes without sign, larger than `Format` has for infinity and NaN.
///
/// The fraction with its leading one is shifted to the right, by one more for each exponent below
/// that of the smallest normal code, whose index is 9. The shift rounds ties up; half of the last
/// bit less rounds them down, which is right where the result is even.
template <typename Source, typename Format>
uint16x8_t magnitudes(uint16x8_t doubled) {
  constexpr int kCut = Source::kFractionBits - Format::kFractionBits;
  const uint16x8_t kFraction = vdupq_n_u16((2 << Source::kFractionBits) - 1);
  const uint16x8_t exponent =
      vqsubq_u16(vshrq_n_u16(doubled, Source::kFractionBits + 1),
                 vdupq_n_u16(static_cast<uint16_t>(Source::kBias - Format::kBias - 8)));
  const uint16x8_t index = vminq_u16(exponent, vdupq_n_u16(9));
  const int16x8_t shift = vsubq_s16(vreinterpretq_s16_u16(index), vdupq_n_s16(kCut + 10));
  const uint16x8_t below = vaddq_u16(vandq_u16(doubled, kFraction), kFraction);
  const uint16x8_t odd = vandq_u16(vshlq_u16(below, shift), vdupq_n_u16(1));
  const uint16x8_t rounded = vrshlq_u16(vaddq_u16(below, odd), shift);
  return vaddq_u16(vshlq_n_u16(vsubq_u16(exponent, index), Format::kFractionBits), rounded);
}

/// These have the same exponents: rounding is all.
template <>
uint16x8_t magnitudes<F16, E5m2>(uint16x8_t doubled) {
  const uint16x8_t half = vshrq_n_u16(doubled, 1);
  const uint16x8_t odd = vandq_u16(vshrq_n_u16(half, 8), vdupq_n_u16(1));
  return vshrq_n_u16(vaddq_u16(vaddq_u16(half, vdupq_n_u16(0x7f)), odd), 8);
}

template <typename Source, typename Format, bool to_nan>
uint8x8_t encode_words(uint16x8_t numbers) {
  constexpr bool is_e4m3 = Format::kFractionBits == 3;
  constexpr int kTop = is_e4m3 ? (to_nan ? 0x7f : 0x7e) : 0x7c;
  const uint16x8_t doubled = vaddq_u16(numbers, numbers);
  uint16x8_t codes = vminq_u16(magnitudes<Source, Format>(doubled), vdupq_n_u16(kTop));
  const uint16x8_t is_nan =
      vcgtq_u16(doubled, vdupq_n_u16(static_cast<uint16_t>(2 * Source::kInfinity)));
  codes = vorrq_u16(codes, vandq_u16(is_nan, vdupq_n_u16(0x7f)));
  const uint16x8_t sign = vandq_u16(vshrq_n_u16(numbers, 8), vdupq_n_u16(0x80));
  return vmovn_u16(vorrq_u16(codes, sign));
}

template <typename Source, typename Format, bool to_nan>
struct EncodeBlock {
  static constexpr size_t kSourceBytes = Source::kBytes;
  static constexpr size_t kTargetBytes = 1;
  void run(const uint8_t* src, uint8_t* dst) const {
    for (size_t i = 0; i < 2; ++i) {
      const uint16x8_t numbers = Source::numbers(src + 8 * i * Source::kBytes);
      vst1_u8(dst + 8 * i, encode_words<Source, Format, to_nan>(numbers));
    }
  }
};

template <typename Source, typename Format, bool to_nan>
void encode(const void* src, void* dst, size_t count, bool /*is_streaming*/) {
  run(EncodeBlock<Source, Format, to_nan>(), src, dst, count);
}

// ---------------------------------------------------------------------------------------------
// Decode

/// The two upper bytes of 16 results.
struct Halves {
  uint8x16_t low;
  uint8x16_t high;
};

/// 128 bytes to look up in.
struct Table {
  uint8x16x4_t front;
  uint8x16x4_t back;
  explicit Table(const uint8_t* bytes) : front(vld1q_u8_x4(bytes)), back(vld1q_u8_x4(bytes + 64)) {}
  [[nodiscard]] uint8x16_t at(uint8x16_t index) const {
    const uint8x16_t found = vqtbl4q_u8(front, index);
    return vqtbx4q_u8(found, back, vsubq_u8(index, vdupq_n_u8(64)));
  }
};

template <size_t format, size_t target>
struct Decoder {
  Table low = Table(kFp8Decoded.at[format][target][0]);
  Table high = Table(kFp8Decoded.at[format][target][1]);

  [[nodiscard]] Halves decode(uint8x16_t codes) const {
    const uint8x16_t magnitude = vandq_u8(codes, vdupq_n_u8(0x7f));
    uint8x16_t sign = vandq_u8(codes, vdupq_n_u8(0x80));
    if constexpr (target == kBf16) {  // this NaN alone has no sign
      sign = vandq_u8(sign, vcleq_u8(magnitude, vdupq_n_u8(format == kE4m3 ? 0x7e : 0x7c)));
    }
    return {low.at(magnitude), vorrq_u8(high.at(magnitude), sign)};
  }
};

template <size_t format, size_t target>
struct DecodeBlock {
  static constexpr size_t kSourceBytes = 1;
  static constexpr size_t kTargetBytes = target == kF32 ? 4 : 2;
  Decoder<format, target> decoder;
  void run(const uint8_t* src, uint8_t* dst) const {
    const Halves halves = decoder.decode(vld1q_u8(src));
    if constexpr (target == kF32) {
      vst4q_u8(dst, {{vdupq_n_u8(0), vdupq_n_u8(0), halves.low, halves.high}});
    } else {
      vst2q_u8(dst, {{halves.low, halves.high}});
    }
  }
};

template <size_t format, size_t target>
void decode(const void* src, void* dst, size_t count, bool /*is_streaming*/) {
  run(DecodeBlock<format, target>(), src, dst, count);
}

// ---------------------------------------------------------------------------------------------
// Scaled

template <size_t source>
struct EncodeScaledBlock {
  static constexpr size_t kSourceBytes = source == kF32 ? 4 : 2;
  static constexpr size_t kTargetBytes = 1;
  float32x4_t scale;

  // Four numbers of `src`, divided.
  [[nodiscard]] uint32x4_t quotients(const uint8_t* src, size_t part) const {
    float32x4_t value;
    if constexpr (source == kF32) {
      value = vreinterpretq_f32_u32(load_longs(src + 16 * part));
    } else {
      const uint16x4_t half = vreinterpret_u16_u8(vld1_u8(src + 8 * part));
      value = source == kF16 ? vcvt_f32_f16(vreinterpret_f16_u16(half))
                             : vreinterpretq_f32_u32(vshll_n_u16(half, 16));
    }
    return vreinterpretq_u32_f32(vdivq_f32(value, scale));
  }

  void run(const uint8_t* src, uint8_t* dst) const {
    for (size_t i = 0; i < 2; ++i) {
      const uint16x8_t numbers = cut_to_odd(quotients(src, 2 * i), quotients(src, 2 * i + 1));
      vst1_u8(dst + 8 * i, encode_words<F32, E4m3, false>(numbers));
    }
  }
};

template <size_t source>
void encode_scaled(const void* src, void* dst, size_t count, bool /*is_streaming*/, float scale) {
  run(EncodeScaledBlock<source>{vdupq_n_f32(scale)}, src, dst, count);
}

uint16x4_t round_to_bf16(uint32x4_t value) {
  const uint32x4_t magnitude = vandq_u32(value, vdupq_n_u32(0x7fffffff));
  const uint32x4_t is_nan = vcgtq_u32(magnitude, vdupq_n_u32(0x7f800000));
  const uint32x4_t lowest = vandq_u32(vshrq_n_u32(value, 16), vdupq_n_u32(1));
  const uint32x4_t up = vaddq_u32(vaddq_u32(value, vdupq_n_u32(0x7fff)), lowest);
  return vshrn_n_u32(vorrq_u32(up, is_nan), 16);
}

template <size_t target>
struct DecodeScaledBlock {
  static constexpr size_t kSourceBytes = 1;
  static constexpr size_t kTargetBytes = target == kF32 ? 4 : 2;
  float32x4_t scale;
  Decoder<kE4m3, kF32> decoder = {};

  // Four products.
  void put(uint16x4_t halves, uint8_t* dst) const {
    const float32x4_t product = vmulq_f32(vreinterpretq_f32_u32(vshll_n_u16(halves, 16)), scale);
    if constexpr (target == kF32) {
      vst1q_u8(dst, vreinterpretq_u8_f32(product));
    } else if constexpr (target == kF16) {
      vst1_u8(dst, vreinterpret_u8_f16(vcvt_f16_f32(product)));
    } else {
      vst1_u8(dst, vreinterpret_u8_u16(round_to_bf16(vreinterpretq_u32_f32(product))));
    }
  }

  void run(const uint8_t* src, uint8_t* dst) const {
    const Halves halves = decoder.decode(vld1q_u8(src));
    const uint8x16x2_t zipped = vzipq_u8(halves.low, halves.high);
    for (size_t i = 0; i < 2; ++i) {
      const uint16x8_t numbers = vreinterpretq_u16_u8(zipped.val[i]);
      put(vget_low_u16(numbers), dst + 2 * i * 4 * kTargetBytes);
      put(vget_high_u16(numbers), dst + (2 * i + 1) * 4 * kTargetBytes);
    }
  }
};

template <size_t target>
void decode_scaled(const void* src, void* dst, size_t count, bool /*is_streaming*/, float scale) {
  run(DecodeScaledBlock<target>{vdupq_n_f32(scale)}, src, dst, count);
}

// ---------------------------------------------------------------------------------------------
// The largest magnitude

template <size_t source>
unsigned abs_max(const void* base, size_t count) {
  constexpr size_t kBytes = source == kF32 ? 4 : 2;
  const auto* src = static_cast<const uint8_t*>(base);
  uint8_t tail[16] = {};
  __builtin_memcpy(tail, src + count * kBytes / 16 * 16, count * kBytes % 16);
  if constexpr (source == kF32) {
    const uint32x4_t mask = vdupq_n_u32(0x7fffffff);
    uint32x4_t largest = vandq_u32(load_longs(tail), mask);
    for (size_t i = 0; i < count * kBytes / 16; ++i) {
      largest = vmaxq_u32(largest, vandq_u32(load_longs(src + 16 * i), mask));
    }
    return vmaxvq_u32(largest);
  } else {
    const uint16x8_t mask = vdupq_n_u16(0x7fff);
    uint16x8_t largest = vandq_u16(load_words(tail), mask);
    for (size_t i = 0; i < count * kBytes / 16; ++i) {
      largest = vmaxq_u16(largest, vandq_u16(load_words(src + 16 * i), mask));
    }
    return vmaxvq_u16(largest);
  }
}

}  // namespace

const Fp8Kernels kFp8Neon = {
    .encode = {{{encode<Bf16, E4m3, false>, encode<Bf16, E4m3, true>},
                {encode<Bf16, E5m2, false>, encode<Bf16, E5m2, false>}},
               {{encode<F16, E4m3, false>, encode<F16, E4m3, true>},
                {encode<F16, E5m2, false>, encode<F16, E5m2, false>}},
               {{encode<F32, E4m3, false>, encode<F32, E4m3, true>},
                {encode<F32, E5m2, false>, encode<F32, E5m2, false>}}},
    .decode = {{decode<kE4m3, kBf16>, decode<kE4m3, kF16>, decode<kE4m3, kF32>},
               {decode<kE5m2, kBf16>, decode<kE5m2, kF16>, decode<kE5m2, kF32>}},
    .abs_max = {abs_max<kBf16>, abs_max<kF16>, abs_max<kF32>},
    .encode_scaled = {encode_scaled<kBf16>, encode_scaled<kF16>, encode_scaled<kF32>},
    .decode_scaled = {decode_scaled<kBf16>, decode_scaled<kF16>, decode_scaled<kF32>},
};

}  // namespace aerokv::codec
#endif
