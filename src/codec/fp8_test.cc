// SPDX-License-Identifier: Apache-2.0
// Every kernel against what torch made of every input, and against the reference.
#include "codec/fp8.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <bit>
#include <cfenv>
#include <cmath>
#include <fstream>
#include <iterator>
#include <limits>
#include <random>
#include <string>
#include <vector>

#include "codec/fp8_scalar.h"

#if defined(__x86_64__)
#include <xmmintrin.h>
#endif

namespace aerokv::codec {
namespace {

constexpr Fp8Format kFormats[] = {Fp8Format::e4m3fn, Fp8Format::e5m2};
constexpr DType kTypes[] = {DType::bfloat16, DType::float16, DType::float32};
constexpr Kernel kKernels[] = {Kernel::scalar, Kernel::avx2, Kernel::avx512, Kernel::neon};
constexpr std::byte kCanary{0xa5};

using Buffer = std::vector<std::byte>;

std::string format_name(Fp8Format format) {
  return format == Fp8Format::e4m3fn ? "float8_e4m3fn" : "float8_e5m2";
}

Buffer read_golden(const std::string& name) {
  std::ifstream file(AEROKV_SOURCE_DIR "/tests/golden/serde/fp8/" + name, std::ios::binary);
  EXPECT_TRUE(file.is_open()) << name;
  const std::string text{std::istreambuf_iterator<char>(file), {}};
  const Bytes bytes = as_bytes(text);
  return {bytes.begin(), bytes.end()};
}

/// All numbers of the type: each of 16 bits, or the list that torch was asked about.
Buffer inputs_of(DType type) {
  if (type == DType::float32) return read_golden("float32_inputs.bin");
  Buffer bytes(2 * 65536);
  for (uint32_t i = 0; i < 65536; ++i) {
    store_le<uint16_t>(bytes.data() + 2 * size_t{i}, static_cast<uint16_t>(i));
  }
  return bytes;
}

std::string golden_codes(DType type, Fp8Format format) {
  const std::string name(dtype_name(type));
  return (type == DType::float32 ? name + "_inputs" : name) + "_to_" + format_name(format) + ".bin";
}

Buffer encode(DType type, Fp8Format format, Overflow overflow, Bytes src, Kernel kernel) {
  Buffer dst(src.size() / dtype_bytes(type));
  fp8_encode(type, format, overflow, src, dst, Stores::cached, kernel);
  return dst;
}

Buffer random_bytes(size_t count, uint64_t seed) {
  std::mt19937_64 random(seed);
  Buffer bytes(count);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
  return bytes;
}

class Fp8Test : public testing::TestWithParam<Kernel> {
 protected:
  void SetUp() override {
    for (const Kernel kernel : available_kernels()) {
      if (kernel == GetParam()) return;
    }
    GTEST_SKIP() << kernel_name(GetParam()) << " is not available here";
  }
};

INSTANTIATE_TEST_SUITE_P(Kernels, Fp8Test, testing::ValuesIn(kKernels),
                         [](const auto& kernel) { return std::string(kernel_name(kernel.param)); });

TEST_P(Fp8Test, EncodesEveryInputAsTorchDoes) {
  for (const DType type : kTypes) {
    const Buffer inputs = inputs_of(type);
    for (const Fp8Format format : kFormats) {
      const Buffer expected = read_golden(golden_codes(type, format));
      const Buffer codes = encode(type, format, Overflow::saturate, inputs, GetParam());
      ASSERT_EQ(codes.size(), expected.size());
      for (size_t i = 0; i < codes.size(); ++i) {
        ASSERT_EQ(codes[i], expected[i])
            << dtype_name(type) << " to " << format_name(format) << ", input " << i;
      }
    }
  }
}

TEST_P(Fp8Test, DecodesEveryCodeAsTorchDoes) {
  Buffer codes(256);
  for (size_t i = 0; i < codes.size(); ++i) codes[i] = static_cast<std::byte>(i);
  for (const Fp8Format format : kFormats) {
    for (const DType type : kTypes) {
      const Buffer expected =
          read_golden(format_name(format) + "_to_" + std::string(dtype_name(type)) + ".bin");
      Buffer numbers(256 * dtype_bytes(type));
      fp8_decode(format, type, codes, numbers, Stores::cached, GetParam());
      EXPECT_EQ(numbers, expected) << format_name(format) << " to " << dtype_name(type);
    }
  }
}

// Older torch: what rounds past 448 is NaN, up to 464, which rounds to even, it is 448.
TEST_P(Fp8Test, MakesOverflowNanWhereAsked) {
  for (const DType type : kTypes) {
    const Buffer inputs = inputs_of(type);
    const Buffer saturated =
        encode(type, Fp8Format::e4m3fn, Overflow::saturate, inputs, GetParam());
    const Buffer codes = encode(type, Fp8Format::e4m3fn, Overflow::nan, inputs, GetParam());
    for (size_t i = 0; i < codes.size(); ++i) {
      uint32_t value = 0;
      if (type == DType::bfloat16) {
        value = static_cast<uint32_t>(i) << 16;
      } else if (type == DType::float16) {
        value = f16_to_f32_bits(static_cast<uint16_t>(i));
      } else {
        value = load_le<uint32_t>(inputs.data() + 4 * i);
      }
      const bool is_past = (value & 0x7fffffffU) > std::bit_cast<uint32_t>(464.0F);
      const std::byte expected = is_past ? saturated[i] | std::byte{1} : saturated[i];
      ASSERT_EQ(codes[i], expected) << dtype_name(type) << ", input " << i;
    }
    EXPECT_EQ(encode(type, Fp8Format::e5m2, Overflow::nan, inputs, GetParam()),
              encode(type, Fp8Format::e5m2, Overflow::saturate, inputs, GetParam()));
  }
}

TEST_P(Fp8Test, EncodesRandomNumbersAsTheReferenceDoes) {
  const uint64_t seed = std::random_device()();
  SCOPED_TRACE("seed " + std::to_string(seed));
  const Buffer inputs = random_bytes(4 << 20, seed);
  for (const DType type : kTypes) {
    for (const Fp8Format format : kFormats) {
      for (const Overflow overflow : {Overflow::saturate, Overflow::nan}) {
        EXPECT_EQ(encode(type, format, overflow, inputs, GetParam()),
                  encode(type, format, overflow, inputs, Kernel::scalar));
      }
    }
  }
}

// Random bits are rarely near the range of 8-bit floats; these are.
TEST_P(Fp8Test, EncodesSmallNumbersAsTheReferenceDoes) {
  const uint64_t seed = std::random_device()();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937_64 random(seed);
  Buffer inputs(4 << 20);
  for (size_t i = 0; i < inputs.size(); i += 4) {
    const auto bits = static_cast<uint32_t>(random());
    const uint32_t exponent = 100 + bits % 40;
    store_le<uint32_t>(inputs.data() + i, (bits & 0x807ff000U) | exponent << 23 | (bits >> 30));
  }
  for (const Fp8Format format : kFormats) {
    EXPECT_EQ(encode(DType::float32, format, Overflow::saturate, inputs, GetParam()),
              encode(DType::float32, format, Overflow::saturate, inputs, Kernel::scalar));
  }
}

/// Runs `transform` for every length up to 67 and for misaligned buffers, and compares with the
/// same run of the reference; no byte before or behind the target may change.
template <typename Transform>
void check_edges(Kernel kernel_under_test, size_t source_bytes, size_t target_bytes, Bytes source,
                 const Transform& transform) {
  for (size_t count = 0; count <= 300; count = count < 67 ? count + 1 : count + 77) {
    for (size_t offset = 0; offset <= 33; ++offset) {
      const Stores stores = offset % 2 == 0 ? Stores::streaming : Stores::cached;
      const size_t other = (offset * 7) % 34;
      const Bytes from = source.subspan(other, count * source_bytes);
      Buffer expected(count * target_bytes);
      transform(from, expected, Stores::cached, Kernel::scalar);
      Buffer target(offset + expected.size() + 64, kCanary);
      const MutableBytes to = MutableBytes(target).subspan(offset, expected.size());
      transform(from, to, stores, kernel_under_test);
      ASSERT_TRUE(std::equal(to.begin(), to.end(), expected.begin()))
          << count << " elements, offsets " << other << " and " << offset;
      for (size_t i = 0; i < target.size(); ++i) {
        if (i >= offset && i < offset + to.size()) continue;
        ASSERT_EQ(target[i], kCanary) << count << " elements, offset " << offset;
      }
    }
  }
}

TEST_P(Fp8Test, KeepsToItsBuffers) {
  const Buffer source = random_bytes(4096, 7);
  for (const DType type : kTypes) {
    for (const Fp8Format format : kFormats) {
      check_edges(GetParam(), dtype_bytes(type), 1, source,
                  [&](Bytes from, MutableBytes to, Stores stores, Kernel kernel) {
                    fp8_encode(type, format, Overflow::saturate, from, to, stores, kernel);
                  });
      check_edges(GetParam(), 1, dtype_bytes(type), source,
                  [&](Bytes from, MutableBytes to, Stores stores, Kernel kernel) {
                    fp8_decode(format, type, from, to, stores, kernel);
                  });
    }
    check_edges(GetParam(), dtype_bytes(type), 1, source,
                [&](Bytes from, MutableBytes to, Stores stores, Kernel kernel) {
                  fp8_encode_scaled(type, 0.37F, from, to, stores, kernel);
                });
    check_edges(GetParam(), 1, dtype_bytes(type), source,
                [&](Bytes from, MutableBytes to, Stores stores, Kernel kernel) {
                  fp8_decode_scaled(type, 0.37F, from, to, stores, kernel);
                });
  }
}

/// Buffers of numbers that mean something: random ones, small ones, special ones.
Buffer numbers_of(DType type, size_t count, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::normal_distribution<float> normal(0.0F, 3.0F);
  const size_t bytes = dtype_bytes(type);
  Buffer numbers(count * bytes);
  for (size_t i = 0; i < count; ++i) {
    auto bits = std::bit_cast<uint32_t>(normal(random));
    if (i % 7 == 0) bits = static_cast<uint32_t>(random());
    if (type == DType::float32) {
      store_le<uint32_t>(numbers.data() + 4 * i, bits);
    } else {
      store_le<uint16_t>(numbers.data() + 2 * i,
                         type == DType::bfloat16 ? f32_to_bf16_bits(bits) : f32_to_f16_bits(bits));
    }
  }
  return numbers;
}

constexpr float kScales[] = {1.0F,
                             0.37F,
                             -0.02F,
                             448.0F,
                             3.1e-42F,
                             1.0e-45F,
                             1.2e-38F,
                             3.0e38F,
                             7.5e20F,
                             2.0e-7F,
                             0.0F,
                             -0.0F,
                             std::numeric_limits<float>::infinity(),
                             -std::numeric_limits<float>::infinity(),
                             std::numeric_limits<float>::quiet_NaN()};

TEST_P(Fp8Test, ScalesAsTheReferenceDoes) {
  const uint64_t seed = std::random_device()();
  SCOPED_TRACE("seed " + std::to_string(seed));
  const Buffer codes = random_bytes(5000, seed);
  for (const DType type : kTypes) {
    const Buffer numbers =
        type == DType::float32 ? numbers_of(type, 20'000, seed) : inputs_of(type);
    for (const float scale : kScales) {
      SCOPED_TRACE(std::string(dtype_name(type)) + " by " + std::to_string(scale));
      Buffer expected(numbers.size() / dtype_bytes(type));
      Buffer scaled(expected.size());
      fp8_encode_scaled(type, scale, numbers, expected, Stores::cached, Kernel::scalar);
      fp8_encode_scaled(type, scale, numbers, scaled, Stores::streaming, GetParam());
      ASSERT_EQ(scaled, expected);
      expected.assign(codes.size() * dtype_bytes(type), std::byte{0});
      scaled = expected;
      fp8_decode_scaled(type, scale, codes, expected, Stores::cached, Kernel::scalar);
      fp8_decode_scaled(type, scale, codes, scaled, Stores::streaming, GetParam());
      ASSERT_EQ(scaled, expected);
    }
  }
}

TEST_P(Fp8Test, FindsTheLargestMagnitude) {
  const uint64_t seed = std::random_device()();
  SCOPED_TRACE("seed " + std::to_string(seed));
  for (const DType type : kTypes) {
    const Buffer numbers = numbers_of(type, 400, seed);
    const size_t element = dtype_bytes(type);
    for (size_t count = 0; count <= 300; ++count) {
      const Bytes some = Bytes(numbers).subspan((count % 5) * element, count * element);
      EXPECT_EQ(std::bit_cast<uint32_t>(abs_max(type, some, GetParam())),
                std::bit_cast<uint32_t>(abs_max(type, some, Kernel::scalar)))
          << dtype_name(type) << ", " << count;
    }
    // One NaN anywhere is the largest of all.
    const Buffer nan(element, std::byte{0xff});
    for (size_t at = 0; at < 200; ++at) {
      Buffer zeros(200 * element);
      std::copy(nan.begin(), nan.end(), zeros.begin() + static_cast<ptrdiff_t>(at * element));
      EXPECT_TRUE(std::isnan(abs_max(type, zeros, GetParam()))) << at;
    }
  }
}

TEST_P(Fp8Test, GivesSlicesWhatTheWholeGets) {
  const uint64_t seed = std::random_device()();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937_64 random(seed);
  for (const DType type : kTypes) {
    const size_t element = dtype_bytes(type);
    const Buffer numbers = numbers_of(type, 10'000, seed);
    const Buffer whole = encode(type, Fp8Format::e4m3fn, Overflow::saturate, numbers, GetParam());
    Buffer decoded(numbers.size());
    fp8_decode(Fp8Format::e4m3fn, type, whole, decoded, Stores::cached, GetParam());
    Buffer codes(whole.size());
    Buffer back(numbers.size());
    for (size_t at = 0; at < whole.size();) {
      const size_t count = std::min<size_t>(random() % 700, whole.size() - at);
      const Stores stores = random() % 2 == 0 ? Stores::cached : Stores::streaming;
      const MutableBytes some = MutableBytes(codes).subspan(at, count);
      fp8_encode(type, Fp8Format::e4m3fn, Overflow::saturate,
                 Bytes(numbers).subspan(at * element, count * element), some, stores, GetParam());
      fp8_decode(Fp8Format::e4m3fn, type, some,
                 MutableBytes(back).subspan(at * element, count * element), stores, GetParam());
      at += count;
    }
    EXPECT_EQ(codes, whole);
    EXPECT_EQ(back, decoded);
  }
}

// Hosts set these for themselves, some compilers for everybody.
TEST_P(Fp8Test, IgnoresTheFloatingPointEnvironment) {
  const Buffer codes = random_bytes(1000, 3);
  const auto everything = [&] {
    std::vector<Buffer> results;
    for (const DType type : kTypes) {
      const Buffer numbers = inputs_of(type);
      for (const Fp8Format format : kFormats) {
        results.push_back(encode(type, format, Overflow::saturate, numbers, GetParam()));
        results.emplace_back(codes.size() * dtype_bytes(type));
        fp8_decode(format, type, codes, results.back(), Stores::cached, GetParam());
      }
      for (const float scale : {0.37F, 3.0e-42F}) {
        results.emplace_back(numbers.size() / dtype_bytes(type));
        fp8_encode_scaled(type, scale, numbers, results.back(), Stores::cached, GetParam());
        results.emplace_back(codes.size() * dtype_bytes(type));
        fp8_decode_scaled(type, scale, codes, results.back(), Stores::cached, GetParam());
      }
    }
    Buffer scales(4);
    store_le<uint32_t>(scales.data(),
                       std::bit_cast<uint32_t>(fp8_scale(std::bit_cast<float>(0x00012345U))));
    results.push_back(scales);
    return results;
  };
  const std::vector<Buffer> expected = everything();
  std::fenv_t saved;
  std::fegetenv(&saved);
  std::vector<std::vector<Buffer>> others;
#if defined(__x86_64__)
  _mm_setcsr(_mm_getcsr() | 0x8040);  // flush to zero, denormals are zero
  others.push_back(everything());
  EXPECT_EQ(_mm_getcsr() & 0x8040, 0x8040U);  // what the caller chose stays
  std::fesetenv(&saved);
#endif
  for (const int rounding : {FE_UPWARD, FE_DOWNWARD, FE_TOWARDZERO}) {
    std::fesetround(rounding);
    others.push_back(everything());
    EXPECT_EQ(std::fegetround(), rounding);
  }
  std::fesetenv(&saved);
  for (const std::vector<Buffer>& other : others) EXPECT_TRUE(other == expected);
}

TEST(Fp8ScaleTest, IsTheLargestMagnitudeOver448) {
  EXPECT_EQ(fp8_scale(448.0F), 1.0F);
  EXPECT_EQ(fp8_scale(3.0F), 3.0F / 448.0F);
  EXPECT_EQ(fp8_scale(0.0F), 1.0F);
  EXPECT_EQ(fp8_scale(std::numeric_limits<float>::quiet_NaN()), 1.0F);
  EXPECT_EQ(fp8_scale(std::numeric_limits<float>::infinity()),
            std::numeric_limits<float>::infinity());
}

}  // namespace
}  // namespace aerokv::codec
