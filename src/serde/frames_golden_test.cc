// SPDX-License-Identifier: Apache-2.0
// Frames that others wrote, and frames of this format's first version that must be read for ever.
#include <gtest/gtest.h>

#include <cstdlib>
#include <fstream>
#include <sstream>

#include "codec/aesgcm.h"
#include "codec/checksum_copy.h"
#include "codec/frame_testing.h"
#include "serde/builtin.h"
#include "serde/golden_testing.h"
#include "serde/key_provider.h"
#include "serde/test_keys.h"

namespace aerokv::serde {
namespace {

using codec::Buffer;
using codec::equal;
using codec::Guarded;

const std::string kFolder = "tests/golden/serde/";
const std::string kText = "KV cache bytes";
const Layout kTextLayout = {{DType::uint8, {14}}};

std::vector<std::vector<std::string>> lines_of(const std::string& path) {
  std::vector<std::vector<std::string>> lines;
  std::istringstream text(golden_text(path));
  for (std::string line; std::getline(text, line);) {
    std::istringstream words(line);
    lines.emplace_back();
    for (std::string word; words >> word;) lines.back().push_back(word);
  }
  return lines;
}

Buffer from_hex(const std::string& text) {
  return text == "-" ? Buffer() : codec::hex(text);
}

std::string counting_text(size_t count, int first) {
  std::string text;
  for (size_t i = 0; i < count; ++i) text += static_cast<char>(first + static_cast<int>(i));
  return text;
}

// The payloads of checksum/make_vectors.py.
Buffer golden_payload(size_t size) {
  Buffer bytes(size);
  for (uint64_t i = 0; i < size; ++i) bytes[i] = static_cast<std::byte>(i * 2654435761U >> 13);
  return bytes;
}

TEST(ChecksumGolden, FramesHaveTheSumsOfXxhash) {
  const Serde serde = *make_checksum({});
  size_t count = 0;
  for (const auto& words : lines_of(kFolder + "checksum/vectors.txt")) {
    ASSERT_EQ(words.size(), 3U);
    const Buffer chunk_hash = from_hex(words[0]);
    const SerdeKey key{std::string(as_text(chunk_hash)), "ignored"};
    const Buffer payload = golden_payload(std::stoul(words[1]));
    Buffer expected = from_hex(words[2]);
    expected.insert(expected.end(), payload.begin(), payload.end());
    const Layout layout = {{DType::uint8, {static_cast<int64_t>(payload.size())}}};
    Buffer frame(expected.size());
    ASSERT_TRUE(serde.serializer->serialize({layout, payload}, frame, key));
    EXPECT_TRUE(frame == expected) << words[1];
    Buffer target(payload.size());
    EXPECT_TRUE(serde.deserializer->deserialize(expected, {layout, target}, key)) << words[1];
    EXPECT_TRUE(target == payload) << words[1];
    ++count;
  }
  EXPECT_EQ(count, 61U);
}

TEST(ChecksumGolden, ExampleOfThePage) {
  const Serde serde = *make_checksum({});
  Buffer frame(kText.size() + 17);
  ASSERT_TRUE(serde.serializer->serialize({kTextLayout, as_bytes(kText)}, frame,
                                          {counting_text(32, 0xa0), ""}));
  EXPECT_EQ(frame, example_of("docs/formats/checksum.md", "example"));
}

TEST(AesGcmGolden, FramesOfLmcacheAreRead) {
  size_t count = 0;
  for (const auto& words : lines_of(kFolder + "aesgcm/vectors.txt")) {
    ASSERT_EQ(words.size(), 5U);
    const Buffer master = from_hex(words[1]);
    const Buffer salt = from_hex(words[2]);
    const Buffer plain = from_hex(words[3]);
    const Buffer frame = from_hex(words[4]);
    const KeyFile file{Bytes(master)};
    const Serde serde = *make_aesgcm(
        {{"master_key_path", file.path()}, {"aes_bits", int64_t{std::stoi(words[0])}}});
    const Layout layout = {{DType::uint8, {static_cast<int64_t>(plain.size())}}};
    Guarded target(plain.size());
    const Status status = serde.deserializer->deserialize(frame, {layout, target.bytes()},
                                                          {"", std::string(as_text(salt))});
    EXPECT_TRUE(status) << status.message();
    EXPECT_TRUE(equal(target.bytes(), plain));
    // With the same IV the same bytes come out.
    HkdfKeyProvider keys{codec::SecretBytes(Bytes(master)), std::stoul(words[0]) / 8};
    Buffer written(frame.size());
    ASSERT_TRUE(codec::encrypt_aesgcm_with_iv(keys.key(as_text(salt))->bytes(),
                                              Bytes(frame).subspan(1, 12), plain, written));
    EXPECT_EQ(written, frame);
    ++count;
  }
  EXPECT_EQ(count, 62U);
}

TEST(AesGcmGolden, ExampleOfThePage) {
  HkdfKeyProvider keys{codec::SecretBytes(as_bytes(counting_text(32, 0))), 16};
  const auto key = keys.key("tenant-a");
  ASSERT_TRUE(key);
  EXPECT_TRUE(equal(key->bytes(), codec::hex("7eee1026124ce34e8152063c3f5b5039")));
  Buffer frame(kText.size() + 29);
  ASSERT_TRUE(codec::encrypt_aesgcm_with_iv(key->bytes(), as_bytes(counting_text(12, 0x10)),
                                            as_bytes(kText), frame));
  EXPECT_EQ(frame, example_of("docs/formats/aesgcm.md", "example"));
}

// The objects of lossless/, by name: what the writer of version 1 was given.
struct LosslessCase {
  std::string name;
  Layout layout;
  int64_t level = 1;
};

const std::vector<LosslessCase>& lossless_cases() {
  static const std::vector<LosslessCase> made = {
      {"bfloat16", {{DType::bfloat16, {2, 3, 40, 16}}}},
      {"float16", {{DType::float16, {2, 500}}}},
      {"float32", {{DType::float32, {1000}}}},
      {"integers", {{DType::int16, {700}}, {DType::int32, {400}}, {DType::int64, {100}}}},
      {"bytes", {{DType::uint8, {600}}, {DType::int8, {500}}, {DType::boolean, {40}}}},
      {"float8",
       {{DType::float8_e4m3fn, {400}},
        {DType::float8_e5m2, {400}},
        {DType::float8_e4m3fnuz, {10}},
        {DType::float8_e5m2fnuz, {10}}}},
      {"float64", {{DType::float64, {80}}, {DType::bfloat16, {0}}, {DType::bfloat16, {}}}},
      {"hybrid",
       {{DType::bfloat16, {2, 2, 16, 8}}, {DType::float32, {2, 40}}, {DType::uint8, {7}}}},
      {"blocks", {{DType::bfloat16, {300000}}, {DType::uint8, {262145}}}},
      {"level9", {{DType::bfloat16, {2000}}}, 9},
      {"nothing", {}},
  };
  return made;
}

// Numbers that grow and shrink slowly, with noise in their lower bits; long runs of zeros in
// objects of several blocks keep their files small.
Buffer lossless_object(const LosslessCase& one) {
  Buffer bytes(*layout_bytes(one.layout));
  uint64_t state = one.name.size();
  const size_t period = bytes.size() > 100000 ? 150000 : 1500;
  for (size_t i = 0; i < bytes.size(); ++i) {
    state = state * 6364136223846793005U + 1442695040888963407U;
    const size_t at = i % period;
    if (at >= 1400) continue;
    bytes[i] = static_cast<std::byte>(i % 2 == 0 ? state >> 56 : 0x3d + (state >> 61) % 4);
  }
  return bytes;
}

// AEROKV_WRITE_VECTORS=1 writes the files anew; that is for new files alone, since the old ones
// stand for what is stored in the world.
void write_lossless_vectors() {
  const std::string folder = std::string(AEROKV_SOURCE_DIR) + "/" + kFolder + "lossless/";
  std::ofstream manifest(folder + "vectors.txt");
  for (const LosslessCase& one : lossless_cases()) {
    const Buffer object = lossless_object(one);
    const Serde serde = *make_lossless({{"level", one.level}});
    Buffer frame(*serde.serializer->estimate_serialized_size(one.layout));
    frame.resize(*serde.serializer->serialize({one.layout, object}, frame));
    std::ofstream(folder + one.name + ".frame", std::ios::binary) << as_text(frame);
    manifest << one.name << " " << std::hex << codec::xxh3_64(object, codec::Kernel::scalar)
             << std::dec << " " << layout_text(one.layout) << "\n";
  }
}

TEST(LosslessGolden, FramesOfTheFirstVersionAreRead) {
  if (std::getenv("AEROKV_WRITE_VECTORS") != nullptr) write_lossless_vectors();
  const Serde serde = *make_lossless({});
  size_t count = 0;
  for (const auto& words : lines_of(kFolder + "lossless/vectors.txt")) {
    ASSERT_GE(words.size(), 2U);
    std::string text;
    for (size_t i = 2; i < words.size(); ++i) text += words[i] + (i + 1 < words.size() ? " " : "");
    const Layout layout = parse_layout(text);
    const Buffer frame = golden_bytes(kFolder + "lossless/" + words[0] + ".frame");
    Guarded target(*layout_bytes(layout));
    const Status status = serde.deserializer->deserialize(frame, {layout, target.bytes()});
    EXPECT_TRUE(status) << words[0] << ": " << status.message();
    EXPECT_EQ(codec::xxh3_64(target.bytes(), codec::Kernel::scalar),
              std::stoull(words[1], nullptr, 16))
        << words[0];
    EXPECT_TRUE(target.is_intact());
    ++count;
  }
  EXPECT_EQ(count, 11U);
}

TEST(LosslessGolden, ObjectsOfTheVectorsComeBack) {
  for (const LosslessCase& one : lossless_cases()) {
    const Buffer object = lossless_object(one);
    const Serde serde = *make_lossless({{"level", one.level}});
    Buffer frame(*serde.serializer->estimate_serialized_size(one.layout));
    ASSERT_TRUE(serde.serializer->serialize({one.layout, object}, frame));
    Buffer target(object.size());
    ASSERT_TRUE(serde.deserializer->deserialize(frame, {one.layout, target})) << one.name;
    EXPECT_TRUE(target == object) << one.name;
  }
}

TEST(LosslessGolden, ExampleOfThePage) {
  const Layout layout = {{DType::bfloat16, {2, 2}}, {DType::uint8, {3}}};
  const Buffer object = codec::hex("803f80bf20410000010203");
  const Serde serde = *make_lossless({});
  Buffer frame(*serde.serializer->estimate_serialized_size(layout));
  const auto size = serde.serializer->serialize({layout, object}, frame);
  ASSERT_TRUE(size);
  EXPECT_EQ(*size, frame.size());
  EXPECT_EQ(frame, example_of("docs/formats/lossless.md", "example"));
}

}  // namespace
}  // namespace aerokv::serde
