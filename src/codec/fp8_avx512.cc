// SPDX-License-Identifier: Apache-2.0
// AVX-512 with BW, VL and VBMI, 64 elements at a time.
//
// Encoding works in lanes of 16 bits; float32 is cut to its upper half, whose last bit becomes 1 if
// anything was cut off, so that rounding again goes the same way. Decoding looks both upper bytes
// of each result up.
#if defined(__x86_64__)
#include <immintrin.h>

#include <cstdint>

#include "codec/fp8_kernels.h"

namespace aerokv::codec {
namespace {

using V = __m512i;

constexpr size_t kBlock = 64;

V load(const void* from) {
  return _mm512_loadu_si512(from);
}
V words(int value) {
  return _mm512_set1_epi16(static_cast<short>(value));
}
V bytes(int value) {
  return _mm512_set1_epi8(static_cast<char>(value));
}
V bits(__m512 value) {
  return _mm512_castps_si512(value);
}
__m512 floats(V value) {
  return _mm512_castsi512_ps(value);
}

template <bool streaming>
void store(unsigned char* to, size_t index, V value) {
  if constexpr (streaming) {
    _mm512_stream_si512(reinterpret_cast<V*>(to) + index, value);
  } else {
    _mm512_storeu_si512(to + 64 * index, value);
  }
}

constexpr size_t kVectorBytes = 64;
#include "codec/fp8_loop.inc"

// ---------------------------------------------------------------------------------------------
// Permutations, made by the compiler

struct alignas(64) ByteIndex {
  unsigned char at[64];
};
struct alignas(64) WordIndex {
  uint16_t at[32];
};

V index(const ByteIndex& table) {
  return _mm512_load_si512(table.at);
}
V index(const WordIndex& table) {
  return _mm512_load_si512(table.at);
}

/// Every second element of two vectors, from `first` on.
constexpr ByteIndex low_bytes() {
  ByteIndex table = {};
  for (unsigned i = 0; i < 64; ++i) table.at[i] = static_cast<unsigned char>(2 * i);
  return table;
}
constexpr WordIndex odd_words() {
  WordIndex table = {};
  for (unsigned i = 0; i < 32; ++i) table.at[i] = static_cast<uint16_t>(2 * i + 1);
  return table;
}

/// Bytes of two vectors in turns, `step` bytes of room for each pair, the pair at its end.
constexpr ByteIndex in_turns(unsigned first, unsigned step) {
  ByteIndex table = {};
  for (unsigned i = 0; i < 64; ++i) {
    const unsigned element = first + i / step;
    table.at[i] = static_cast<unsigned char>(i % step == step - 1 ? 64 + element : element);
  }
  return table;
}

constexpr ByteIndex kLowBytes = low_bytes();
constexpr WordIndex kOddWords = odd_words();
constexpr ByteIndex kPairs[2] = {in_turns(0, 2), in_turns(32, 2)};
constexpr ByteIndex kQuads[4] = {in_turns(0, 4), in_turns(16, 4), in_turns(32, 4), in_turns(48, 4)};

// ---------------------------------------------------------------------------------------------
// Encode

// The upper halves of 32 float32 numbers.
[[gnu::always_inline]] inline V cut_to_odd(V front, V back) {
  const auto cut = [](V value) {
    const __mmask16 is_cut = _mm512_test_epi32_mask(value, _mm512_set1_epi32(0xffff));
    return _mm512_mask_or_epi32(value, is_cut, value, _mm512_set1_epi32(0x10000));
  };
  return _mm512_permutex2var_epi16(cut(front), index(kOddWords), cut(back));
}

struct Bf16 {
  static constexpr size_t kBytes = 2;
  static constexpr int kFractionBits = 7;
  static constexpr int kBias = 127;
  static constexpr int kInfinity = 0x7f80;
  static V numbers(const unsigned char* src) { return load(src); }
};
struct F16 {
  static constexpr size_t kBytes = 2;
  static constexpr int kFractionBits = 10;
  static constexpr int kBias = 15;
  static constexpr int kInfinity = 0x7c00;
  static V numbers(const unsigned char* src) { return load(src); }
};
struct F32 : Bf16 {  // cut to odd
  static constexpr size_t kBytes = 4;
  static V numbers(const unsigned char* src) { return cut_to_odd(load(src), load(src + 64)); }
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
/// exponents shift further, those that round to zero have 0.
template <typename Source, typename Format>
constexpr WordIndex make_powers() {
  WordIndex table = {};
  for (int i = 8 - Format::kFractionBits; i <= 9; ++i) {
    const int shift = Source::kFractionBits - Format::kFractionBits + 9 - i;
    table.at[i] = static_cast<uint16_t>(1 << (14 - shift));
  }
  return table;
}
template <typename Source, typename Format>
constexpr WordIndex kPowers = make_powers<Source, Format>();

/// Codes without sign, larger than `Format` has for infinity and NaN. Rounds as in fp8_avx2.cc.
template <typename Source, typename Format>
[[gnu::always_inline]] inline V magnitudes(V doubled) {
  constexpr int kFraction = (2 << Source::kFractionBits) - 1;
  const V exponent = _mm512_subs_epu16(_mm512_srli_epi16(doubled, Source::kFractionBits + 1),
                                       words(Source::kBias - Format::kBias - 8));
  const V last = _mm512_min_epu16(exponent, words(9));
  const V power = _mm512_permutexvar_epi16(last, index(kPowers<Source, Format>));
  const V below = _mm512_add_epi16(_mm512_and_si512(doubled, words(kFraction)), words(kFraction));
  const V odd = _mm512_srai_epi16(_mm512_mullo_epi16(below, power), 15);
  const V rounded = _mm512_mulhrs_epi16(_mm512_sub_epi16(below, odd), power);
  const V steps = _mm512_slli_epi16(_mm512_sub_epi16(exponent, last), Format::kFractionBits);
  return _mm512_add_epi16(steps, rounded);
}

/// These have the same exponents: rounding is all.
template <>
[[gnu::always_inline]] inline V magnitudes<F16, E5m2>(V doubled) {
  const V odd = _mm512_and_si512(_mm512_srli_epi16(doubled, 9), words(1));
  const V half = _mm512_srli_epi16(doubled, 1);
  return _mm512_srli_epi16(_mm512_add_epi16(_mm512_add_epi16(half, words(0x7f)), odd), 8);
}

/// Codes of 32 numbers in the lower bytes.
template <typename Source, typename Format, bool to_nan>
[[gnu::always_inline]] inline V encode_words(V numbers) {
  constexpr bool is_e4m3 = Format::kFractionBits == 3;
  constexpr int kTop = is_e4m3 ? (to_nan ? 0x7f : 0x7e) : 0x7c;
  const V doubled = _mm512_add_epi16(numbers, numbers);
  V codes = _mm512_min_epu16(magnitudes<Source, Format>(doubled), words(kTop));
  if constexpr (kTop != 0x7f) {
    const __mmask32 is_nan = _mm512_cmpgt_epu16_mask(doubled, words(2 * Source::kInfinity));
    codes = _mm512_mask_mov_epi16(codes, is_nan, words(0x7f));
  }
  // codes | (upper byte & 0x80)
  return _mm512_ternarylogic_epi32(codes, _mm512_srli_epi16(numbers, 8), words(0x80), 0xf8);
}

template <typename Source, typename Format, bool to_nan>
struct EncodeBlock {
  static constexpr size_t kSourceBytes = Source::kBytes;
  static constexpr size_t kTargetBytes = 1;
  template <bool streaming>
  [[gnu::always_inline]] void run(const unsigned char* src, unsigned char* dst) const {
    const V front = encode_words<Source, Format, to_nan>(Source::numbers(src));
    const V back = encode_words<Source, Format, to_nan>(Source::numbers(src + 32 * Source::kBytes));
    store<streaming>(dst, 0, _mm512_permutex2var_epi8(front, index(kLowBytes), back));
  }
};

template <typename Source, typename Format, bool to_nan>
void encode(const void* src, void* dst, size_t count, bool is_streaming) {
  run(EncodeBlock<Source, Format, to_nan>(), src, dst, count, is_streaming);
}

// ---------------------------------------------------------------------------------------------
// Decode

/// The two upper bytes of 64 results.
struct Halves {
  V low;
  V high;
};

template <size_t format, size_t target>
struct Decoder {
  V tables[2][2];

  Decoder() {
    for (size_t byte = 0; byte < 2; ++byte) {
      const unsigned char* table = kFp8Decoded.at[format][target][byte];
      tables[byte][0] = load(table);
      tables[byte][1] = load(table + 64);
    }
  }

  [[nodiscard, gnu::always_inline]] Halves decode(V codes) const {
    const V low = _mm512_permutex2var_epi8(tables[0][0], codes, tables[0][1]);
    const V high = _mm512_permutex2var_epi8(tables[1][0], codes, tables[1][1]);
    if constexpr (target == kBf16) {  // this NaN alone has no sign
      constexpr int kLast = format == kE4m3 ? 0x7e : 0x7c;
      const V magnitude = _mm512_and_si512(codes, bytes(0x7f));
      const __mmask64 is_number = _mm512_cmple_epu8_mask(magnitude, bytes(kLast));
      return {low, _mm512_mask_add_epi8(high, is_number, high, _mm512_xor_si512(codes, magnitude))};
    } else {
      return {low, _mm512_ternarylogic_epi32(high, codes, bytes(0x80), 0xf8)};
    }
  }
};

[[gnu::always_inline]] inline V pairs(Halves halves, size_t part) {
  return _mm512_permutex2var_epi8(halves.low, index(kPairs[part]), halves.high);
}

/// 16 float32 numbers.
[[gnu::always_inline]] inline V quads(Halves halves, size_t part) {
  constexpr __mmask64 kUpper = 0xcccccccccccccccc;
  return _mm512_maskz_permutex2var_epi8(kUpper, halves.low, index(kQuads[part]), halves.high);
}

template <size_t format, size_t target>
struct DecodeBlock {
  static constexpr size_t kSourceBytes = 1;
  static constexpr size_t kTargetBytes = target == kF32 ? 4 : 2;
  Decoder<format, target> decoder;
  template <bool streaming>
  [[gnu::always_inline]] void run(const unsigned char* src, unsigned char* dst) const {
    const Halves halves = decoder.decode(load(src));
    if constexpr (target == kF32) {
      for (size_t i = 0; i < 4; ++i) store<streaming>(dst, i, quads(halves, i));
    } else {
      for (size_t i = 0; i < 2; ++i) store<streaming>(dst, i, pairs(halves, i));
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
  __m512 scale;

  // Sixteen numbers of `src`, divided.
  [[nodiscard, gnu::always_inline]] V quotients(const unsigned char* src, size_t part) const {
    V value;
    if constexpr (source == kF32) {
      value = load(src + 64 * part);
    } else {
      const __m256i half = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(src) + part);
      value = source == kF16 ? bits(_mm512_cvtph_ps(half))
                             : _mm512_slli_epi32(_mm512_cvtepu16_epi32(half), 16);
    }
    return bits(_mm512_div_ps(floats(value), scale));
  }

  template <bool streaming>
  [[gnu::always_inline]] void run(const unsigned char* src, unsigned char* dst) const {
    const V front =
        encode_words<F32, E4m3, false>(cut_to_odd(quotients(src, 0), quotients(src, 1)));
    const V back = encode_words<F32, E4m3, false>(cut_to_odd(quotients(src, 2), quotients(src, 3)));
    store<streaming>(dst, 0, _mm512_permutex2var_epi8(front, index(kLowBytes), back));
  }
};

template <size_t source>
void encode_scaled(const void* src, void* dst, size_t count, bool is_streaming, float scale) {
  run(EncodeScaledBlock<source>{_mm512_set1_ps(scale)}, src, dst, count, is_streaming);
}

// In the upper halves.
[[gnu::always_inline]] inline V round_to_bf16(V value) {
  const V magnitude = _mm512_and_si512(value, _mm512_set1_epi32(0x7fffffff));
  const __mmask16 is_nan = _mm512_cmpgt_epi32_mask(magnitude, _mm512_set1_epi32(0x7f800000));
  const V lowest = _mm512_and_si512(_mm512_srli_epi32(value, 16), _mm512_set1_epi32(1));
  const V up = _mm512_add_epi32(_mm512_add_epi32(value, _mm512_set1_epi32(0x7fff)), lowest);
  return _mm512_mask_mov_epi32(up, is_nan, _mm512_set1_epi32(-1));
}

template <size_t target>
[[gnu::always_inline]] inline V narrow(V front, V back) {
  if constexpr (target == kF16) {
    const __m256i first = _mm512_cvtps_ph(floats(front), _MM_FROUND_TO_NEAREST_INT);
    const __m256i second = _mm512_cvtps_ph(floats(back), _MM_FROUND_TO_NEAREST_INT);
    return _mm512_inserti64x4(_mm512_castsi256_si512(first), second, 1);
  } else {
    return _mm512_permutex2var_epi16(round_to_bf16(front), index(kOddWords), round_to_bf16(back));
  }
}

template <size_t target>
struct DecodeScaledBlock {
  static constexpr size_t kSourceBytes = 1;
  static constexpr size_t kTargetBytes = target == kF32 ? 4 : 2;
  __m512 scale = {};
  Decoder<kE4m3, kF32> decoder = {};

  template <bool streaming>
  [[gnu::always_inline]] void run(const unsigned char* src, unsigned char* dst) const {
    const Halves halves = decoder.decode(load(src));
    V products[4];
    for (size_t i = 0; i < 4; ++i) {
      products[i] = bits(_mm512_mul_ps(floats(quads(halves, i)), scale));
    }
    if constexpr (target == kF32) {
      for (size_t i = 0; i < 4; ++i) store<streaming>(dst, i, products[i]);
    } else {
      for (size_t i = 0; i < 2; ++i) {
        store<streaming>(dst, i, narrow<target>(products[2 * i], products[2 * i + 1]));
      }
    }
  }
};

template <size_t target>
void decode_scaled(const void* src, void* dst, size_t count, bool is_streaming, float scale) {
  run(DecodeScaledBlock<target>{_mm512_set1_ps(scale)}, src, dst, count, is_streaming);
}

// ---------------------------------------------------------------------------------------------
// The largest magnitude

template <size_t source>
V larger(V a, V b) {
  return source == kF32 ? _mm512_max_epu32(a, b) : _mm512_max_epu16(a, b);
}

template <size_t source>
unsigned abs_max(const void* base, size_t count) {
  constexpr size_t kBytes = source == kF32 ? 4 : 2;
  const auto* src = static_cast<const unsigned char*>(base);
  const V mask = source == kF32 ? _mm512_set1_epi32(0x7fffffff) : words(0x7fff);
  V largest[2] = {_mm512_setzero_si512(), _mm512_setzero_si512()};
  size_t rest = count * kBytes;
  for (; rest >= 128; rest -= 128, src += 128) {
    largest[0] = larger<source>(largest[0], _mm512_and_si512(load(src), mask));
    largest[1] = larger<source>(largest[1], _mm512_and_si512(load(src + 64), mask));
  }
  alignas(64) unsigned char tail[128] = {};
  __builtin_memcpy(tail, src, rest);
  largest[0] = larger<source>(largest[0], _mm512_and_si512(load(tail), mask));
  largest[1] = larger<source>(largest[1], _mm512_and_si512(load(tail + 64), mask));
  V all = larger<source>(largest[0], largest[1]);
  if constexpr (source != kF32) {
    all = _mm512_max_epu16(_mm512_srli_epi32(all, 16),
                           _mm512_and_si512(all, _mm512_set1_epi32(0xffff)));
  }
  unsigned lanes[16];  // g++ 12 warns about its own reduction
  _mm512_storeu_si512(lanes, all);
  unsigned most = 0;
  for (const unsigned lane : lanes) most = lane > most ? lane : most;
  return most;
}

}  // namespace

const Fp8Kernels kFp8Avx512 = {
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
