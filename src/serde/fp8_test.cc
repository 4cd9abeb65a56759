// SPDX-License-Identifier: Apache-2.0
// The serde around the conversions: layouts, sizes, slices, parameters. codec/fp8_test.cc has the
// numbers.
#include "codec/fp8.h"

#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

#include "aerokv/serde.h"
#include "serde/builtin.h"
#include "serde/golden_testing.h"

namespace aerokv::serde {
namespace {

using Buffer = std::vector<std::byte>;

Serde make(const SerdeParams& params = {}) {
  Result<Serde> made = make_fp8(params);
  EXPECT_TRUE(made) << made.error().message();
  return *std::move(made);
}

Buffer random_object(const Layout& layout) {
  std::mt19937_64 random(9);
  Buffer bytes(static_cast<size_t>(*layout_bytes(layout)));
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
  return bytes;
}

/// The last slice first: whoever relies on an order is found out.
class Reversed final : public Parallel {
 public:
  void run(size_t count, const std::function<void(size_t)>& part) override {
    while (count > 0) part(--count);
  }
};

const Layout kMixed = {{DType::bfloat16, {2, 3, 5}}, {DType::uint8, {7}},
                       {DType::float32, {}},         {DType::float16, {0, 4}},
                       {DType::float8_e5m2, {3}},    {DType::float16, {600'000}},
                       {DType::boolean, {1'000'001}}};

TEST(Fp8SerdeTest, ConvertsTensorByTensor) {
  const Serde serde = make();
  const Buffer object = random_object(kMixed);
  const size_t count = *element_count(kMixed);
  Buffer stored(count + 3, std::byte{0xa5});
  Reversed reversed;
  const auto written = serde.serializer->serialize({kMixed, object}, stored, {}, reversed);
  ASSERT_TRUE(written) << written.error().message();
  EXPECT_EQ(*written, count);
  EXPECT_EQ(stored[count], std::byte{0xa5});

  Buffer expected;
  Buffer decoded;
  Bytes rest = object;
  for (const TensorLayout& tensor : kMixed) {
    const size_t elements = *element_count(tensor);
    const Bytes from = rest.first(elements * dtype_bytes(tensor.dtype));
    rest = rest.subspan(from.size());
    Buffer codes(from.begin(), from.end());
    Buffer numbers = codes;
    if (codec::is_fp8_source(tensor.dtype)) {
      codes.resize(elements);
      codec::fp8_encode(tensor.dtype, codec::Fp8Format::e4m3fn, codec::Overflow::saturate, from,
                        codes, codec::Stores::cached, codec::Kernel::scalar);
      codec::fp8_decode(codec::Fp8Format::e4m3fn, tensor.dtype, codes, numbers,
                        codec::Stores::cached, codec::Kernel::scalar);
    }
    expected.insert(expected.end(), codes.begin(), codes.end());
    decoded.insert(decoded.end(), numbers.begin(), numbers.end());
  }
  EXPECT_TRUE(std::equal(expected.begin(), expected.end(), stored.begin()));
  Buffer loaded(object.size());
  ASSERT_TRUE(serde.deserializer->deserialize(stored, {kMixed, loaded}, {}, reversed));
  EXPECT_EQ(loaded, decoded);
  Buffer at_once(object.size());
  ASSERT_TRUE(serde.deserializer->deserialize(stored, {kMixed, at_once}));
  EXPECT_EQ(at_once, decoded);
}

TEST(Fp8SerdeTest, IsWhatThePageShows) {
  const Layout layout = {{DType::bfloat16, {2, 4}}, {DType::uint8, {3}}};
  constexpr unsigned char kObject[] = {0x80, 0x3f, 0x80, 0xbf, 0xcd, 0x3d, 0xe0, 0x43, 0x7a, 0x44,
                                       0x00, 0x3b, 0x80, 0x3a, 0xc0, 0x7f, 1,    2,    255};
  for (const std::string format : {"e4m3fn", "e5m2"}) {
    const Serde serde = make({{"fp8_dtype", "float8_" + format}});
    Buffer stored(11);
    ASSERT_TRUE(serde.serializer->serialize({layout, std::as_bytes(std::span(kObject))}, stored));
    EXPECT_EQ(stored, example_of("docs/formats/fp8.md", format));
  }
}

TEST(Fp8SerdeTest, EstimatesOneByteForEachElement) {
  const Layout layout = {{DType::bfloat16, {3, 5}}, {DType::int8, {2}}};
  EXPECT_EQ(*make().serializer->estimate_serialized_size(layout), 17U);
  EXPECT_EQ(*make({{"size_margin", 1.5}}).serializer->estimate_serialized_size(layout), 25U);
  EXPECT_EQ(*make({{"size_margin", int64_t{4}}}).serializer->estimate_serialized_size(layout), 68U);
}

TEST(Fp8SerdeTest, RefusesOtherTypesByName) {
  for (const DType dtype : {DType::int16, DType::int32, DType::int64, DType::float64}) {
    const Layout layout = {{DType::bfloat16, {1}}, {dtype, {1}}};
    Buffer object(2 + dtype_bytes(dtype));
    Buffer stored(2);
    const auto written = make().serializer->serialize({layout, object}, stored);
    ASSERT_FALSE(written);
    EXPECT_EQ(written.error().code(), Code::invalid);
    EXPECT_EQ(written.error().message(), "fp8: " + std::string(dtype_name(dtype)) +
                                             ", expected bfloat16, float16, float32 or a type of "
                                             "8 bits");
    EXPECT_FALSE(make().serializer->estimate_serialized_size(layout));
    EXPECT_FALSE(make().deserializer->deserialize(stored, {layout, object}));
  }
}

TEST(Fp8SerdeTest, WritesNothingIntoAShortTarget) {
  const Layout layout = {{DType::bfloat16, {100}}};
  const Buffer object = random_object(layout);
  for (size_t size = 0; size < 100; ++size) {
    Buffer stored(size, std::byte{0xa5});
    const auto written = make().serializer->serialize({layout, object}, stored);
    ASSERT_FALSE(written);
    EXPECT_EQ(written.error().code(), Code::invalid);
    EXPECT_EQ(stored, Buffer(size, std::byte{0xa5}));
  }
}

TEST(Fp8SerdeTest, TellsWhatIsMissing) {
  const Layout layout = {{DType::bfloat16, {100}}};
  Buffer object(200);
  for (size_t size = 0; size < 100; ++size) {
    const Status status = make().deserializer->deserialize(Buffer(size), {layout, object});
    EXPECT_EQ(status.code(), Code::corruption);
    EXPECT_EQ(status.message(), "fp8: " + std::to_string(size) + " bytes, expected 100");
  }
}

TEST(Fp8SerdeTest, NamesItsFormatAndItsParameters) {
  EXPECT_EQ(make().tag, "fp8:float8_e4m3fn");
  EXPECT_EQ(make({{"fp8_dtype", "float8_e5m2"}, {"overflow", "nan"}}).tag, "fp8:float8_e5m2");
  for (const SerdeParams& params :
       {SerdeParams{{"fp8_dtype", "float8_e4m3fnuz"}}, SerdeParams{{"overflow", "wrap"}},
        SerdeParams{{"size_margin", 0.9}}, SerdeParams{{"size_margin", 4.1}},
        SerdeParams{{"sizemargin", 1.0}}}) {
    EXPECT_FALSE(make_fp8(params));
  }
}

TEST(Fp8SerdeTest, MakesOverflowNanWhereAsked) {
  const Layout layout = {{DType::bfloat16, {1}}};
  const Buffer object = {std::byte{0x80}, std::byte{0x7f}};  // infinity
  Buffer stored(1);
  ASSERT_TRUE(make({{"overflow", "nan"}}).serializer->serialize({layout, object}, stored));
  EXPECT_EQ(stored[0], std::byte{0x7f});
  ASSERT_TRUE(make().serializer->serialize({layout, object}, stored));
  EXPECT_EQ(stored[0], std::byte{0x7e});
}

}  // namespace
}  // namespace aerokv::serde
