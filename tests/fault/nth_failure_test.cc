// SPDX-License-Identifier: Apache-2.0
// Every request of every operation fails in every way that the fault plan knows.
#include "tests/fault/nth_failure.h"

namespace aerokv::testing {
namespace {

constexpr size_t kInline = 3000;

struct Case {
  Scenario scenario;
  Aim aim;
};

std::vector<Case> cases() {
  using enum Operation;
  const std::vector<Scenario> puts = {
      {"put_inline", put, std::nullopt, kInline},
      {"put_segmented", put, std::nullopt, 3 * kSegment - 77},
      {"overwrite_same_size", put, 3 * kSegment - 77, 3 * kSegment - 77},
      {"overwrite_inline", put, kInline, kInline},
      {"overwrite_shrinking", put, 4 * kSegment - 5, 2 * kSegment - 9},
      {"overwrite_growing", put, 2 * kSegment - 9, 4 * kSegment - 5},
      {"overwrite_to_inline", put, 3 * kSegment, kInline},
      {"overwrite_to_segments", put, kInline, 2 * kSegment},
  };
  const std::vector<Scenario> gets = {
      {"get_inline", get, kInline, kInline},
      {"get_segmented", get, 3 * kSegment - 77, 3 * kSegment - 77},
      {"get_fewer_segments", get, 2 * kSegment - 77, 4 * kSegment},
      {"get_inline_not_segments", get, kInline, 2 * kSegment},
  };
  const std::vector<Scenario> others = {
      {"exists", exists, 2 * kSegment, 0},
      {"remove", remove, 3 * kSegment, 0},
      {"touch", touch, 3 * kSegment, 0},
  };
  std::vector<Case> all;
  for (const Scenario& scenario : puts) all.push_back({scenario, Aim::record});
  for (const Scenario& scenario : gets) all.push_back({scenario, Aim::record});
  for (const Scenario& scenario : puts) {
    if (!scenario.stored) continue;
    all.push_back({scenario, Aim::row});
    if (scenario.name == "overwrite_shrinking") all.push_back({scenario, Aim::message});
  }
  for (const Scenario& scenario : others) {
    all.push_back({scenario, Aim::row});
    all.push_back({scenario, Aim::message});
  }
  return all;
}

class NthFailure : public ::testing::TestWithParam<Case> {};

TEST_P(NthFailure, HarmsNothing) {
  const uint64_t applied = fail_every_request(GetParam().scenario, GetParam().aim);
  EXPECT_GE(applied, variants_for(GetParam().aim).size()) << "the faults hit nothing";
}

INSTANTIATE_TEST_SUITE_P(All, NthFailure, ::testing::ValuesIn(cases()), [](const auto& test) {
  return test.param.scenario.name + "_" + aim_name(test.param.aim);
});

}  // namespace
}  // namespace aerokv::testing
