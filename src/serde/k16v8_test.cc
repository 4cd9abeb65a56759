// SPDX-License-Identifier: Apache-2.0
// Containers that LMCache wrote, byte for byte, and what its classes read from them; damage at
// every place.
#include "serde/k16v8.h"

#include <gtest/gtest.h>

#include <random>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "codec/crc32.h"
#include "codec/k16v8.h"
#include "serde/builtin.h"
#include "serde/golden_testing.h"

namespace aerokv::serde {
namespace {

using Buffer = std::vector<std::byte>;
constexpr std::byte kCanary{0xa5};

Buffer read_golden(const std::string& name) {
  return golden_bytes("tests/golden/serde/k16v8/" + name);
}

Layout layout_of(DType dtype) {
  return {{dtype, {2, 5, 3, 8}}};
}

Buffer random_bytes(size_t count) {
  std::mt19937_64 random(11);
  Buffer bytes(count);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
  return bytes;
}

Serde make() {
  Result<Serde> made = make_k16v8({});
  EXPECT_TRUE(made) << made.error().message();
  return *std::move(made);
}

using Golden = std::pair<const char*, DType>;
class K16V8GoldenTest : public testing::TestWithParam<Golden> {};
class K16V8WrittenTest : public testing::TestWithParam<Golden> {};
class K16V8TensorTest : public testing::TestWithParam<Golden> {};

// Tensors [2, ...]; then what only a group can be; then what LMCache writes and we only read.
const std::vector<Golden> kTensors = {{"bfloat16", DType::bfloat16}, {"float16", DType::float16},
                                      {"float32", DType::float32},   {"zero", DType::bfloat16},
                                      {"tiny", DType::bfloat16},     {"infinite", DType::bfloat16},
                                      {"nan", DType::bfloat16},      {"least", DType::float32}};
const Golden kVOnly = {"v_only", DType::bfloat16};
const Golden kFloat16Scale = {"float16_scale", DType::bfloat16};

constexpr auto kNameOf = [](const auto& one) { return std::string(one.param.first); };
INSTANTIATE_TEST_SUITE_P(Tensors, K16V8GoldenTest, testing::ValuesIn(kTensors), kNameOf);
INSTANTIATE_TEST_SUITE_P(Others, K16V8GoldenTest, testing::Values(kVOnly, kFloat16Scale), kNameOf);
INSTANTIATE_TEST_SUITE_P(Tensors, K16V8WrittenTest, testing::ValuesIn(kTensors), kNameOf);
INSTANTIATE_TEST_SUITE_P(Others, K16V8WrittenTest, testing::Values(kVOnly), kNameOf);
INSTANTIATE_TEST_SUITE_P(Tensors, K16V8TensorTest, testing::ValuesIn(kTensors), kNameOf);

TEST_P(K16V8WrittenTest, WritesWhatLMCacheWrites) {
  const std::string name = GetParam().first;
  const Layout layout = layout_of(GetParam().second);
  const Buffer expected = read_golden(name + ".bin");
  const Buffer v = read_golden(name + ".v.bin");
  const Buffer k = name == "v_only" ? Buffer() : read_golden(name + ".k.bin");
  ObjectGroup group(2);
  LayoutGroup layouts(2);
  if (name != "v_only") {
    group[0].emplace(ObjectView{layout, k});
    layouts[0] = layout;
  }
  group[1].emplace(ObjectView{layout, v});
  layouts[1] = layout;
  const K16V8MultiSerializer serializer;
  EXPECT_EQ(*serializer.estimate_serialized_size(layouts), expected.size());
  Buffer stored(expected.size() + 1, kCanary);
  const auto written = serializer.serialize(group, stored, {});
  ASSERT_TRUE(written) << written.error().message();
  EXPECT_EQ(*written, expected.size());
  EXPECT_EQ(stored.back(), kCanary);
  stored.pop_back();
  EXPECT_EQ(stored, expected);
}

TEST_P(K16V8GoldenTest, ReadsWhatLMCacheReads) {
  const std::string name = GetParam().first;
  const Layout layout = layout_of(GetParam().second);
  Buffer stored = read_golden(name + ".bin");
  stored.resize(stored.size() + 100);  // loaded buffers are longer
  const Buffer expected = read_golden(name + ".out.bin");
  Buffer k(expected.size(), kCanary);
  Buffer v(expected.size(), kCanary);
  MutableObjectGroup group(2);
  const K16V8MultiDeserializer deserializer;
  group[1].emplace(MutableObjectView{layout, v});
  ASSERT_TRUE(deserializer.deserialize(stored, group, {}));
  EXPECT_EQ(v, expected);
  EXPECT_EQ(k, Buffer(k.size(), kCanary));
  if (name == "v_only") return;
  std::fill(v.begin(), v.end(), kCanary);
  ASSERT_TRUE(deserializer.deserialize(stored, {MutableObjectView{layout, k}, std::nullopt}, {}));
  EXPECT_EQ(k, read_golden(name + ".k.bin"));
  EXPECT_EQ(v, Buffer(v.size(), kCanary));
}

// One tensor [2, ...] is what a group of its two halves is.
TEST_P(K16V8TensorTest, CutsOneTensorIntoKAndV) {
  const std::string name = GetParam().first;
  const Layout layout = {{GetParam().second, {2, 240}}};
  Buffer object = read_golden(name + ".k.bin");
  const Buffer v = read_golden(name + ".v.bin");
  object.insert(object.end(), v.begin(), v.end());
  const Buffer expected = read_golden(name + ".bin");
  EXPECT_EQ(*make().serializer->estimate_serialized_size(layout), expected.size());
  Buffer stored(expected.size());
  const auto written = make().serializer->serialize({layout, object}, stored);
  ASSERT_TRUE(written) << written.error().message();
  EXPECT_EQ(stored, expected);
  ASSERT_TRUE(make().deserializer->deserialize(stored, {layout, object}));
  Buffer loaded = read_golden(name + ".k.bin");
  const Buffer out = read_golden(name + ".out.bin");
  loaded.insert(loaded.end(), out.begin(), out.end());
  EXPECT_EQ(object, loaded);
}

TEST(K16V8ExampleTest, IsWhatThePageShows) {
  const Layout layout = {{DType::bfloat16, {2, 2}}};
  constexpr unsigned char kObject[] = {0x80, 0x3f, 0x00, 0x40, 0x80, 0x3f, 0x40, 0xc0};
  const Buffer expected = example_of("docs/formats/k16v8.md", "example");
  Buffer stored(expected.size());
  ASSERT_TRUE(make().serializer->serialize({layout, std::as_bytes(std::span(kObject))}, stored));
  EXPECT_EQ(stored, expected);
}

// ---------------------------------------------------------------------------------------------
// Groups

class K16V8GroupTest : public testing::Test {
 protected:
  const Layout layout_ = layout_of(DType::bfloat16);
  Buffer k_ = read_golden("bfloat16.k.bin");
  Buffer v_ = read_golden("bfloat16.v.bin");
  Buffer stored_ = read_golden("bfloat16.bin");
  K16V8MultiSerializer serializer_;
  K16V8MultiDeserializer deserializer_;

  static void expect_invalid(const Status& status, const std::string& message) {
    EXPECT_EQ(status.code(), Code::invalid);
    EXPECT_EQ(status.message(), "k16v8: " + message);
  }
};

TEST_F(K16V8GroupTest, WritesNeedV) {
  const std::string expected = "slot 1 (V) is absent, expected a tensor";
  expect_invalid(
      serializer_.serialize({ObjectView{layout_, k_}, std::nullopt}, stored_, {}).error(),
      expected);
  expect_invalid(serializer_.serialize({std::nullopt, std::nullopt}, stored_, {}).error(),
                 expected);
  expect_invalid(serializer_.estimate_serialized_size({layout_, std::nullopt}).error(), expected);
}

TEST_F(K16V8GroupTest, HasTwoSlots) {
  EXPECT_EQ(serializer_.group_size(), 2U);
  EXPECT_EQ(deserializer_.group_size(), 2U);
  expect_invalid(serializer_.serialize({ObjectView{layout_, v_}}, stored_, {}).error(),
                 "a group of 1, expected 2");
  expect_invalid(serializer_.estimate_serialized_size({}).error(), "a group of 0, expected 2");
  expect_invalid(deserializer_.deserialize(stored_, MutableObjectGroup(3), {}),
                 "a group of 3, expected 2");
}

TEST_F(K16V8GroupTest, SkipsWhatIsNotWanted) {
  EXPECT_TRUE(deserializer_.deserialize({}, {std::nullopt, std::nullopt}, {}));
}

TEST_F(K16V8GroupTest, HasNoKWhereOnlyVWasWritten) {
  const Buffer stored = read_golden("v_only.bin");
  expect_invalid(
      deserializer_.deserialize(stored, {MutableObjectView{layout_, k_}, std::nullopt}, {}),
      "the container has no K");
}

TEST_F(K16V8GroupTest, TagsContainersWithoutK) {
  const K16V8MultiSerializer serializer(DType::float16);
  ASSERT_TRUE(serializer.serialize({std::nullopt, ObjectView{layout_, v_}}, stored_, {}));
  EXPECT_EQ(codec::read_kv_container(stored_)->k_tag, DType::float16);
}

TEST_F(K16V8GroupTest, RefusesWhatDoesNotGoTogether) {
  const Layout other = {{DType::bfloat16, {2, 5, 24}}};
  const Layout floats = layout_of(DType::float32);
  const Layout integers = layout_of(DType::int16);
  const Layout two = {layout_[0], layout_[0]};
  Buffer wide(2 * v_.size());
  const ObjectView k{layout_, k_};
  EXPECT_FALSE(
      serializer_.serialize({ObjectView{other, k_}, ObjectView{layout_, v_}}, stored_, {}));
  EXPECT_FALSE(serializer_.serialize({k, ObjectView{integers, v_}}, stored_, {}));
  EXPECT_FALSE(serializer_.serialize({k, ObjectView{two, wide}}, stored_, {}));
  EXPECT_FALSE(serializer_.serialize({k, ObjectView{layout_, wide}}, stored_, {}));
  EXPECT_FALSE(
      deserializer_.deserialize(stored_, {MutableObjectView{floats, wide}, std::nullopt}, {}));
  EXPECT_FALSE(
      deserializer_.deserialize(stored_, {std::nullopt, MutableObjectView{integers, v_}}, {}));
  EXPECT_FALSE(
      deserializer_.deserialize(stored_, {std::nullopt, MutableObjectView{layout_, wide}}, {}));
  const Layout small = {{DType::bfloat16, {239}}};
  EXPECT_FALSE(deserializer_.deserialize(
      stored_, {std::nullopt, MutableObjectView{small, MutableBytes(v_).first(478)}}, {}));
}

// The type of V belongs to the reader.
TEST_F(K16V8GroupTest, ReadsVAsAnotherType) {
  const Layout floats = layout_of(DType::float32);
  Buffer wide(2 * v_.size());
  ASSERT_TRUE(
      deserializer_.deserialize(stored_, {std::nullopt, MutableObjectView{floats, wide}}, {}));
}

// ---------------------------------------------------------------------------------------------
// Damage

class K16V8DamageTest : public testing::Test {
 protected:
  const Layout layout_ = {{DType::bfloat16, {2, 240}}};
  Buffer stored_ = read_golden("bfloat16.bin");

  /// An error leaves the target as it was: everything is checked before anything is written.
  Status load(Bytes stored) {
    Buffer object(960, kCanary);
    const Status status = make().deserializer->deserialize(stored, {layout_, object});
    if (!status) {
      EXPECT_EQ(object, Buffer(960, kCanary)) << status.message();
    }
    return status;
  }

  template <typename T>
  Status load_with(size_t offset, T value) {
    Buffer damaged = stored_;
    store_le<T>(damaged.data() + offset, value);
    return load(damaged);
  }
};

TEST_F(K16V8DamageTest, FindsTruncationAtEveryLength) {
  for (size_t size = 0; size < stored_.size(); ++size) {
    EXPECT_EQ(load(Bytes(stored_).first(size)).code(), Code::corruption) << size;
  }
  EXPECT_TRUE(load(stored_));
}

TEST_F(K16V8DamageTest, FindsEveryFlippedBitOfThePayload) {
  for (size_t i = codec::kKvHeadBytes - 4; i < stored_.size(); ++i) {
    Buffer damaged = stored_;
    damaged[i] ^= std::byte{0x10};
    EXPECT_EQ(load(damaged).code(), Code::corruption) << i;
  }
}

TEST_F(K16V8DamageTest, SurvivesEveryFlippedBitOfTheHead) {
  for (size_t bit = 0; bit < 8 * codec::kKvHeadBytes; ++bit) {
    Buffer damaged = stored_;
    damaged[bit / 8] ^= std::byte{1} << (bit % 8);
    const Status status = load(damaged);
    if (!status) {
      EXPECT_TRUE(status.code() == Code::corruption || status.code() == Code::invalid);
    }
  }
}

TEST_F(K16V8DamageTest, RefusesForeignContainers) {
  EXPECT_EQ(load_with<uint64_t>(0, 0).code(), Code::corruption);
  EXPECT_EQ(load_with<uint16_t>(8, 2).message(), "k16v8: version 2, expected 1");
  EXPECT_EQ(load_with<uint16_t>(8, 2).code(), Code::invalid);
  for (const uint16_t scope : {uint16_t{1}, uint16_t{2}, uint16_t{3}, uint16_t{99}}) {
    EXPECT_EQ(load_with<uint16_t>(10, scope).code(), Code::invalid);
  }
  EXPECT_EQ(load_with<uint16_t>(12, 2).message(), "k16v8: K of float16, expected bfloat16");
  EXPECT_EQ(load_with<uint16_t>(12, 9).code(), Code::invalid);
  EXPECT_EQ(load_with<uint16_t>(14, 8).message(), "k16v8: type 8 of V, expected float8_e4m3fn");
  EXPECT_EQ(load_with<uint16_t>(16, 5).code(), Code::invalid);
  EXPECT_EQ(load_with<uint16_t>(16, 2).code(), Code::corruption);  // float16 in four bytes
}

TEST_F(K16V8DamageTest, BelievesNoLength) {
  for (const uint64_t length : {~uint64_t{0}, uint64_t{1} << 63, (uint64_t{1} << 63) - 1,
                                uint64_t{481}, uint64_t{0} - 480}) {
    for (const size_t offset : {size_t{76}, size_t{84}, size_t{92}}) {
      EXPECT_FALSE(load_with<uint64_t>(offset, length));
    }
  }
  EXPECT_FALSE(load_with<uint64_t>(68, 9));  // dimensions
  EXPECT_FALSE(load_with<uint64_t>(68, ~uint64_t{0}));
  EXPECT_FALSE(load_with<uint16_t>(100, 0xffff));  // pairs of texts
  EXPECT_FALSE(load_with<uint16_t>(102, 0xffff));  // length of a text
  EXPECT_FALSE(load_with<uint64_t>(76, 240));      // K shorter, V longer
}

TEST_F(K16V8DamageTest, ReadsTextsAndAShapeOfOne) {
  Buffer other(stored_.begin(), stored_.begin() + 76);
  store_le<uint64_t>(other.data() + 68, 2);
  const auto append = [&other](Bytes bytes) {
    other.insert(other.end(), bytes.begin(), bytes.end());
  };
  for (int i = 0; i < 2; ++i) {
    Buffer one(8);
    store_le<uint64_t>(one.data(), 1);
    append(one);
  }
  append(Bytes(stored_).subspan(76, 24));
  append(as_bytes(std::string_view("\x02\x00\x01\x00k\x03\x00xyz\x00\x00\x00\x00", 14)));
  append(Bytes(stored_).subspan(codec::kKvHeadBytes - 4));
  EXPECT_TRUE(load(other));
  store_le<uint64_t>(other.data() + 76, 2);
  EXPECT_EQ(load(other).code(), Code::invalid);
}

// ---------------------------------------------------------------------------------------------
// Layouts

class Threads final : public Parallel {
 public:
  void run(size_t count, const std::function<void(size_t)>& part) override {
    std::thread other([&] {
      for (size_t i = count; i-- > count / 2;) part(i);
    });
    for (size_t i = 0; i < count / 2; ++i) part(i);
    other.join();
  }
};

TEST(K16V8SerdeTest, StoresOtherTensorsAsTheyAre) {
  const Layout layout = {
      {DType::bfloat16, {1, 4, 576}}, {DType::int8, {2, 3}}, {DType::int64, {2}},
      {DType::float32, {}},           {DType::boolean, {0}}, {DType::float64, {2, 2}},
      {DType::float16, {2, 0}},       {DType::uint8, {2}}};
  const Buffer object = random_bytes(*layout_bytes(layout));
  const size_t estimate = *make().serializer->estimate_serialized_size(layout);
  EXPECT_EQ(estimate, object.size() + 8 * (213 + 4));
  Buffer stored(estimate);
  ASSERT_EQ(*make().serializer->serialize({layout, object}, stored), estimate);
  Buffer loaded(object.size());
  ASSERT_TRUE(make().deserializer->deserialize(stored, {layout, loaded}));
  EXPECT_EQ(loaded, object);
}

TEST(K16V8SerdeTest, GivesTheSameBytesOnAnyNumberOfThreads) {
  const Layout layout = {{DType::bfloat16, {2, 1'000'003}},
                         {DType::int8, {700'001}},
                         {DType::float32, {2, 300'001}},
                         {DType::float16, {2, 7}}};
  const Buffer object = random_bytes(*layout_bytes(layout));
  const size_t estimate = *make().serializer->estimate_serialized_size(layout);
  Buffer alone(estimate);
  Buffer together(estimate + 5, kCanary);
  Threads threads;
  ASSERT_EQ(*make().serializer->serialize({layout, object}, alone), estimate);
  ASSERT_EQ(*make().serializer->serialize({layout, object}, together, {}, threads), estimate);
  EXPECT_TRUE(std::equal(alone.begin(), alone.end(), together.begin()));
  EXPECT_EQ(together.back(), kCanary);
  Buffer one(object.size());
  Buffer two(object.size());
  ASSERT_TRUE(make().deserializer->deserialize(alone, {layout, one}));
  ASSERT_TRUE(make().deserializer->deserialize(alone, {layout, two}, {}, threads));
  EXPECT_EQ(one, two);
  // The sum of all slices is that of the whole payload.
  const auto container = codec::read_kv_container(alone);
  ASSERT_TRUE(container);
  EXPECT_EQ(codec::crc32(container->payload), container->crc);
}

TEST(K16V8SerdeTest, FindsOneDamagedTensorOfMany) {
  const Layout layout = {{DType::bfloat16, {2, 9}}, {DType::bfloat16, {2, 9}}};
  const Buffer object = random_bytes(72);
  Buffer stored(*make().serializer->estimate_serialized_size(layout));
  ASSERT_TRUE(make().serializer->serialize({layout, object}, stored));
  stored[stored.size() - 5] ^= std::byte{1};
  Buffer loaded(object.size(), kCanary);
  EXPECT_EQ(make().deserializer->deserialize(stored, {layout, loaded}).code(), Code::corruption);
  EXPECT_EQ(loaded, Buffer(object.size(), kCanary));
}

TEST(K16V8SerdeTest, WritesNothingIntoAShortTarget) {
  const Layout layout = {{DType::bfloat16, {2, 9}}};
  const Buffer object = random_bytes(36);
  Buffer stored(*make().serializer->estimate_serialized_size(layout) - 1, kCanary);
  EXPECT_EQ(make().serializer->serialize({layout, object}, stored).error().code(), Code::invalid);
  EXPECT_EQ(stored, Buffer(stored.size(), kCanary));
}

TEST(K16V8SerdeTest, TakesOneFormatOnly) {
  EXPECT_EQ(make().tag, "k16v8");
  EXPECT_TRUE(make_k16v8({{"fp8_dtype", "float8_e4m3fn"}}));
  EXPECT_FALSE(make_k16v8({{"fp8_dtype", "float8_e5m2"}}));
  EXPECT_FALSE(make_k16v8({{"scale", int64_t{1}}}));
}

}  // namespace
}  // namespace aerokv::serde
