// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <sstream>
#include <thread>

#include "codec/checksum_copy.h"
#include "serde/builtin.h"
#include "serde/golden_testing.h"

namespace aerokv::serde {
namespace {

constexpr const char* kTypes[] = {"int8", "int4"};
constexpr const char* kCases[] = {"kv",      "heads",       "odd_columns", "odd_heads",
                                  "latent",  "layer",       "groups",      "odd_bfloat16",
                                  "empty",   "odd_float16", "odd_float32", "real",
                                  "small_0", "small_1",     "small_2",     "small_3"};

/// Some object and its frame.
struct Case {
  SerdeParams params;
  Layout layout;
  std::vector<std::byte> source, frame, loaded;

  Case(const std::string& type, const std::string& name) {
    const std::string path = "tests/golden/serde/" + type + "/" + name;
    std::istringstream text(golden_text(path + ".txt"));
    std::string head_dim;
    std::string layout_line;
    std::getline(text, head_dim);
    std::getline(text, layout_line);
    if (head_dim != "0") params["head_dim"] = static_cast<int64_t>(std::stoll(head_dim));
    layout = parse_layout(layout_line);
    source = golden_bytes(path + ".source");
    frame = golden_bytes(path + ".frame");
    loaded = golden_bytes(path + ".loaded");
  }
};

Status decode(const Serde& serde, Bytes frame, const Layout& layout, std::vector<std::byte>& out) {
  // What lies behind the target must stay as it is.
  constexpr size_t kGuard = 64;
  std::vector<std::byte> guarded(*layout_bytes(layout) + kGuard, std::byte{0xA5});
  const MutableBytes target = MutableBytes(guarded).first(guarded.size() - kGuard);
  const Status status = serde.deserializer->deserialize(frame, {layout, target});
  EXPECT_TRUE(std::all_of(guarded.end() - kGuard, guarded.end(),
                          [](std::byte byte) { return byte == std::byte{0xA5}; }));
  out.assign(target.begin(), target.end());
  return status;
}

TEST(Quantized, GoldenVectorsOfVersion1) {
  for (const char* type : kTypes) {
    for (const char* name : kCases) {
      SCOPED_TRACE(std::string(type) + "/" + name);
      const Case golden(type, name);
      const Serde serde = *make_serde({type, golden.params});
      ASSERT_EQ(*serde.serializer->estimate_serialized_size(golden.layout), golden.frame.size());
      std::vector<std::byte> stored(golden.frame.size() + 100, std::byte{0x77});
      EXPECT_EQ(*serde.serializer->serialize({golden.layout, golden.source}, stored),
                golden.frame.size());
      EXPECT_TRUE(std::all_of(stored.end() - 100, stored.end(),
                              [](std::byte byte) { return byte == std::byte{0x77}; }));
      std::vector<std::byte> loaded;
      EXPECT_TRUE(decode(serde, stored, golden.layout, loaded).ok());
      EXPECT_EQ(loaded, golden.loaded);
      stored.resize(golden.frame.size());
      EXPECT_EQ(stored, golden.frame);
      // head_dim stands in the frame.
      EXPECT_TRUE(decode(*make_serde({type, {}}), stored, golden.layout, loaded).ok());
    }
  }
}

TEST(Quantized, TruncatedFramesAreRefusedAtEveryLength) {
  for (const char* type : kTypes) {
    const Case golden(type, "groups");
    const Serde serde = *make_serde({type, golden.params});
    std::vector<std::byte> loaded;
    for (size_t size = 0; size < golden.frame.size(); ++size) {
      const Status status = decode(serde, Bytes(golden.frame).first(size), golden.layout, loaded);
      ASSERT_EQ(status.code(), Code::corruption) << size;
      ASSERT_TRUE(std::all_of(loaded.begin(), loaded.end(), [](std::byte byte) {
        return byte == std::byte{0xA5};
      })) << "written before the frame was known to be whole";
    }
  }
}

TEST(Quantized, EveryChangedBitIsNoticed) {
  for (const char* type : kTypes) {
    const Case golden(type, "groups");
    const Serde serde = *make_serde({type, golden.params});
    std::vector<std::byte> loaded;
    for (size_t at = 0; at < 8 * golden.frame.size(); at += at < 8 * 360 ? 1 : 5) {
      auto frame = golden.frame;
      frame[at / 8] ^= static_cast<std::byte>(1U << (at % 8));
      const Status status = decode(serde, frame, golden.layout, loaded);
      ASSERT_TRUE(status.code() == Code::corruption || status.code() == Code::invalid) << at;
    }
  }
}

TEST(Quantized, OtherVersionsBitsAndTensorsAreRefused) {
  const Case golden("int8", "kv");
  const Serde serde = *make_serde({"int8", {}});
  std::vector<std::byte> loaded;
  const auto code_of = [&](auto change, const Layout& layout) {
    auto frame = golden.frame;
    change(frame);
    // Whoever damages on purpose gives the right sum.
    store_le(&frame[frame.size() - 8],
             codec::xxh3_64(Bytes(frame).first(frame.size() - 8), codec::Kernel::scalar));
    return decode(serde, frame, layout, loaded).code();
  };
  const auto nothing = [](auto&) {};
  EXPECT_EQ(code_of(nothing, golden.layout), Code::ok);
  EXPECT_EQ(code_of([](auto& f) { f[0] = std::byte{'B'}; }, golden.layout), Code::invalid);
  EXPECT_EQ(code_of([](auto& f) { f[4] = std::byte{2}; }, golden.layout), Code::invalid);
  EXPECT_EQ(code_of([](auto& f) { f[5] = std::byte{4}; }, golden.layout), Code::invalid);
  EXPECT_EQ(code_of([](auto& f) { f[6] = std::byte{2}; }, golden.layout), Code::invalid);
  EXPECT_EQ(code_of([](auto& f) { f[8] = std::byte{7}; }, golden.layout), Code::invalid);
  EXPECT_EQ(code_of([](auto& f) { f[12] = std::byte{1}; }, golden.layout), Code::invalid);
  EXPECT_EQ(code_of([](auto& f) { f[16] ^= std::byte{1}; }, golden.layout), Code::invalid);
  EXPECT_EQ(code_of([](auto& f) { f[25] = std::byte{0}; }, golden.layout), Code::invalid);
  EXPECT_EQ(code_of(nothing, {{DType::float16, {2, 2, 24, 16}}}), Code::invalid);
  EXPECT_EQ(code_of(nothing, {{DType::bfloat16, {2, 4, 12, 16}}}), Code::invalid);
  EXPECT_EQ(code_of(nothing, {{DType::bfloat16, {2, 2, 16, 24}}}), Code::invalid);
  EXPECT_EQ(code_of(nothing, {{DType::bfloat16, {1, 4, 24, 16}}}), Code::invalid);
  // An extreme that is infinite, with the right sum.
  EXPECT_EQ(code_of([](auto& f) { store_le<uint16_t>(&f[64], 0x7f80); }, golden.layout),
            Code::corruption);
}

TEST(Quantized, TargetsThatAreTooSmallStayUntouched) {
  const Case golden("int4", "kv");
  const Serde serde = *make_serde({"int4", {}});
  std::vector<std::byte> stored(golden.frame.size() - 1, std::byte{0x77});
  const auto written = serde.serializer->serialize({golden.layout, golden.source}, stored);
  EXPECT_EQ(written.error().code(), Code::invalid);
  EXPECT_TRUE(std::all_of(stored.begin(), stored.end(),
                          [](std::byte byte) { return byte == std::byte{0x77}; }));
}

TEST(Quantized, NumbersThatHaveNoCodeAreNamed) {
  const Layout layout = {{DType::uint8, {3}}, {DType::float32, {2, 3, 10, 8}}};
  for (const char* type : kTypes) {
    for (const double bad : {std::nan(""), std::numeric_limits<double>::infinity()}) {
      std::vector<std::byte> source(*layout_bytes(layout));
      for (const size_t at : {401U, 203U, 77U}) {
        const auto value = static_cast<float>(bad);
        std::memcpy(&source[3 + 4 * at], &value, 4);
      }
      std::vector<std::byte> stored(10'000);
      const Serde serde = *make_serde({type, {}});
      const auto written = serde.serializer->serialize({layout, source}, stored);
      ASSERT_FALSE(written.has_value());
      EXPECT_EQ(written.error().code(), Code::invalid);
      EXPECT_NE(written.error().message().find("tensor 1, element 77:"), std::string::npos)
          << written.error().message();
    }
  }
}

TEST(Quantized, ParametersAreChecked) {
  EXPECT_EQ(make_serde({"int8", {{"head_dim", int64_t{64}}}})->tag, "int8:64");
  EXPECT_EQ(make_serde({"int4", {}})->tag, "int4");
  EXPECT_FALSE(make_serde({"int8", {{"head_dim", int64_t{-1}}}}).has_value());
  EXPECT_FALSE(make_serde({"int8", {{"bits", int64_t{4}}}}).has_value());
  const Serde serde = *make_serde({"int8", {{"head_dim", int64_t{64}}}});
  const auto estimate = serde.serializer->estimate_serialized_size({{DType::bfloat16, {4, 96}}});
  ASSERT_FALSE(estimate.has_value());
  EXPECT_NE(estimate.error().message().find("head_dim 64 does not divide"), std::string::npos);
}

TEST(Quantized, BytesDoNotDependOnTheNumberOfThreads) {
  const auto layout = std::make_shared<Layout>(Layout{{DType::bfloat16, {2, 4, 256, 512}},
                                                      {DType::bfloat16, {1, 4, 256, 512}},
                                                      {DType::uint8, {3'000'000}}});
  const Case real("int8", "real");
  std::vector<std::byte> source(*layout_bytes(*layout));
  for (size_t i = 0; i < source.size(); ++i) source[i] = real.source[i % real.source.size()];
  for (const char* type : kTypes) {
    std::vector<std::vector<std::byte>> outcomes;
    for (const int64_t workers : {1, 2, 8}) {
      auto processor = *create_serde_processor({type, {{"max_workers", workers}}});
      outcomes.emplace_back(*processor->estimate_serialized_size(*layout));
      const auto id = processor->submit_serialize({{layout, source, outcomes.back(), {}}});
      ASSERT_TRUE(id.has_value());
      std::vector<std::byte> loaded(source.size());
      std::optional<SerdeResult> result;
      while (!(result = processor->query_serialize_result(*id))) std::this_thread::yield();
      ASSERT_TRUE(result->ok) << processor->last_errors().front().status.message();
      const auto back = processor->submit_deserialize({{outcomes.back(), layout, loaded, {}}});
      while (!(result = processor->query_deserialize_result(*back))) std::this_thread::yield();
      ASSERT_TRUE(result->ok);
      outcomes.push_back(std::move(loaded));
    }
    for (size_t i = 2; i < outcomes.size(); ++i) EXPECT_EQ(outcomes[i], outcomes[i % 2]) << type;
  }
}

TEST(Quantized, TheExampleOfTheFormatPage) {
  const auto frame = example_of("docs/formats/int.md", "int8");
  const Layout layout = {{DType::bfloat16, {2, 1, 8, 2}}};
  // Keys: 0, 1, ... 7 and their hundredfold; values: 1, 2 in each token.
  std::vector<std::byte> source(64);
  const auto put = [&source](size_t at, float value) {
    store_le(&source[2 * at], static_cast<uint16_t>(std::bit_cast<uint32_t>(value) >> 16));
  };
  for (size_t i = 0; i < 8; ++i) {
    put(2 * i, static_cast<float>(i));
    put(2 * i + 1, static_cast<float>(i) * 128);
    put(16 + 2 * i, 1);
    put(16 + 2 * i + 1, 2);
  }
  const Serde serde = *make_serde({"int8", {}});
  std::vector<std::byte> stored(*serde.serializer->estimate_serialized_size(layout));
  ASSERT_TRUE(serde.serializer->serialize({layout, source}, stored).has_value());
  EXPECT_EQ(stored, frame) << hex(stored);
}

}  // namespace
}  // namespace aerokv::serde
