// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>
#include <sys/stat.h>

#include <algorithm>
#include <cstdlib>
#include <fstream>

#include "codec/chain_frame.h"
#include "serde/builtin.h"
#include "serde/golden_testing.h"

namespace aerokv::serde {
namespace {

using Stages = std::vector<SerdeConfig>;

Result<Serde> chain(const Stages& stages) {
  return make_serde({"chain", {{"stages", stages}}});
}

Layout small_layout() {
  return {{DType::bfloat16, {2, 2, 24, 16}}, {DType::uint8, {5}}};
}

std::vector<std::byte> some_object(const Layout& layout) {
  std::vector<std::byte> source = golden_bytes("tests/golden/serde/int8/kv.source");
  source.resize(*layout_bytes(layout), std::byte{0x3c});
  return source;
}

/// A file with a key of 32 bytes that only its owner may read.
class KeyFile {
 public:
  KeyFile() {
    std::string pattern = ::testing::TempDir() + "chain_key_XXXXXX";
    const int fd = ::mkstemp(pattern.data());
    EXPECT_GE(fd, 0);
    path_ = pattern;
    std::ofstream(path_) << std::string(32, 'k');
    ::fchmod(fd, 0600);
    ::close(fd);
  }
  KeyFile(const KeyFile&) = delete;
  KeyFile& operator=(const KeyFile&) = delete;
  ~KeyFile() { ::unlink(path_.c_str()); }
  [[nodiscard]] const std::string& path() const { return path_; }

 private:
  std::string path_;
};

std::vector<std::byte> encoded(const Serde& serde, const Layout& layout, Bytes source,
                               const SerdeKey& key = {}) {
  const Result<size_t> estimate = serde.serializer->estimate_serialized_size(layout);
  EXPECT_TRUE(estimate.has_value());
  std::vector<std::byte> frame(*estimate);
  const Result<size_t> written = serde.serializer->serialize({layout, source}, frame, key);
  EXPECT_TRUE(written.has_value()) << written.error().message();
  frame.resize(*written);
  return frame;
}

TEST(Chain, EveryChainGivesTheObjectBack) {
  const KeyFile key_file;
  const SerdeConfig aesgcm{"aesgcm", {{"master_key_path", key_file.path()}}};
  const Layout layout = small_layout();
  const auto source = some_object(layout);
  const SerdeKey key{"0123456789", "tenant"};
  const Stages chains[] = {
      {{"checksum", {}}},
      {{"lossless", {}}, {"checksum", {}}},
      {{"lossless", {}}, aesgcm},
      {{"lossless", {}}, aesgcm, {"checksum", {}}},
      {aesgcm,
       aesgcm,
       {"lossless", {}},
       {"checksum", {}},
       {"checksum", {}},
       {"lossless", {}},
       {"checksum", {}},
       aesgcm},
  };
  for (const Stages& stages : chains) {
    const Serde serde = *chain(stages);
    SCOPED_TRACE(serde.tag);
    std::vector<std::byte> frame = encoded(serde, layout, source, key);
    EXPECT_LE(frame.size(), *serde.serializer->estimate_serialized_size(layout));
    // Loaded buffers are as long as the estimate.
    frame.resize(*serde.serializer->estimate_serialized_size(layout) + 50, std::byte{0xEE});
    std::vector<std::byte> loaded(source.size());
    const Status status = serde.deserializer->deserialize(frame, {layout, loaded}, key);
    EXPECT_TRUE(status.ok()) << status.message();
    EXPECT_EQ(loaded, source);
  }
}

TEST(Chain, LossyStagesComeFirst) {
  const Layout layout = {{DType::bfloat16, {2, 2, 24, 16}}};
  const auto source = golden_bytes("tests/golden/serde/int8/kv.source");
  const Serde serde = *chain({{"int8", {}}, {"lossless", {}}, {"checksum", {}}});
  const auto frame = encoded(serde, layout, source);
  std::vector<std::byte> loaded(source.size());
  ASSERT_TRUE(serde.deserializer->deserialize(frame, {layout, loaded}).ok());
  EXPECT_EQ(loaded, golden_bytes("tests/golden/serde/int8/kv.loaded"));
}

TEST(Chain, TagsNameAllStages) {
  const KeyFile key_file;
  const SerdeConfig aesgcm{"aesgcm", {{"master_key_path", key_file.path()}}};
  const std::string lossless = make_serde({"lossless", {}})->tag;
  EXPECT_EQ(chain({{"lossless", {}}, aesgcm})->tag,
            "chain(" + lossless + "," + make_serde(aesgcm)->tag + ")");
  EXPECT_EQ(make_serde({"chain", {{"stages", Stages{{"int8", {{"head_dim", int64_t{8}}}}}}}})->tag,
            "chain(int8:8)");
}

TEST(Chain, ConfigurationsAreChecked) {
  const auto message = [](const SerdeParams& params) {
    const Result<Serde> made = make_serde({"chain", params});
    EXPECT_FALSE(made.has_value());
    return made ? std::string() : made.error().message();
  };
  EXPECT_NE(message({}).find("stages: 0 stages, expected 1 to 8"), std::string::npos);
  EXPECT_NE(message({{"stages", Stages(9, {"checksum", {}})}}).find("9 stages"), std::string::npos);
  EXPECT_NE(message({{"stages", std::string("lossless")}}).find("a list"), std::string::npos);
  EXPECT_NE(message({{"stages", Stages{{"zip", {}}}}}).find("stage 1 (zip)"), std::string::npos);
  EXPECT_NE(message({{"stages", Stages{{"checksum", {}}, {"chain", {}}}}}).find("stage 2 (chain)"),
            std::string::npos);
  EXPECT_NE(message({{"stages", Stages{{"int8", {{"levle", int64_t{1}}}}}}}).find("levle"),
            std::string::npos);
  EXPECT_NE(message({{"stages", Stages{{"checksum", {}}}}, {"level", int64_t{1}}}).find("level"),
            std::string::npos);
}

TEST(Chain, TruncatedFramesAreRefusedAtEveryLength) {
  const Layout layout = small_layout();
  const Serde serde = *chain({{"lossless", {}}, {"checksum", {}}});
  const auto frame = encoded(serde, layout, some_object(layout));
  std::vector<std::byte> loaded(*layout_bytes(layout));
  for (size_t size = 0; size < frame.size(); ++size) {
    const Status status =
        serde.deserializer->deserialize(Bytes(frame).first(size), {layout, loaded});
    ASSERT_EQ(status.code(), Code::corruption) << size;
  }
}

TEST(Chain, EveryChangedBitIsNoticed) {
  const Layout layout = small_layout();
  const Serde serde = *chain({{"lossless", {}}, {"checksum", {}}});
  const auto frame = encoded(serde, layout, some_object(layout));
  std::vector<std::byte> loaded(*layout_bytes(layout));
  for (size_t at = 0; at < 8 * frame.size(); at += at < 8 * 300 ? 1 : 7) {
    auto damaged = frame;
    damaged[at / 8] ^= static_cast<std::byte>(1U << (at % 8));
    ASSERT_FALSE(serde.deserializer->deserialize(damaged, {layout, loaded}).ok()) << at;
  }
}

TEST(Chain, AFailureNamesItsStage) {
  const Layout layout = small_layout();
  const auto source = some_object(layout);
  const Serde serde = *chain({{"lossless", {}}, {"checksum", {}}});
  auto frame = encoded(serde, layout, source, {"one key", ""});
  std::vector<std::byte> loaded(source.size());
  const Status status =
      serde.deserializer->deserialize(frame, {layout, loaded}, {"another key", ""});
  EXPECT_FALSE(status.ok());
  EXPECT_NE(status.message().find("chain: stage 2 (checksum)"), std::string::npos)
      << status.message();
  const std::vector<std::byte> not_a_number(16, std::byte{0xff});
  const Layout rows = {{DType::float32, {1, 4}}};
  const Serde lossy = *chain({{"int8", {}}, {"checksum", {}}});
  std::vector<std::byte> target(1000);
  const auto written = lossy.serializer->serialize({rows, not_a_number}, target);
  ASSERT_FALSE(written.has_value());
  EXPECT_NE(written.error().message().find("chain: stage 1 (int8): int8: tensor 0, element 0"),
            std::string::npos)
      << written.error().message();
}

TEST(Chain, TargetsThatAreTooSmallAreRefused) {
  const Layout layout = small_layout();
  const auto source = some_object(layout);
  const Serde serde = *chain({{"checksum", {}}, {"checksum", {}}});
  const size_t needed = *serde.serializer->estimate_serialized_size(layout);
  for (const size_t size : {size_t{0}, size_t{23}, size_t{24}, needed - 1}) {
    std::vector<std::byte> target(size, std::byte{0x77});
    const auto written = serde.serializer->serialize({layout, source}, target);
    ASSERT_FALSE(written.has_value()) << size;
    EXPECT_EQ(written.error().code(), Code::invalid);
    EXPECT_TRUE(std::all_of(target.begin(), target.end(),
                            [](std::byte byte) { return byte == std::byte{0x77}; }));
  }
}

TEST(ChainHeader, HostileLengthsAreRefused) {
  std::vector<std::byte> frame(codec::chain_header_bytes(2) + 10);
  const std::vector<uint64_t> bounds = {100, 20};
  const auto read = [&](uint64_t first, uint64_t second) {
    codec::write_chain_header({first, second}, frame);
    return codec::read_chain_header(frame, bounds);
  };
  EXPECT_EQ(*read(100, 10), (std::vector<uint64_t>{100, 10}));
  EXPECT_EQ(read(101, 10).error().code(), Code::corruption);
  EXPECT_EQ(read(~uint64_t{0}, 10).error().code(), Code::corruption);
  EXPECT_EQ(read(100, 11).error().code(), Code::corruption);
  EXPECT_EQ(read(100, 21).error().code(), Code::corruption);
  codec::write_chain_header({1, 1}, frame);
  for (const size_t at : {0U, 4U, 5U, 6U, 7U}) {
    auto other = frame;
    other[at] ^= std::byte{0x10};
    EXPECT_EQ(codec::read_chain_header(other, bounds).error().code(), Code::invalid) << at;
  }
}

TEST(Chain, GoldenVectorsOfVersion1) {
  const struct {
    const char* name;
    Stages stages;
  } cases[] = {
      {"checksum", {{"checksum", {}}}},
      {"int8_checksum", {{"int8", {}}, {"checksum", {}}}},
      {"checksum_checksum_checksum", {{"checksum", {}}, {"checksum", {}}, {"checksum", {}}}},
  };
  const std::string folder = "tests/golden/serde/chain/";
  const Layout layout = {{DType::bfloat16, {2, 2, 24, 16}}};
  const auto source = golden_bytes("tests/golden/serde/int8/kv.source");
  const SerdeKey key{"\x01\x02\x03\x04\x05\x06\x07\x08\x09", "tenant"};
  for (const auto& one : cases) {
    SCOPED_TRACE(one.name);
    const Serde serde = *chain(one.stages);
    const auto frame = golden_bytes(folder + one.name + ".frame");
    EXPECT_EQ(encoded(serde, layout, source, key), frame);
    std::vector<std::byte> loaded(source.size());
    EXPECT_TRUE(serde.deserializer->deserialize(frame, {layout, loaded}, key).ok());
    const bool is_lossy = one.stages[0].type == "int8";
    EXPECT_EQ(loaded, is_lossy ? golden_bytes("tests/golden/serde/int8/kv.loaded") : source);
  }
}

TEST(Chain, TheExampleOfTheFormatPage) {
  const auto frame = example_of("docs/formats/chain.md", "chain");
  const Layout layout = {{DType::uint8, {3}}};
  const std::byte source[] = {std::byte{'a'}, std::byte{'b'}, std::byte{'c'}};
  const Serde serde = *chain({{"checksum", {}}, {"checksum", {}}});
  const auto made = encoded(serde, layout, source, {"key", ""});
  EXPECT_EQ(made, frame) << hex(made);
}

}  // namespace
}  // namespace aerokv::serde
