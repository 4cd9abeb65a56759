// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>

#include "serde/golden_testing.h"
#include "serde/serdes_testing.h"

namespace aerokv::serde {
namespace {

SerdeConfig plain_chain() {
  return {"chain", {{"stages", std::vector<SerdeConfig>{{"checksum", {}}}}}};
}

TEST(Registry, BuiltinTypesAreKnownInOrder) {
  const auto types = registered_serde_types();
  EXPECT_TRUE(std::is_sorted(types.begin(), types.end()));
  for (const char* type :
       {"aesgcm", "chain", "checksum", "fp8", "int4", "int8", "k16v8", "lossless"}) {
    EXPECT_TRUE(std::find(types.begin(), types.end(), type) != types.end()) << type;
  }
}

TEST(Registry, ThePageNamesEachTypeInItsTables) {
  const std::string page = golden_text("docs/reference/serde.md");
  const std::string types = page.substr(page.find("## Types"), page.find("## Tensors"));
  const std::string tags = page.substr(page.find("## Tags"), page.find("## Estimates"));
  for (const char* type :
       {"aesgcm", "chain", "checksum", "fp8", "int4", "int8", "k16v8", "lossless"}) {
    EXPECT_NE(types.find("`" + std::string(type) + "`"), std::string::npos) << type;
    EXPECT_NE(tags.find("| `" + std::string(type) + "` |"), std::string::npos) << type;
  }
}

TEST(Registry, UnknownTypesAreAnsweredWithTheKnownOnes) {
  for (const Status& status :
       {create_serde_processor({"zip", {}}).error(), make_serde({"zip", {}}).error()}) {
    EXPECT_EQ(status.code(), Code::invalid);
    EXPECT_NE(status.message().find("\"zip\""), std::string::npos);
    EXPECT_NE(status.message().find("chain, checksum"), std::string::npos) << status.message();
  }
}

TEST(Registry, AFactoryGetsTheParametersOncePerProcessor) {
  size_t calls = 0;
  SerdeParams seen;
  const auto factory = [&](const SerdeParams& params) {
    ++calls;
    seen = params;
    return make_async_serde_processor(test_serde(), 1);
  };
  ASSERT_TRUE(register_serde_factory("registry-test", factory).ok());
  EXPECT_EQ(register_serde_factory("registry-test", factory).code(), Code::invalid);
  EXPECT_EQ(register_serde_factory("checksum", factory).code(), Code::invalid);
  EXPECT_EQ(register_serde_factory("", factory).code(), Code::invalid);
  EXPECT_EQ(register_serde_factory("registry-test-2", nullptr).code(), Code::invalid);
  EXPECT_EQ(calls, 0U);
  ASSERT_TRUE(create_serde_processor({"registry-test", {{"max_workers", int64_t{3}}}}).has_value());
  EXPECT_EQ(calls, 1U);
  EXPECT_EQ(std::get<int64_t>(seen.at("max_workers")), 3);
}

TEST(Registry, MaxWorkersIsTheProcessorsOwn) {
  EXPECT_TRUE(create_serde_processor({"checksum", {}}).has_value());
  EXPECT_TRUE(create_serde_processor({"checksum", {{"max_workers", int64_t{2}}}}).has_value());
  for (const SerdeValue& bad :
       {SerdeValue(int64_t{0}), SerdeValue(int64_t{257}), SerdeValue(std::string("2"))}) {
    const auto made = create_serde_processor({"checksum", {{"max_workers", bad}}});
    ASSERT_FALSE(made.has_value());
    EXPECT_NE(made.error().message().find("checksum: max_workers"), std::string::npos);
  }
  EXPECT_FALSE(make_serde({"checksum", {{"max_workers", int64_t{2}}}}).has_value());
  EXPECT_FALSE(create_serde_processor({"checksum", {{"levle", int64_t{2}}}}).has_value());
  EXPECT_TRUE(create_serde_processor(plain_chain()).has_value());
}

}  // namespace
}  // namespace aerokv::serde
