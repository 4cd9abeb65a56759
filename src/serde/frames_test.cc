// SPDX-License-Identifier: Apache-2.0
// The checksum, aesgcm and lossless serdes as their users see them.
#include <gtest/gtest.h>

#include <thread>

#include "base/log.h"
#include "codec/frame_testing.h"
#include "serde/builtin.h"
#include "serde/test_keys.h"

namespace aerokv::serde {
namespace {

using codec::Buffer;
using codec::equal;
using codec::Guarded;
using codec::random_bytes;

const SerdeKey kKey{std::string(32, 'h'), "tenant"};

// Objects of one and of several tensors, empty ones, scalars, every size of element.
const std::vector<Layout>& layouts() {
  static const std::vector<Layout> made = {
      {},
      {{DType::bfloat16, {0, 8}}},
      {{DType::uint8, {}}},
      {{DType::bfloat16, {2, 3, 17, 8}}},
      {{DType::float32, {5, 7}}, {DType::float16, {3}}, {DType::int8, {1}}},
      {{DType::int64, {9}}, {DType::bfloat16, {0}}, {DType::int32, {11}}, {DType::int16, {13}}},
      {{DType::float8_e4m3fn, {300}}, {DType::boolean, {3}}, {DType::float64, {2, 2}}},
      {{DType::bfloat16, {2, 300001}}},
  };
  return made;
}

class Frames : public testing::TestWithParam<std::string> {
 protected:
  [[nodiscard]] Serde make() const {
    SerdeParams params;
    if (GetParam() == "aesgcm") params["master_key_path"] = key_file_.path();
    const auto made = GetParam() == "checksum" ? make_checksum(params)
                      : GetParam() == "aesgcm" ? make_aesgcm(params)
                                               : make_lossless(params);
    EXPECT_TRUE(made) << made.error().message();
    return *made;
  }

  static Buffer serialized(const Serde& serde, const Layout& layout, Bytes object,
                           const SerdeKey& key = kKey) {
    const auto estimate = serde.serializer->estimate_serialized_size(layout);
    EXPECT_TRUE(estimate);
    Guarded target(*estimate);
    const auto size = serde.serializer->serialize({layout, object}, target.bytes(), key);
    EXPECT_TRUE(size) << size.error().message();
    EXPECT_LE(*size, *estimate);
    EXPECT_TRUE(target.is_intact());
    const Bytes frame = Bytes(target.bytes()).first(*size);
    return {frame.begin(), frame.end()};
  }

 private:
  KeyFile key_file_{"a master key of some length"};
};

INSTANTIATE_TEST_SUITE_P(All, Frames, testing::Values("checksum", "aesgcm", "lossless"),
                         [](const auto& test) { return test.param; });

TEST_P(Frames, ComeBackForEveryLayout) {
  const Serde serde = make();
  for (const Layout& layout : layouts()) {
    const Buffer object = random_bytes(*layout_bytes(layout), layout.size());
    const Buffer frame = serialized(serde, layout, object);
    Guarded target(object.size(), 1);
    const Status status = serde.deserializer->deserialize(frame, {layout, target.bytes()}, kKey);
    EXPECT_TRUE(status) << status.message();
    EXPECT_TRUE(equal(target.bytes(), object)) << layout_text(layout);
    EXPECT_TRUE(target.is_intact());
  }
}

TEST_P(Frames, AreReadFromBuffersAsLongAsTheEstimate) {
  const Serde serde = make();
  const Layout layout = {{DType::bfloat16, {1000}}};
  const Buffer object(2000, std::byte{1});
  Buffer loaded = serialized(serde, layout, object);
  loaded.resize(loaded.size() + 5000, std::byte{0xff});
  Guarded target(2000);
  EXPECT_TRUE(serde.deserializer->deserialize(loaded, {layout, target.bytes()}, kKey));
  EXPECT_TRUE(equal(target.bytes(), object));
}

TEST_P(Frames, AreRefusedIfTruncatedAnywhere) {
  const Serde serde = make();
  const Layout layout = {{DType::bfloat16, {200}}, {DType::float32, {20}}};
  const Buffer frame = serialized(serde, layout, Buffer(480, std::byte{3}));
  for (size_t size = 0; size < frame.size(); ++size) {
    // A copy of its own, so that reading behind it is seen.
    const Buffer truncated(frame.begin(), frame.begin() + static_cast<ptrdiff_t>(size));
    Guarded target(480);
    const Status status =
        serde.deserializer->deserialize(truncated, {layout, target.bytes()}, kKey);
    EXPECT_EQ(status.code(), Code::corruption) << size;
    EXPECT_TRUE(target.is_untouched()) << size;
  }
}

TEST_P(Frames, AreRefusedWithAnyBitFlipped) {
  const Serde serde = make();
  const Layout layout = {{DType::bfloat16, {200}}, {DType::float32, {20}}};
  const Buffer frame = serialized(serde, layout, Buffer(480, std::byte{3}));
  for (size_t bit = 0; bit < 8 * frame.size(); ++bit) {
    Buffer damaged = frame;
    damaged[bit / 8] ^= static_cast<std::byte>(1 << (bit % 8));
    Guarded target(480);
    const Status status = serde.deserializer->deserialize(damaged, {layout, target.bytes()}, kKey);
    EXPECT_FALSE(status) << bit;
    EXPECT_NE(status.code(), Code::internal) << status.message();
    EXPECT_TRUE(target.is_intact()) << bit;
  }
}

TEST_P(Frames, AreNotWrittenToTargetsThatAreTooSmall) {
  const Serde serde = make();
  const Layout layout = {{DType::float16, {64}}};
  const Buffer object = random_bytes(128, 9);
  const size_t estimate = *serde.serializer->estimate_serialized_size(layout);
  for (const size_t size : {size_t{0}, size_t{1}, estimate / 2, estimate - 1}) {
    Guarded target(size);
    const auto written = serde.serializer->serialize({layout, object}, target.bytes(), kKey);
    ASSERT_FALSE(written);
    EXPECT_EQ(written.error().code(), Code::invalid);
    EXPECT_TRUE(target.is_untouched());
  }
}

TEST_P(Frames, AreRefusedForObjectsOfAnotherSize) {
  const Serde serde = make();
  const Buffer frame = serialized(serde, {{DType::uint8, {256}}}, random_bytes(256, 10));
  for (const int64_t size : {0, 1, 255, 257, 512}) {
    const Layout layout = {{DType::uint8, {size}}};
    Guarded target(static_cast<size_t>(size));
    EXPECT_FALSE(serde.deserializer->deserialize(frame, {layout, target.bytes()}, kKey)) << size;
    EXPECT_TRUE(target.is_intact());
  }
}

TEST_P(Frames, RefuseLayoutsThatCannotBe) {
  const Serde serde = make();
  EXPECT_FALSE(serde.serializer->estimate_serialized_size({{DType::uint8, {-1}}}));
  EXPECT_FALSE(serde.serializer->estimate_serialized_size(
      {{DType::float64, {int64_t{1} << 40, int64_t{1} << 40}}}));
}

TEST_P(Frames, RefuseUnknownParameters) {
  const KeyFile key("key");
  const SerdeParams params = {{"master_key_path", key.path()}, {"colour", int64_t{1}}};
  const auto made = GetParam() == "checksum" ? make_checksum(params)
                    : GetParam() == "aesgcm" ? make_aesgcm(params)
                                             : make_lossless(params);
  ASSERT_FALSE(made);
  EXPECT_EQ(made.error().code(), Code::invalid);
  EXPECT_NE(made.error().message().find(GetParam()), std::string::npos);
}

TEST_P(Frames, CanBeWrittenAndReadByManyThreads) {
  const Serde serde = make();
  const Layout layout = {{DType::bfloat16, {40000}}};
  std::vector<std::thread> threads;
  for (uint64_t seed = 0; seed < 4; ++seed) {
    threads.emplace_back([&, seed] {
      const Buffer object = random_bytes(80000, seed);
      const SerdeKey key{"hash", "tenant " + std::to_string(seed % 2)};
      for (int i = 0; i < 20; ++i) {
        const Buffer frame = serialized(serde, layout, object, key);
        Buffer target(80000);
        EXPECT_TRUE(serde.deserializer->deserialize(frame, {layout, target}, key));
        EXPECT_EQ(target, object);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST(ChecksumSerde, IsBoundToItsKey) {
  const auto serde = make_checksum({});
  ASSERT_TRUE(serde);
  EXPECT_EQ(serde->tag, "checksum");
  const Layout layout = {{DType::uint8, {4}}};
  EXPECT_EQ(*serde->serializer->estimate_serialized_size(layout), 21U);
  Buffer frame(21);
  const Buffer object(4);
  ASSERT_TRUE(serde->serializer->serialize({layout, object}, frame, {"hash one", ""}));
  Buffer target(4);
  EXPECT_TRUE(serde->deserializer->deserialize(frame, {layout, target}, {"hash one", "any"}));
  EXPECT_EQ(serde->deserializer->deserialize(frame, {layout, target}, {"hash two", ""}).code(),
            Code::corruption);
}

class AesGcmSerde : public testing::Test {
 protected:
  static SerdeParams with(const std::string& path, int64_t bits = 128) {
    return {{"master_key_path", path}, {"aes_bits", bits}};
  }

  static Code read(const Serde& writer, const Serde& reader, const std::string& written_for,
                   const std::string& read_for) {
    const Layout layout = {{DType::uint8, {64}}};
    const Buffer object = random_bytes(64, 1);
    Buffer frame(64 + 29);
    EXPECT_TRUE(writer.serializer->serialize({layout, object}, frame, {"h", written_for}));
    Guarded target(64);
    const Status status =
        reader.deserializer->deserialize(frame, {layout, target.bytes()}, {"h", read_for});
    EXPECT_TRUE(status ? equal(target.bytes(), object) : target.is_wiped());
    return status.code();
  }
};

TEST_F(AesGcmSerde, OpensOnlyWithKeySaltAndLengthOfItsWriter) {
  const KeyFile key("master key one, long enough for all");
  const KeyFile other_key("master key two, long enough for all");
  const Serde serde = *make_aesgcm(with(key.path()));
  EXPECT_EQ(read(serde, serde, "tenant", "tenant"), Code::ok);
  EXPECT_EQ(read(serde, serde, "", ""), Code::ok);
  EXPECT_EQ(read(serde, serde, "tenant", "tenanu"), Code::denied);
  EXPECT_EQ(read(serde, serde, "tenant", ""), Code::denied);
  EXPECT_EQ(read(serde, *make_aesgcm(with(other_key.path())), "tenant", "tenant"), Code::denied);
  EXPECT_EQ(read(serde, *make_aesgcm(with(key.path(), 256)), "tenant", "tenant"), Code::denied);
  EXPECT_EQ(read(*make_aesgcm(with(key.path())), serde, "tenant", "tenant"), Code::ok);
}

TEST_F(AesGcmSerde, WritesOtherBytesEachTime) {
  const KeyFile key("master");
  const Serde serde = *make_aesgcm(with(key.path(), 256));
  const Layout layout = {{DType::uint8, {64}}};
  const Buffer object(64);
  Buffer one(93);
  Buffer two(93);
  ASSERT_TRUE(serde.serializer->serialize({layout, object}, one));
  ASSERT_TRUE(serde.serializer->serialize({layout, object}, two));
  EXPECT_NE(one, two);
}

TEST_F(AesGcmSerde, TagHoldsNoSecret) {
  const KeyFile key("master");
  EXPECT_EQ(make_aesgcm(with(key.path()))->tag, "aesgcm:128");
  EXPECT_EQ(make_aesgcm(with(key.path(), 256))->tag, "aesgcm:256");
}

TEST_F(AesGcmSerde, NeedsItsKeyOnlyAtTheStart) {
  Serde serde;
  {
    const KeyFile key("master");
    serde = *make_aesgcm(with(key.path()));
  }
  EXPECT_EQ(read(serde, serde, "tenant", "tenant"), Code::ok);
}

TEST_F(AesGcmSerde, SaysWhatIsWrongWithItsParameters) {
  const KeyFile key("master");
  const KeyFile open_key("very secret words");
  open_key.set_mode(0644);
  const auto expect_refused = [](const SerdeParams& params, Code code, const std::string& text) {
    const auto made = make_aesgcm(params);
    ASSERT_FALSE(made) << text;
    EXPECT_EQ(made.error().code(), code) << made.error().message();
    EXPECT_NE(made.error().message().find(text), std::string::npos) << made.error().message();
    EXPECT_EQ(made.error().message().find("very secret"), std::string::npos);
  };
  expect_refused({}, Code::invalid, "master_key_path");
  expect_refused({{"master_key_path", std::string()}}, Code::invalid, "master_key_path");
  expect_refused(with(key.path(), 192), Code::invalid, "aes_bits: 192");
  expect_refused(with("/nonexistent"), Code::invalid, "/nonexistent");
  expect_refused(with(open_key.path()), Code::denied, "mode 0644");
  SerdeParams params = with(key.path());
  params["key_provider"] = std::string("keyring");
  expect_refused(params, Code::invalid, "key_provider");
}

TEST_F(AesGcmSerde, WarnsOfShortMasterKeys) {
  std::string lines;
  set_log_sink([&](LogLevel level, std::string_view line) {
    if (level == LogLevel::warning) lines += line;
  });
  const KeyFile key("pw");
  EXPECT_TRUE(make_aesgcm(with(key.path(), 256)));
  set_log_sink({});
  EXPECT_NE(lines.find("2 bytes"), std::string::npos) << lines;
}

}  // namespace
}  // namespace aerokv::serde
