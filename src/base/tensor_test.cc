// SPDX-License-Identifier: Apache-2.0
#include "aerokv/tensor.h"

#include <gtest/gtest.h>

namespace aerokv {
namespace {

TEST(Tensor, NamesAreTorchsAndParseBack) {
  for (size_t i = 0; i < kDTypes; ++i) {
    const auto dtype = static_cast<DType>(i);
    EXPECT_EQ(parse_dtype(dtype_name(dtype)), dtype);
    EXPECT_EQ(parse_dtype("torch." + std::string(dtype_name(dtype))), dtype);
  }
  EXPECT_EQ(parse_dtype("bfloat17"), std::nullopt);
  EXPECT_EQ(parse_dtype(""), std::nullopt);
}

TEST(Tensor, BytesOfALayoutAreThoseOfItsTensors) {
  const Layout layout = {
      {DType::bfloat16, {2, 3, 5}}, {DType::float32, {}}, {DType::uint8, {0, 9}}};
  EXPECT_EQ(*element_count(layout), 31U);
  EXPECT_EQ(*layout_bytes(layout), 64U);
  EXPECT_EQ(layout_text(layout), "bfloat16[2, 3, 5] + float32[] + uint8[0, 9]");
}

TEST(Tensor, ShapesThatOverflowAreRefused) {
  EXPECT_EQ(element_count(TensorLayout{DType::uint8, {-1}}).error().code(), Code::invalid);
  const int64_t big = int64_t{1} << 40;
  EXPECT_EQ(element_count(TensorLayout{DType::uint8, {big, big}}).error().code(), Code::invalid);
  EXPECT_EQ(*element_count(TensorLayout{DType::uint8, {0, big, big}}), 0U);
  const TensorLayout half{DType::uint8, {int64_t{1} << 48}};
  EXPECT_TRUE(element_count(Layout{half}).has_value());
  EXPECT_EQ(layout_bytes({half, half}).error().code(), Code::invalid);
}

}  // namespace
}  // namespace aerokv
