// SPDX-License-Identifier: Apache-2.0
#include "store/plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>

#include "base/limits.h"

namespace aerokv::store {
namespace {

constexpr uint64_t kKiB = 1024;
constexpr uint64_t kMiB = 1024 * kKiB;

// The defaults of the planner rule's own table.
constexpr SegmentLimits kDefaults{4 * kMiB, 8 * kMiB, 64 * kKiB, 4 * kMiB};

// Defaults under a server limit: less the safety margin, target 4 MiB clamped.
constexpr SegmentLimits under_cap(uint64_t cap) {
  const uint64_t effective = cap - 64 * kKiB;
  const uint64_t target = std::min(4 * kMiB, effective);
  return {target, effective, 64 * kKiB, target};
}

void expect_covered(const SegmentPlan& plan, uint64_t payload_bytes) {
  ASSERT_EQ(plan.total_bytes, payload_bytes);
  ASSERT_GE(plan.segment_count, 1U);
  uint64_t sum = 0;
  for (uint32_t i = 0; i < plan.segment_count; ++i) {
    ASSERT_EQ(plan.offset(i), sum);
    if (payload_bytes > 0) {
      ASSERT_GT(plan.bytes(i), 0U);
    }
    ASSERT_LE(plan.bytes(i), plan.segment_bytes);
    sum += plan.bytes(i);
  }
  ASSERT_EQ(sum, payload_bytes);
  if (payload_bytes > 0) {
    ASSERT_LT((plan.segment_count - 1) * plan.segment_bytes, payload_bytes);
    ASSERT_LE(payload_bytes, plan.segment_count * plan.segment_bytes);
  }
}

struct Row {
  uint64_t payload_bytes;
  uint32_t segment_count;
  uint64_t segment_bytes;
  uint64_t last_bytes;
};

void expect_rows(const SegmentLimits& limits, std::initializer_list<Row> rows) {
  for (const Row& row : rows) {
    SCOPED_TRACE("payload " + std::to_string(row.payload_bytes));
    const auto plan = plan_segments(row.payload_bytes, limits);
    ASSERT_TRUE(plan) << plan.error().message();
    EXPECT_EQ(plan->segment_count, row.segment_count);
    EXPECT_EQ(plan->segment_bytes, row.segment_bytes);
    EXPECT_EQ(plan->bytes(plan->segment_count - 1), row.last_bytes);
    EXPECT_EQ(plan->is_inline(), row.segment_count == 1);
    expect_covered(*plan, row.payload_bytes);
  }
}

TEST(Plan, RuleTable) {
  expect_rows(kDefaults, {{0, 1, 0, 0},
                          {256, 1, 256, 256},
                          {4 * kMiB, 1, 4194304, 4194304},
                          {4 * kMiB + 1, 2, 2097153, 2097152},
                          {16 * kMiB, 4, 4194304, 4194304},
                          {64 * kMiB, 16, 4194304, 4194304}});
}

TEST(Plan, ServerLimitOneMebibyte) {
  expect_rows(under_cap(kMiB), {{0, 1, 0, 0},
                                {256, 1, 256, 256},
                                {983040, 1, 983040, 983040},
                                {983041, 2, 491521, 491520},
                                {1048576, 2, 524288, 524288},
                                {2097152, 3, 699051, 699050},
                                {4194304, 5, 838861, 838860},
                                {8388608, 9, 932068, 932064},
                                {16777216, 18, 932068, 932060},
                                {33554432, 35, 958699, 958666},
                                {67108864, 69, 972593, 972540},
                                {83886080, 86, 975420, 975380}});
}

TEST(Plan, ServerLimitEightMebibytes) {
  expect_rows(under_cap(8 * kMiB), {{4194304, 1, 4194304, 4194304},
                                    {4194305, 2, 2097153, 2097152},
                                    {8323073, 2, 4161537, 4161536},
                                    {67108864, 16, 4194304, 4194304},
                                    {83886080, 20, 4194304, 4194304}});
}

TEST(Plan, ServerLimitAtItsMinimum) {
  // Both segments of the second row are below the floor, and one record cannot hold the payload:
  // the floor must not stand in the way.
  expect_rows(under_cap(128 * kKiB), {{65536, 1, 65536, 65536}, {65537, 2, 32769, 32768}});
}

TEST(Plan, FloorFallsBackToOneRecord) {
  const SegmentLimits limits{60000, 983040, 64 * kKiB, 50000};
  expect_rows(limits, {{100000, 1, 100000, 100000}});
}

TEST(Plan, TargetBelowPayloadAboveThresholdIsOneRecord) {
  const SegmentLimits limits{60000, 983040, 0, 50000};
  expect_rows(limits, {{55000, 1, 55000, 55000}, {60001, 2, 30001, 30000}});
}

TEST(Plan, ThresholdAboveTarget) {
  expect_rows({30000, 983040, 0, 50000}, {{50000, 1, 50000, 50000}, {50001, 2, 25001, 25000}});
}

TEST(Plan, EmptyPayloadUnderEveryLimit) {
  expect_rows({1, 1, 0, 0}, {{0, 1, 0, 0}});
  expect_rows({1, 1, 100, 0}, {{0, 1, 0, 0}, {1, 1, 1, 1}});
}

TEST(Plan, TargetOverMaximumIsAnError) {
  const SegmentLimits limits{16 * kMiB, 8 * kMiB, 64 * kKiB, 16 * kMiB};
  const auto plan = plan_segments(9 * kMiB, limits);
  ASSERT_FALSE(plan);
  EXPECT_EQ(plan.error().code(), Code::invalid);
  EXPECT_NE(plan.error().message().find("target_segment_bytes"), std::string::npos);
  EXPECT_TRUE(plan_segments(8 * kMiB, limits));
  EXPECT_FALSE(plan_segments(8 * kMiB + 1, limits));
}

TEST(Plan, BadLimitsAndSizesAreErrors) {
  EXPECT_EQ(plan_segments(1, {0, 1, 0, 0}).error().code(), Code::invalid);
  EXPECT_EQ(plan_segments(1, {1, 0, 0, 0}).error().code(), Code::invalid);
  EXPECT_TRUE(plan_segments(kChunkBytesMax, kDefaults));
  EXPECT_EQ(plan_segments(kChunkBytesMax + 1, kDefaults).error().code(), Code::invalid);
  EXPECT_EQ(plan_segments(UINT64_MAX, kDefaults).error().code(), Code::invalid);
}

TEST(Plan, SegmentCountLimit) {
  const SegmentLimits limits{1, 1, 0, 1};
  const auto most = plan_segments(kSegmentsMax, limits);
  ASSERT_TRUE(most);
  EXPECT_EQ(most->segment_count, kSegmentsMax);
  EXPECT_EQ(plan_segments(kSegmentsMax + 1, limits).error().code(), Code::invalid);
}

TEST(Plan, CoversAnySizeWithinItsLimits) {
  const uint32_t seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937_64 random(seed);
  for (int round = 0; round < 20000; ++round) {
    SegmentLimits limits;
    limits.max_bytes = 1 + random() % (1ULL << (1 + random() % 24));
    limits.target_bytes = 1 + random() % limits.max_bytes;
    limits.min_bytes = random() % (limits.max_bytes + 1);
    limits.single_record_bytes = random() % (2 * limits.max_bytes);
    const uint64_t payload_bytes =
        random() % (std::min(500 * limits.target_bytes, kChunkBytesMax) + 1);
    SCOPED_TRACE("payload " + std::to_string(payload_bytes) + " target " +
                 std::to_string(limits.target_bytes) + " max " + std::to_string(limits.max_bytes));
    const auto plan = plan_segments(payload_bytes, limits);
    ASSERT_TRUE(plan) << plan.error().message();
    ASSERT_LE(plan->segment_bytes, limits.max_bytes);
    expect_covered(*plan, payload_bytes);
    if (HasFatalFailure()) return;
  }
}

}  // namespace
}  // namespace aerokv::store
