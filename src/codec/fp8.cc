// SPDX-License-Identifier: Apache-2.0
#include "codec/fp8.h"

#include <bit>
#include <cfenv>

#include "codec/fp8_kernels.h"
#include "codec/fp8_scalar.h"

namespace aerokv::codec {
namespace {

const Fp8Kernels& kernels_of(Kernel kernel) {
  switch (kernel) {
#if defined(__x86_64__)
    case Kernel::avx2:
      return kFp8Avx2;
    case Kernel::avx512:
      return kFp8Avx512;
#elif defined(__aarch64__)
    case Kernel::neon:
      return kFp8Neon;
#endif
    default:
      return kFp8Scalar;
  }
}

size_t index_of(DType dtype) {
  if (dtype == DType::bfloat16) return kBf16;
  return dtype == DType::float16 ? kF16 : kF32;
}

// Scaling is real arithmetic: it runs with the rounding and the subnormal numbers that torch has,
// whatever the host process chose for itself.
class DefaultEnvironment {
 public:
  DefaultEnvironment() {
    std::fegetenv(&saved_);
    std::fesetenv(FE_DFL_ENV);
  }
  ~DefaultEnvironment() { std::fesetenv(&saved_); }
  DefaultEnvironment(const DefaultEnvironment&) = delete;
  DefaultEnvironment& operator=(const DefaultEnvironment&) = delete;

 private:
  std::fenv_t saved_ = {};
};

// NaN, infinity and 0 as a scale make NaN, whose sign and payload instruction sets choose
// differently; the reference spells them out.
const Fp8Kernels& scaling_kernels(float scale, Kernel kernel) {
  const uint32_t magnitude = std::bit_cast<uint32_t>(scale) & 0x7fffffffU;
  const bool is_plain = magnitude != 0 && magnitude < 0x7f800000U;
  return kernels_of(is_plain ? kernel : Kernel::scalar);
}

}  // namespace

void fp8_encode(DType from, Fp8Format format, Overflow overflow, Bytes src, MutableBytes dst,
                Stores stores, Kernel kernel) {
  kernels_of(kernel)
      .encode[index_of(from)][static_cast<size_t>(format)][static_cast<size_t>(overflow)](
          src.data(), dst.data(), dst.size(), stores == Stores::streaming);
}

void fp8_encode(DType from, Fp8Format format, Overflow overflow, Bytes src, MutableBytes dst) {
  fp8_encode(from, format, overflow, src, dst, stores_for(dst.size()), active_kernel());
}

void fp8_decode(Fp8Format format, DType to, Bytes src, MutableBytes dst, Stores stores,
                Kernel kernel) {
  kernels_of(kernel).decode[static_cast<size_t>(format)][index_of(to)](
      src.data(), dst.data(), src.size(), stores == Stores::streaming);
}

void fp8_decode(Fp8Format format, DType to, Bytes src, MutableBytes dst) {
  fp8_decode(format, to, src, dst, stores_for(dst.size()), active_kernel());
}

float abs_max(DType from, Bytes src, Kernel kernel) {
  const unsigned bits =
      kernels_of(kernel).abs_max[index_of(from)](src.data(), src.size() / dtype_bytes(from));
  switch (from) {
    case DType::bfloat16:
      return std::bit_cast<float>(bits << 16);
    case DType::float16:
      return std::bit_cast<float>(f16_to_f32_bits(static_cast<uint16_t>(bits)));
    default:
      return std::bit_cast<float>(bits);
  }
}

float abs_max(DType from, Bytes src) {
  return abs_max(from, src, active_kernel());
}

float fp8_scale(float largest) {
  const auto bits = std::bit_cast<uint32_t>(largest);
  if (bits == 0 || bits > 0x7f800000U) return 1.0F;
  const DefaultEnvironment environment;
  return divide_by_448(largest);
}

void fp8_encode_scaled(DType from, float scale, Bytes src, MutableBytes dst, Stores stores,
                       Kernel kernel) {
  const DefaultEnvironment environment;
  scaling_kernels(scale, kernel)
      .encode_scaled[index_of(from)](src.data(), dst.data(), dst.size(),
                                     stores == Stores::streaming, scale);
}

void fp8_encode_scaled(DType from, float scale, Bytes src, MutableBytes dst) {
  fp8_encode_scaled(from, scale, src, dst, stores_for(dst.size()), active_kernel());
}

void fp8_decode_scaled(DType to, float scale, Bytes src, MutableBytes dst, Stores stores,
                       Kernel kernel) {
  const DefaultEnvironment environment;
  scaling_kernels(scale, kernel)
      .decode_scaled[index_of(to)](src.data(), dst.data(), src.size(), stores == Stores::streaming,
                                   scale);
}

void fp8_decode_scaled(DType to, float scale, Bytes src, MutableBytes dst) {
  fp8_decode_scaled(to, scale, src, dst, stores_for(dst.size()), active_kernel());
}

}  // namespace aerokv::codec
