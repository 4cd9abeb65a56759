// SPDX-License-Identifier: Apache-2.0
#include "codec/planes.h"

#include <gtest/gtest.h>

#include <cstdio>

#include "codec/frame_testing.h"

namespace aerokv::codec {
namespace {

constexpr PlaneShape kShapes[] = {{2, false}, {2, true}, {4, false}, {4, true}};

// Bit by bit, from the format's page: bit b of the rotated element is bit b - 1 of the element.
std::byte expected_byte(Bytes element, PlaneShape shape, size_t plane) {
  const size_t bits = 8 * element.size();
  unsigned value = 0;
  for (size_t bit = 0; bit < 8; ++bit) {
    const size_t from = (8 * plane + bit + bits - (shape.is_rotated ? 1 : 0)) % bits;
    const unsigned one = (std::to_integer<unsigned>(element[from / 8]) >> (from % 8)) & 1U;
    value |= one << bit;
  }
  return static_cast<std::byte>(value);
}

void expect_split_and_merge(Bytes source, PlaneShape shape, size_t misalignment, Kernel kernel) {
  const size_t count = source.size() / shape.planes;
  std::vector<Guarded> planes(shape.planes, Guarded(count, misalignment));
  PlanePointers to{};
  ConstPlanePointers from{};
  for (size_t i = 0; i < shape.planes; ++i) from[i] = to[i] = planes[i].bytes().data();
  const std::string what = std::string(kernel_name(kernel)) + ", " + std::to_string(shape.planes) +
                           (shape.is_rotated ? " rotated" : "") + " planes of " +
                           std::to_string(count);
  split_planes(source, shape, to, kernel);
  for (size_t i = 0; i < shape.planes; ++i) {
    EXPECT_TRUE(planes[i].is_intact()) << what;
    for (size_t k = 0; k < count; ++k) {
      const Bytes element = source.subspan(k * shape.planes, shape.planes);
      ASSERT_EQ(planes[i].bytes()[k], expected_byte(element, shape, i)) << what << " at " << k;
    }
  }
  Guarded merged(source.size(), misalignment + 1);
  merge_planes(from, shape, merged.bytes(), kernel);
  EXPECT_TRUE(equal(merged.bytes(), source)) << what;
  EXPECT_TRUE(merged.is_intact()) << what;
}

TEST(Planes, EveryKernelDoesWhatTheFormatSays) {
  std::printf("kernels not run here:%s\n", kernels_not_run().c_str());
  const Buffer data = random_bytes(8192, 1);
  for (const Kernel kernel : available_kernels()) {
    for (const PlaneShape shape : kShapes) {
      for (size_t count = 0; count <= 133; ++count) {
        expect_split_and_merge(Bytes(data).subspan(count % 37, count * shape.planes), shape,
                               count % 41, kernel);
      }
      expect_split_and_merge(Bytes(data).first(8188), shape, 5, kernel);
    }
  }
}

TEST(Planes, PutTheExponentOfBfloat16IntoOneByte) {
  // -1.0 is 0xbf80: sign 1, exponent 127, mantissa 0.
  const Buffer element = hex("80bf");
  Buffer low(1);
  Buffer high(1);
  split_planes(element, plane_shape(DType::bfloat16), {low.data(), high.data()}, Kernel::scalar);
  EXPECT_EQ(high[0], std::byte{127});
  EXPECT_EQ(low[0], std::byte{1});
}

TEST(Planes, ShapeFollowsTheType) {
  for (size_t i = 0; i < kDTypes; ++i) {
    const auto dtype = static_cast<DType>(i);
    const PlaneShape shape = plane_shape(dtype);
    const size_t bytes = dtype_bytes(dtype);
    EXPECT_EQ(shape.planes, bytes == 8 ? 1U : bytes) << dtype_name(dtype);
    EXPECT_EQ(shape.is_rotated,
              shape.planes > 1 && dtype_name(dtype).find("float") < dtype_name(dtype).size())
        << dtype_name(dtype);
  }
}

}  // namespace
}  // namespace aerokv::codec
