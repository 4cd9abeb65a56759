// SPDX-License-Identifier: Apache-2.0
// AVX2 and F16C, 32 elements at a time.
//
// Encoding rounds fractions in lanes of 16 bits and does exponents in bytes. float32 is cut to its
// upper half, whose last bit becomes 1 if anything was cut off, so that rounding again goes the
// same way. Decoding works on bytes: the upper and the lower byte of each result come from shifts
// and from tables of 16 entries.
#if defined(__x86_64__)
#include <immintrin.h>

#include <cstdint>

#include "codec/fp8_kernels.h"

namespace aerokv::codec {
namespace {

using V = __m256i;

constexpr size_t kBlock = 32;

V load(const void* from) {
  return _mm256_loadu_si256(static_cast<const V*>(from));
}
V words(int value) {
  return _mm256_set1_epi16(static_cast<short>(value));
}
V bytes(int value) {
  return _mm256_set1_epi8(static_cast<char>(value));
}
V bits(__m256 value) {
  return _mm256_castps_si256(value);
}
__m256 floats(V value) {
  return _mm256_castsi256_ps(value);
}

template <bool streaming>
void store(void* to, size_t index, V value) {
  if constexpr (streaming) {
    _mm256_stream_si256(static_cast<V*>(to) + index, value);
  } else {
    _mm256_storeu_si256(static_cast<V*>(to) + index, value);
  }
}

V table(uint64_t low, uint64_t high) {
  return _mm256_broadcastsi128_si256(
      _mm_set_epi64x(static_cast<int64_t>(high), static_cast<int64_t>(low)));
}

constexpr size_t kVectorBytes = 32;
#include "codec/fp8_loop.inc"

// ---------------------------------------------------------------------------------------------
// Encode

/// 32 numbers of 16 bits, in an order that their source knows how to put right.
struct Pair {
  V a;
  V b;
};

V in_order(V codes) {
  return _mm256_permute4x64_epi64(codes, 0xd8);
}

// From four vectors of 8 float32: packing leaves groups of four codes interleaved.
V in_order_of_floats(V codes) {
  return _mm256_permutevar8x32_epi32(codes, _mm256_setr_epi32(0, 4, 1, 5, 2, 6, 3, 7));
}

V cut_to_odd(V value) {
  return _mm256_or_si256(_mm256_srli_epi32(value, 16),
                         _mm256_min_epu16(value, _mm256_set1_epi32(1)));
}

V cut_to_odd(V low, V high) {
  return _mm256_packus_epi32(cut_to_odd(low), cut_to_odd(high));
}

struct Bf16 {
  static constexpr size_t kBytes = 2;
  static constexpr int kInfinity = 0x7f80;
  static constexpr int kFractionBits = 7;
  static Pair numbers(const unsigned char* src) { return {load(src), load(src + 32)}; }
  static V arrange(V codes) { return in_order(codes); }
};
struct F16 {
  static constexpr size_t kBytes = 2;
  static constexpr int kInfinity = 0x7c00;
  static constexpr int kFractionBits = 10;
  static Pair numbers(const unsigned char* src) { return {load(src), load(src + 32)}; }
  static V arrange(V codes) { return in_order(codes); }
};
struct F32 {  // as bfloat16, cut to odd
  static constexpr size_t kBytes = 4;
  static constexpr int kInfinity = Bf16::kInfinity;
  static constexpr int kFractionBits = Bf16::kFractionBits;
  static Pair numbers(const unsigned char* src) {
    return {cut_to_odd(load(src), load(src + 32)), cut_to_odd(load(src + 64), load(src + 96))};
  }
  static V arrange(V codes) { return in_order_of_floats(codes); }
};

struct E4m3 {
  static constexpr int kBias = 7;
  static constexpr int kFractionBits = 3;
};
struct E5m2 {
  static constexpr int kBias = 15;
  static constexpr int kFractionBits = 2;
};

/// 2^(14 - shift) for each exponent up to the smallest of normal codes, whose index is 9; smaller
/// exponents shift further, those that round to zero have 0. One byte of eight entries.
template <typename Source, typename Format>
constexpr uint64_t powers(int first, int byte) {
  uint64_t packed = 0;
  for (int index = 8 - Format::kFractionBits; index <= 9; ++index) {
    const int shift = Source::kFractionBits - Format::kFractionBits + 9 - index;
    if (index < first || index >= first + 8) continue;
    packed |= static_cast<uint64_t>((1 << (14 - shift)) >> (8 * byte) & 0xff)
              << (8 * (index - first));
  }
  return packed;
}

template <typename Source, typename Format, int byte>
V power_table() {
  return table(powers<Source, Format>(0, byte), powers<Source, Format>(8, byte));
}

/// Doubled numbers times `power`, to nearest: the fraction with its leading one, shifted.
/// mulhrs rounds ties up; a fraction that is less by a bit that no number has rounds them down,
/// which is right where the result is even.
template <typename Source>
[[gnu::always_inline]] inline V rounded(V doubled, V power) {
  constexpr int kFraction = (2 << Source::kFractionBits) - 1;
  const V below = _mm256_add_epi16(_mm256_and_si256(doubled, words(kFraction)), words(kFraction));
  const V odd = _mm256_srai_epi16(_mm256_mullo_epi16(below, power), 15);
  return _mm256_mulhrs_epi16(_mm256_sub_epi16(below, odd), power);
}

template <typename Source>
V is_nan(V value) {
  return _mm256_cmpgt_epi16(_mm256_and_si256(value, words(0x7fff)), words(Source::kInfinity));
}

template <typename Source>
[[gnu::always_inline]] inline V is_nan(Pair numbers) {
  return _mm256_packs_epi16(is_nan<Source>(numbers.a), is_nan<Source>(numbers.b));
}

/// Codes without sign.
template <typename Source, typename Format, bool to_nan>
[[gnu::always_inline]] inline V magnitudes(Pair numbers) {
  constexpr bool is_e4m3 = Format::kFractionBits == 3;
  constexpr int kTop = is_e4m3 ? (to_nan ? 0x7f : 0x7e) : 0x7c;
  constexpr int kSourceBias = Source::kFractionBits == 10 ? 15 : 127;
  const Pair doubled = {_mm256_add_epi16(numbers.a, numbers.a),
                        _mm256_add_epi16(numbers.b, numbers.b)};
  const V exponents = _mm256_packus_epi16(_mm256_srli_epi16(doubled.a, Source::kFractionBits + 1),
                                          _mm256_srli_epi16(doubled.b, Source::kFractionBits + 1));
  const V above = _mm256_subs_epu8(exponents, bytes(kSourceBias - Format::kBias - 8));
  const V index = _mm256_min_epu8(above, bytes(9));
  const V low = _mm256_shuffle_epi8(power_table<Source, Format, 0>(), index);
  const V high = _mm256_shuffle_epi8(power_table<Source, Format, 1>(), index);
  const V codes = _mm256_packus_epi16(rounded<Source>(doubled.a, _mm256_unpacklo_epi8(low, high)),
                                      rounded<Source>(doubled.b, _mm256_unpackhi_epi8(low, high)));
  // Exponents past those of the format are as good as the first of them, and fit into a byte.
  const V steps = _mm256_sub_epi8(_mm256_min_epu8(above, bytes(9 + (is_e4m3 ? 16 : 31))), index);
  V clamped = _mm256_min_epu8(
      _mm256_add_epi8(codes, _mm256_slli_epi16(steps, Format::kFractionBits)), bytes(kTop));
  if constexpr (kTop != 0x7f) {
    constexpr int kLast = Source::kInfinity >> Source::kFractionBits;
    if (_mm256_movemask_epi8(_mm256_cmpeq_epi8(exponents, bytes(kLast))) != 0) [[unlikely]] {
      clamped = _mm256_or_si256(clamped, _mm256_and_si256(is_nan<Source>(numbers), bytes(0x7f)));
    }
  }
  return clamped;
}

/// float16 and e5m2 have the same exponents: rounding is all.
template <>
[[gnu::always_inline]] inline V magnitudes<F16, E5m2, false>(Pair numbers) {
  const auto round = [](V value) {
    const V magnitude = _mm256_and_si256(value, words(0x7fff));
    const V odd = _mm256_and_si256(_mm256_srli_epi16(magnitude, 8), words(1));
    return _mm256_srli_epi16(_mm256_add_epi16(_mm256_add_epi16(magnitude, words(0x7f)), odd), 8);
  };
  const V codes = _mm256_packus_epi16(round(numbers.a), round(numbers.b));
  const V nan = _mm256_and_si256(is_nan<F16>(numbers), bytes(0x7f));
  return _mm256_or_si256(_mm256_min_epu8(codes, bytes(0x7c)), nan);
}

template <typename Source, typename Format, bool to_nan>
[[gnu::always_inline]] inline V encode_pair(Pair numbers) {
  const V signs = _mm256_and_si256(_mm256_packs_epi16(numbers.a, numbers.b), bytes(0x80));
  return _mm256_or_si256(magnitudes<Source, Format, to_nan>(numbers), signs);
}

template <typename Source, typename Format, bool to_nan>
struct EncodeBlock {
  static constexpr size_t kSourceBytes = Source::kBytes;
  static constexpr size_t kTargetBytes = 1;
  template <bool streaming>
  [[gnu::always_inline]] void run(const unsigned char* src, unsigned char* dst) const {
    const V codes = encode_pair<Source, Format, to_nan>(Source::numbers(src));
    store<streaming>(dst, 0, Source::arrange(codes));
  }
};

template <typename Source, typename Format, bool to_nan>
void encode(const void* src, void* dst, size_t count, bool is_streaming) {
  run(EncodeBlock<Source, Format, to_nan>(), src, dst, count, is_streaming);
}

// ---------------------------------------------------------------------------------------------
// Decode

/// Bytes of the upper halves of 32 results.
struct Halves {
  V high;
  V low;
};

V select(V otherwise, V value, V mask) {
  return _mm256_blendv_epi8(otherwise, value, mask);
}

V shifted(V value, int right, int mask) {
  return _mm256_and_si256(_mm256_srli_epi16(value, right), bytes(mask));
}

V shifted_left(V value, int left, int mask) {
  return _mm256_and_si256(_mm256_slli_epi16(value, left), bytes(mask));
}

template <size_t target>
[[gnu::always_inline]] inline Halves decode_e4m3(V codes) {
  const V magnitude = _mm256_and_si256(codes, bytes(0x7f));
  const V sign = _mm256_and_si256(codes, bytes(0x80));
  const V is_small = _mm256_cmpgt_epi8(bytes(8), magnitude);
  const V is_nan = _mm256_cmpeq_epi8(magnitude, bytes(0x7f));
  V high;
  V low;
  if constexpr (target == kF16) {
    high = _mm256_add_epi8(shifted(magnitude, 1, 0x3f), bytes(0x20));
    low = shifted_left(magnitude, 7, 0x80);
    const V small = _mm256_shuffle_epi8(table(0x232221201e1c1800, 0), magnitude);
    high = select(high, small, is_small);
    low = _mm256_andnot_si256(is_small, low);
  } else {
    high = _mm256_add_epi8(shifted(magnitude, 4, 0x07), bytes(0x3c));
    low = shifted_left(magnitude, 4, 0xf0);
    high = select(high, _mm256_shuffle_epi8(table(0x3c3c3c3c3b3b3b00, 0), magnitude), is_small);
    low = select(low, _mm256_shuffle_epi8(table(0x60402000c0800000, 0), magnitude), is_small);
  }
  if constexpr (target == kBf16) {  // this NaN alone has no sign
    high = _mm256_or_si256(high, sign);
    return {select(high, bytes(0x7f), is_nan), select(low, bytes(0xc0), is_nan)};
  }
  const V nan = _mm256_and_si256(is_nan, bytes(0x7f));
  return {_mm256_or_si256(_mm256_or_si256(high, nan), sign), low};
}

template <size_t target>
[[gnu::always_inline]] inline Halves decode_e5m2(V codes) {
  const V magnitude = _mm256_and_si256(codes, bytes(0x7f));
  const V is_nan = _mm256_cmpgt_epi8(magnitude, bytes(0x7c));
  if constexpr (target == kF16) {
    return {_mm256_or_si256(codes, _mm256_and_si256(is_nan, bytes(2))), _mm256_setzero_si256()};
  } else {
    const V sign = _mm256_and_si256(codes, bytes(0x80));
    const V is_small = _mm256_cmpgt_epi8(bytes(4), magnitude);
    const V is_infinite = _mm256_cmpgt_epi8(magnitude, bytes(0x7b));  // or NaN
    V high = _mm256_add_epi8(shifted(magnitude, 3, 0x0f), bytes(0x38));
    V low = shifted_left(magnitude, 5, 0xe0);
    high = select(high, _mm256_shuffle_epi8(table(0x38383700, 0), magnitude), is_small);
    low = select(low, _mm256_shuffle_epi8(table(0x40008000, 0), magnitude), is_small);
    high = _mm256_or_si256(high, _mm256_and_si256(is_infinite, bytes(0x7f)));
    high = _mm256_or_si256(high, sign);
    if constexpr (target == kBf16) {
      return {select(high, bytes(0x7f), is_nan), select(low, bytes(0xc0), is_nan)};
    }
    return {high, _mm256_or_si256(low, _mm256_and_si256(is_nan, bytes(0x40)))};
  }
}

template <size_t format, size_t target>
[[gnu::always_inline]] inline Halves decode_block(V codes) {
  if constexpr (format == kE4m3) {
    return decode_e4m3<target>(codes);
  } else {
    return decode_e5m2<target>(codes);
  }
}

/// 32 float32 numbers in order, from their upper halves.
struct Floats {
  V part[4];
  explicit Floats(Halves halves) {
    const V zero = _mm256_setzero_si256();
    const V front = _mm256_unpacklo_epi8(halves.low, halves.high);
    const V back = _mm256_unpackhi_epi8(halves.low, halves.high);
    const V first[2] = {_mm256_unpacklo_epi16(zero, front), _mm256_unpacklo_epi16(zero, back)};
    const V second[2] = {_mm256_unpackhi_epi16(zero, front), _mm256_unpackhi_epi16(zero, back)};
    part[0] = _mm256_permute2x128_si256(first[0], second[0], 0x20);
    part[1] = _mm256_permute2x128_si256(first[1], second[1], 0x20);
    part[2] = _mm256_permute2x128_si256(first[0], second[0], 0x31);
    part[3] = _mm256_permute2x128_si256(first[1], second[1], 0x31);
  }
};

template <size_t format, size_t target>
struct DecodeBlock {
  static constexpr size_t kSourceBytes = 1;
  static constexpr size_t kTargetBytes = target == kF32 ? 4 : 2;
  template <bool streaming>
  [[gnu::always_inline]] void run(const unsigned char* src, unsigned char* dst) const {
    const Halves halves = decode_block<format, target>(load(src));
    if constexpr (target == kF32) {
      const Floats numbers(halves);
      for (size_t i = 0; i < 4; ++i) store<streaming>(dst, i, numbers.part[i]);
    } else {
      const V front = _mm256_unpacklo_epi8(halves.low, halves.high);
      const V back = _mm256_unpackhi_epi8(halves.low, halves.high);
      store<streaming>(dst, 0, _mm256_permute2x128_si256(front, back, 0x20));
      store<streaming>(dst, 1, _mm256_permute2x128_si256(front, back, 0x31));
    }
  }
};

template <size_t format, size_t target>
void decode(const void* src, void* dst, size_t count, bool is_streaming) {
  run(DecodeBlock<format, target>(), src, dst, count, is_streaming);
}

// ---------------------------------------------------------------------------------------------
// Scaled

template <size_t source>
struct EncodeScaledBlock {
  static constexpr size_t kSourceBytes = source == kF32 ? 4 : 2;
  static constexpr size_t kTargetBytes = 1;
  __m256 scale;

  // Eight numbers of `src`, divided.
  [[nodiscard]] V quotients(const unsigned char* src, size_t part) const {
    V value;
    if constexpr (source == kF32) {
      value = load(src + 32 * part);
    } else {
      const __m128i half = _mm_loadu_si128(reinterpret_cast<const __m128i*>(src) + part);
      value = source == kF16 ? bits(_mm256_cvtph_ps(half))
                             : _mm256_slli_epi32(_mm256_cvtepu16_epi32(half), 16);
    }
    return bits(_mm256_div_ps(floats(value), scale));
  }

  template <bool streaming>
  [[gnu::always_inline]] void run(const unsigned char* src, unsigned char* dst) const {
    const Pair numbers = {cut_to_odd(quotients(src, 0), quotients(src, 1)),
                          cut_to_odd(quotients(src, 2), quotients(src, 3))};
    store<streaming>(dst, 0, in_order_of_floats(encode_pair<F32, E4m3, false>(numbers)));
  }
};

template <size_t source>
void encode_scaled(const void* src, void* dst, size_t count, bool is_streaming, float scale) {
  run(EncodeScaledBlock<source>{_mm256_set1_ps(scale)}, src, dst, count, is_streaming);
}

V round_to_bf16(V value) {
  const V magnitude = _mm256_and_si256(value, _mm256_set1_epi32(0x7fffffff));
  const V is_nan = _mm256_cmpgt_epi32(magnitude, _mm256_set1_epi32(0x7f800000));
  const V lowest = _mm256_and_si256(_mm256_srli_epi32(value, 16), _mm256_set1_epi32(1));
  const V up = _mm256_add_epi32(_mm256_add_epi32(value, _mm256_set1_epi32(0x7fff)), lowest);
  return _mm256_srli_epi32(_mm256_or_si256(up, is_nan), 16);
}

template <size_t target>
struct DecodeScaledBlock {
  static constexpr size_t kSourceBytes = 1;
  static constexpr size_t kTargetBytes = target == kF32 ? 4 : 2;
  __m256 scale;

  template <bool streaming>
  [[gnu::always_inline]] void run(const unsigned char* src, unsigned char* dst) const {
    Floats numbers(decode_block<kE4m3, kF32>(load(src)));
    for (V& part : numbers.part) part = bits(_mm256_mul_ps(floats(part), scale));
    if constexpr (target == kF32) {
      for (size_t i = 0; i < 4; ++i) store<streaming>(dst, i, numbers.part[i]);
    } else {
      for (size_t i = 0; i < 2; ++i) {
        store<streaming>(dst, i, narrow(numbers.part[2 * i], numbers.part[2 * i + 1]));
      }
    }
  }

  static V narrow(V front, V back) {
    if constexpr (target == kF16) {
      return _mm256_set_m128i(_mm256_cvtps_ph(floats(back), _MM_FROUND_TO_NEAREST_INT),
                              _mm256_cvtps_ph(floats(front), _MM_FROUND_TO_NEAREST_INT));
    } else {
      return in_order(_mm256_packus_epi32(round_to_bf16(front), round_to_bf16(back)));
    }
  }
};

template <size_t target>
void decode_scaled(const void* src, void* dst, size_t count, bool is_streaming, float scale) {
  run(DecodeScaledBlock<target>{_mm256_set1_ps(scale)}, src, dst, count, is_streaming);
}

// ---------------------------------------------------------------------------------------------
// The largest magnitude

template <size_t source>
V larger(V a, V b) {
  return source == kF32 ? _mm256_max_epu32(a, b) : _mm256_max_epu16(a, b);
}

template <size_t source>
unsigned abs_max(const void* base, size_t count) {
  constexpr size_t kBytes = source == kF32 ? 4 : 2;
  const auto* src = static_cast<const unsigned char*>(base);
  const V mask = source == kF32 ? _mm256_set1_epi32(0x7fffffff) : words(0x7fff);
  V largest[2] = {_mm256_setzero_si256(), _mm256_setzero_si256()};
  size_t rest = count * kBytes;
  for (; rest >= 64; rest -= 64, src += 64) {
    largest[0] = larger<source>(largest[0], _mm256_and_si256(load(src), mask));
    largest[1] = larger<source>(largest[1], _mm256_and_si256(load(src + 32), mask));
  }
  alignas(32) unsigned char tail[64] = {};
  __builtin_memcpy(tail, src, rest);
  largest[0] = larger<source>(largest[0], _mm256_and_si256(load(tail), mask));
  largest[1] = larger<source>(largest[1], _mm256_and_si256(load(tail + 32), mask));
  V all = larger<source>(largest[0], largest[1]);
  all = larger<source>(all, _mm256_permute4x64_epi64(all, 0x4e));
  all = larger<source>(all, _mm256_shuffle_epi32(all, 0x4e));
  all = larger<source>(all, _mm256_shuffle_epi32(all, 0xb1));
  if constexpr (source != kF32) {
    all = larger<source>(all, _mm256_srli_epi32(all, 16));
    return static_cast<unsigned>(_mm256_extract_epi16(all, 0));
  }
  return static_cast<unsigned>(_mm256_extract_epi32(all, 0));
}

}  // namespace

const Fp8Kernels kFp8Avx2 = {
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
