// SPDX-License-Identifier: Apache-2.0
// Every kernel gives the same bytes, whatever the alignment, the length and the thread's float
// environment. What the bytes are is shown by the golden vectors in serde/quantized_test.cc.
#include "codec/quantize.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cfenv>
#include <iostream>
#include <random>
#include <vector>
#if defined(__SSE2__)
#include <xmmintrin.h>
#endif

namespace aerokv::codec {
namespace {

struct Outcome {
  std::vector<std::byte> lows, highs, codes, back;
  std::optional<uint64_t> bad;
  bool operator==(const Outcome&) const = default;
};

/// With everything `shift` bytes from where it would be aligned.
Outcome run(const QuantizeShape& shape, Bytes source, Kernel kernel, size_t shift = 0) {
  const auto place = [shift](uint64_t size) { return std::vector<std::byte>(size + shift); };
  const auto inner = [shift](std::vector<std::byte>& bytes) {
    return MutableBytes(bytes).subspan(shift);
  };
  std::vector<std::byte> moved = place(source.size());
  std::copy(source.begin(), source.end(), inner(moved).begin());
  Outcome out{place(shape.extreme_bytes()),
              place(shape.extreme_bytes()),
              place(shape.code_bytes()),
              place(shape.source_bytes()),
              {}};
  out.bad =
      quantize(shape, inner(moved), inner(out.lows), inner(out.highs), inner(out.codes), kernel);
  if (!out.bad) {
    EXPECT_TRUE(dequantize(shape, inner(out.lows), inner(out.highs), inner(out.codes),
                           inner(out.back), kernel));
  }
  for (auto* bytes : {&out.lows, &out.highs, &out.codes, &out.back}) {
    bytes->erase(bytes->begin(), bytes->begin() + static_cast<ptrdiff_t>(shift));
  }
  return out;
}

/// Finite numbers of all sizes, subnormal ones and zeros among them.
std::vector<std::byte> numbers(DType dtype, uint64_t count, std::mt19937_64& random) {
  std::vector<std::byte> bytes(count * dtype_bytes(dtype));
  const size_t exponents = dtype == DType::float16 ? 30 : 250;
  for (uint64_t i = 0; i < count; ++i) {
    const uint64_t sign = random() % 2;
    const uint64_t exponent = random() % 8 == 0 ? random() % exponents : exponents / 2;
    const uint64_t mantissa = random();
    if (dtype == DType::float32) {
      store_le(&bytes[4 * i],
               static_cast<uint32_t>(sign << 31 | exponent << 23 | (mantissa & 0x7fffff)));
    } else {
      const unsigned width = dtype == DType::float16 ? 10 : 7;
      store_le(&bytes[2 * i], static_cast<uint16_t>(sign << 15 | exponent << width |
                                                    (mantissa & ((1U << width) - 1))));
    }
  }
  return bytes;
}

constexpr DType kTypes[] = {DType::bfloat16, DType::float16, DType::float32};

TEST(Quantize, KernelsAgreeOnAllLengthsAndAlignments) {
  std::mt19937_64 random(20261);
  for (const Kernel kernel : {Kernel::avx2, Kernel::avx512, Kernel::neon}) {
    const auto& all = available_kernels();
    if (std::find(all.begin(), all.end(), kernel) == all.end()) {
      std::cout << "not run: " << kernel_name(kernel) << "\n";
    }
  }
  for (const DType dtype : kTypes) {
    for (const CodeBits bits : {CodeBits::four, CodeBits::eight}) {
      for (uint64_t columns = 1; columns <= 67; ++columns) {
        for (const uint64_t group : {uint64_t{0}, uint64_t{1}, columns}) {
          const QuantizeShape shape{dtype, bits, 5, columns, group};
          const auto source = numbers(dtype, 5 * columns, random);
          const Outcome expected = run(shape, source, Kernel::scalar);
          for (const Kernel kernel : available_kernels()) {
            for (const size_t shift : {size_t{0}, size_t{1}, size_t{7}}) {
              ASSERT_EQ(run(shape, source, kernel, shift), expected)
                  << kernel_name(kernel) << ", " << dtype_name(dtype) << ", " << columns
                  << " columns, group " << group << ", shift " << shift << ", seed 20261";
            }
          }
        }
      }
    }
  }
}

TEST(Quantize, TheThreadsFloatEnvironmentDoesNotMatter) {
  std::mt19937_64 random(20262);
  for (const DType dtype : kTypes) {
    for (const CodeBits bits : {CodeBits::four, CodeBits::eight}) {
      auto source = numbers(dtype, 64 * 32, random);
      // Subnormal numbers in the first rows.
      for (size_t i = 0; i < 32 * 8; ++i) {
        if (dtype == DType::float32)
          store_le(&source[4 * i], static_cast<uint32_t>(random() % 4000));
        if (dtype != DType::float32)
          store_le(&source[2 * i], static_cast<uint16_t>(random() % 100));
      }
      const QuantizeShape shape{dtype, bits, 64, 32, 16};
      const Outcome expected = run(shape, source, active_kernel());
      std::fenv_t before;
      std::fegetenv(&before);
      std::fesetround(FE_UPWARD);
#if defined(__SSE2__)
      _mm_setcsr(_mm_getcsr() | 0x8040);  // flush to zero, subnormals are zeros
      const unsigned control = _mm_getcsr();
#endif
      const Outcome seen = run(shape, source, active_kernel());
#if defined(__SSE2__)
      EXPECT_EQ(_mm_getcsr() & ~0x3fU, control & ~0x3fU) << "the thread's own settings are back";
#endif
      EXPECT_EQ(std::fegetround(), FE_UPWARD);
      std::fesetenv(&before);
      EXPECT_EQ(seen, expected) << dtype_name(dtype);
    }
  }
}

TEST(Quantize, UnfitElementsAreNamed) {
  std::mt19937_64 random(20263);
  for (const DType dtype : kTypes) {
    for (const CodeBits bits : {CodeBits::four, CodeBits::eight}) {
      for (const uint64_t group : {0U, 8U}) {
        for (const bool is_nan : {false, true}) {
          const QuantizeShape shape{dtype, bits, 4, 16, group};
          auto source = numbers(dtype, 64, random);
          for (const size_t at : {37U, 45U}) {
            const uint32_t special = (is_nan ? 0x7fc00000U : 0xff800000U);
            if (dtype == DType::float32) store_le(&source[4 * at], special);
            if (dtype == DType::bfloat16) {
              store_le(&source[2 * at], static_cast<uint16_t>(special >> 16));
            }
            if (dtype == DType::float16) {
              store_le(&source[2 * at], static_cast<uint16_t>(is_nan ? 0xfe00 : 0x7c00));
            }
          }
          for (const Kernel kernel : available_kernels()) {
            EXPECT_EQ(run(shape, source, kernel).bad, 37U) << dtype_name(dtype);
          }
        }
      }
    }
  }
}

TEST(Quantize, RangesThatNoFloatHoldsAreRefusedWithFourBits) {
  std::vector<std::byte> source(4 * 8);
  for (const size_t at : {5U, 3U}) {
    store_le(&source[4 * at], std::bit_cast<uint32_t>(at == 3 ? 3e38F : -3e38F));
  }
  for (const uint64_t group : {uint64_t{0}, uint64_t{8}}) {
    // By column: one column of eight rows. By run: one row of eight columns.
    const QuantizeShape shape{DType::float32, CodeBits::four, group == 0 ? 8U : 1U,
                              group == 0 ? 1U : 8U, group};
    EXPECT_EQ(run(shape, source, active_kernel()).bad, 5U);
    QuantizeShape eight = shape;
    eight.bits = CodeBits::eight;
    EXPECT_EQ(run(eight, source, active_kernel()).bad, std::nullopt);
  }
}

TEST(Quantize, ExtremesThatAreNoNumbersAreRefusedOnTheWayBack) {
  const uint16_t kInfinity = 0x7f80;
  const uint16_t kOne = 0x3f80;
  const uint16_t kMinusOne = 0xbf80;
  const struct {
    CodeBits bits;
    uint16_t low, high;
    bool is_good;
  } cases[] = {
      {CodeBits::eight, 0, kOne, true},        {CodeBits::eight, 0, kInfinity, false},
      {CodeBits::eight, 0, 0x7fc0, false},     {CodeBits::eight, 0, kMinusOne, false},
      {CodeBits::four, kMinusOne, kOne, true}, {CodeBits::four, kOne, kMinusOne, false},
      {CodeBits::four, 0xff80, kOne, false},   {CodeBits::four, kOne, kInfinity, false},
      {CodeBits::four, 0xffff, kOne, false},   {CodeBits::four, kOne, kOne, true},
      {CodeBits::four, 0xff7f, 0x7f7f, false},
  };
  for (const auto& one : cases) {
    for (const uint64_t group : {uint64_t{0}, uint64_t{1}}) {
      const QuantizeShape shape{DType::bfloat16, one.bits, 1, 1, group};
      std::byte low[2];
      std::byte high[2];
      std::byte back[2];
      store_le(low, one.low);
      store_le(high, one.high);
      const std::byte code{0x88};  // of 8 bits: -120
      for (const Kernel kernel : available_kernels()) {
        EXPECT_EQ(dequantize(shape, low, high, Bytes(&code, 1), back, kernel), one.is_good);
      }
    }
  }
}

TEST(Quantize, NoMatrixAndEmptyRowsAreFine) {
  for (const CodeBits bits : {CodeBits::four, CodeBits::eight}) {
    const QuantizeShape shape{DType::bfloat16, bits, 0, 8, 8};
    EXPECT_EQ(run(shape, {}, active_kernel()).bad, std::nullopt);
  }
}

}  // namespace
}  // namespace aerokv::codec
