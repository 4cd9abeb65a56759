// SPDX-License-Identifier: Apache-2.0
#include "aerokv/status.h"

#include <gtest/gtest.h>

#include <memory>
#include <set>
#include <string>

namespace aerokv {
namespace {

TEST(Status, OkIsTheDefault) {
  const Status status;
  EXPECT_TRUE(status.ok());
  EXPECT_TRUE(static_cast<bool>(status));
  EXPECT_EQ(status.code(), Code::ok);
  EXPECT_EQ(status.server_result(), 0);
  EXPECT_FALSE(status.in_doubt());
  EXPECT_TRUE(status.message().empty());
}

TEST(Status, CarriesEverythingThroughContext) {
  const Status inner(Code::timeout, "no answer", 9, true);
  const Status outer = inner.with_context("get abc");
  EXPECT_FALSE(outer.ok());
  EXPECT_EQ(outer.code(), Code::timeout);
  EXPECT_EQ(outer.server_result(), 9);
  EXPECT_TRUE(outer.in_doubt());
  EXPECT_EQ(outer.message(), "get abc: no answer");
  EXPECT_EQ(inner.message(), "no answer");
}

TEST(Status, InDoubtCanBeSet) {
  Status status(Code::unavailable, "reset");
  EXPECT_FALSE(status.in_doubt());
  status.set_in_doubt(true);
  EXPECT_TRUE(status.in_doubt());
}

TEST(Status, EveryCodeHasANameOfItsOwn) {
  std::set<std::string_view> names;
  for (int code = 0; code <= static_cast<int>(Code::internal); ++code) {
    const std::string_view name = code_name(static_cast<Code>(code));
    EXPECT_TRUE(names.insert(name).second) << name;
  }
  EXPECT_EQ(code_name(Code::ok), "ok");
  EXPECT_EQ(code_name(Code::not_found), "not_found");
  EXPECT_EQ(code_name(Code::too_big), "too_big");
  EXPECT_EQ(code_name(Code::internal), "internal");
}

Result<std::unique_ptr<int>> make(bool good) {
  if (!good) return Status(Code::invalid, "no");
  return std::make_unique<int>(7);
}

TEST(Result, HoldsAMoveOnlyValue) {
  auto result = make(true);
  ASSERT_TRUE(result);
  ASSERT_TRUE(result.has_value());
  EXPECT_EQ(**result, 7);
  const std::unique_ptr<int> taken = *std::move(result);
  EXPECT_EQ(*taken, 7);
}

TEST(Result, HoldsAnError) {
  const auto result = make(false);
  EXPECT_FALSE(result);
  EXPECT_EQ(result.error().code(), Code::invalid);
}

Status fail_on(int step, int& reached) {
  for (int i = 0; i < 3; ++i) {
    reached = i;
    AEROKV_TRY(i == step ? Status(Code::internal, "step " + std::to_string(i)) : Status());
  }
  return {};
}

TEST(Try, ReturnsTheFirstError) {
  int reached = 0;
  EXPECT_EQ(fail_on(1, reached).message(), "step 1");
  EXPECT_EQ(reached, 1);
  EXPECT_TRUE(fail_on(7, reached));
  EXPECT_EQ(reached, 2);
}

}  // namespace
}  // namespace aerokv
