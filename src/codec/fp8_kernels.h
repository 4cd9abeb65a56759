// SPDX-License-Identifier: Apache-2.0
// What one instruction set offers to fp8.cc.
//
// Kernel files are compiled with instructions that the processor may not have. Hence they include
// nothing with inline functions of its own, since the linker may keep their copy for everybody, and
// keep what they define in unnamed namespaces.
#pragma once

#include <cstddef>

namespace aerokv::codec {

/// Indices into the tables below.
inline constexpr size_t kBf16 = 0;
inline constexpr size_t kF16 = 1;
inline constexpr size_t kF32 = 2;
inline constexpr size_t kE4m3 = 0;
inline constexpr size_t kE5m2 = 1;
inline constexpr size_t kSaturate = 0;
inline constexpr size_t kNan = 1;

/// `count` elements from `src` to `dst`, neither aligned.
using Fp8Convert = void (*)(const void* src, void* dst, size_t count, bool is_streaming);

/// The same with a finite scale that is not 0, in the default floating-point environment.
using Fp8Scale = void (*)(const void* src, void* dst, size_t count, bool is_streaming, float scale);

/// The largest magnitude of `count` elements as the bits of their type, sign cleared.
using AbsMaxBits = unsigned (*)(const void* src, size_t count);

struct Fp8Kernels {
  Fp8Convert encode[3][2][2];  ///< by source, format and overflow
  Fp8Convert decode[2][3];     ///< by format and target
  AbsMaxBits abs_max[3];       ///< by source
  Fp8Scale encode_scaled[3];   ///< by source
  Fp8Scale decode_scaled[3];   ///< by target
};

/// The reference as tables: the two upper bytes of what a code without sign decodes to, lower one
/// first, by format, target, byte and code.
struct Fp8Decoded {
  unsigned char at[2][3][2][128];
};
extern const Fp8Decoded kFp8Decoded;

/// In the default floating-point environment, which is why this is not inline.
float divide_by_448(float value);

extern const Fp8Kernels kFp8Scalar;
extern const Fp8Kernels kFp8Avx2;
extern const Fp8Kernels kFp8Avx512;
extern const Fp8Kernels kFp8Neon;

}  // namespace aerokv::codec
