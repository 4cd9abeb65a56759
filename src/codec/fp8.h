// SPDX-License-Identifier: Apache-2.0
// Floating-point numbers as 8 bits, bit for bit as torch 2.13 converts them, for every input.
//
// No result depends on the rounding mode, flush-to-zero or denormals-are-zero of the calling
// thread, on the kernel, on alignment, or on how a tensor is cut into calls. Pure functions without
// threads; they never fail. docs/formats/fp8.md has the rules of conversion.
#pragma once

#include <cstdint>

#include "aerokv/bytes.h"
#include "aerokv/tensor.h"
#include "codec/kernels.h"

namespace aerokv::codec {

enum class Fp8Format : uint8_t {
  e4m3fn,  ///< 4 bits of exponent, 3 of mantissa, no infinity
  e5m2,    ///< 5 bits of exponent, 2 of mantissa, with infinity
};

/// What becomes of numbers over the largest one of e4m3fn. e5m2 has an infinity, so both are the
/// same there.
enum class Overflow : uint8_t {
  saturate,  ///< +-448, infinity too: torch 2.13
  nan,       ///< NaN, infinity too: older torch
};

/// Where the bytes of the target go.
enum class Stores : uint8_t {
  cached,     ///< through the caches
  streaming,  ///< around them, where the kernel and the alignment allow it: for targets that the
              ///< caches cannot hold anyway
};

/// Targets from this size on are better written around the caches.
inline constexpr size_t kStreamingBytes = size_t{4} << 20;

/// Stores::streaming from kStreamingBytes on. Who cuts a large target into slices asks this for the
/// whole.
constexpr Stores stores_for(size_t target_bytes) {
  return target_bytes >= kStreamingBytes ? Stores::streaming : Stores::cached;
}

/// bfloat16, float16 and float32: what the functions below convert from and to.
constexpr bool is_fp8_source(DType dtype) {
  return dtype == DType::bfloat16 || dtype == DType::float16 || dtype == DType::float32;
}

/// Converts all elements of `src`, of type `from`, to one byte each.
/// Requires is_fp8_source(from), src.size() == dst.size() * dtype_bytes(from), no overlap.
void fp8_encode(DType from, Fp8Format format, Overflow overflow, Bytes src, MutableBytes dst,
                Stores stores, Kernel kernel);
void fp8_encode(DType from, Fp8Format format, Overflow overflow, Bytes src, MutableBytes dst);

/// Converts all bytes of `src` to elements of type `to`.
/// Requires is_fp8_source(to), dst.size() == src.size() * dtype_bytes(to), no overlap.
void fp8_decode(Fp8Format format, DType to, Bytes src, MutableBytes dst, Stores stores,
                Kernel kernel);
void fp8_decode(Fp8Format format, DType to, Bytes src, MutableBytes dst);

/// The largest magnitude; 0 of no elements; NaN if there is one.
/// Requires is_fp8_source(from), src.size() % dtype_bytes(from) == 0.
float abs_max(DType from, Bytes src, Kernel kernel);
float abs_max(DType from, Bytes src);

/// The scale of numbers whose largest magnitude is `largest`: `largest` / 448 in float32, and 1 for
/// 0 and NaN.
float fp8_scale(float largest);

/// Divides by `scale` in float32, then converts to e4m3fn, saturating. As fp8_encode() otherwise.
void fp8_encode_scaled(DType from, float scale, Bytes src, MutableBytes dst, Stores stores,
                       Kernel kernel);
void fp8_encode_scaled(DType from, float scale, Bytes src, MutableBytes dst);

/// Converts from e4m3fn to float32, multiplies by `scale` and rounds to `to`, to nearest even.
/// As fp8_decode() otherwise.
void fp8_decode_scaled(DType to, float scale, Bytes src, MutableBytes dst, Stores stores,
                       Kernel kernel);
void fp8_decode_scaled(DType to, float scale, Bytes src, MutableBytes dst);

}  // namespace aerokv::codec
