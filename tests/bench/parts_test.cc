// SPDX-License-Identifier: Apache-2.0
// What the benchmark programs are made of.
#include <gtest/gtest.h>
#include <unistd.h>

#include <cstring>

#include "process.h"
#include "report.h"
#include "workload.h"

namespace aerokv::bench {
namespace {

TEST(Samples, HaveMedianAndNearestRankPercentiles) {
  Samples samples;
  EXPECT_EQ(samples.median(), 0);
  EXPECT_EQ(samples.percentile(99), 0);
  for (const double value : {5.0, 1.0, 4.0, 2.0}) samples.add(value);
  EXPECT_EQ(samples.median(), 3);
  samples.add(3);
  EXPECT_EQ(samples.median(), 3);
  EXPECT_EQ(samples.min(), 1);
  EXPECT_EQ(samples.max(), 5);
  EXPECT_EQ(samples.percentile(20), 1);
  EXPECT_EQ(samples.percentile(21), 2);
  EXPECT_EQ(samples.percentile(99), 5);
}

TEST(Json, IsWrittenInOrderAndEscaped) {
  Samples samples;
  samples.add(2);
  Json inner;
  inner.add("a", true);
  Json json;
  json.add("text", "a\"b\\c\n").add("whole", uint64_t{7}).add("real", 0.5).add("list", {inner, {}});
  json.add("samples", samples).add("bad", 0.0 / std::strtod("0", nullptr));
  EXPECT_EQ(json.text(),
            "{\"text\":\"a\\\"b\\\\c\\u000a\",\"whole\":7,\"real\":0.5,\"list\":[{\"a\":true},{}],"
            "\"samples\":{\"median\":2,\"min\":2,\"max\":2},\"bad\":0}");
}

TEST(Process, CpuSecondsGrowWithWork) {
  const double before = process_cpu_seconds();
  const double by_pid = process_cpu_seconds(::getpid());
  volatile uint64_t sink = 0;
  while (process_cpu_seconds() - before < 0.02) sink = sink + 1;
  EXPECT_GE(process_cpu_seconds(::getpid()) - by_pid, 0.01);
  EXPECT_EQ(process_cpu_seconds(-1), 0);
}

TEST(Process, ResidentPeakSeesMemoryThatIsGoneAgain) {
  constexpr size_t kBytes = 64U << 20;
  ResidentPeak peak;
  {
    const Memory memory(kBytes, 1);
  }
  // Filling takes far longer than the interval of the watch.
  EXPECT_GE(peak.stop(), kBytes / 2);
  ResidentPeak idle;
  EXPECT_LT(idle.stop(), kBytes / 2);
}

TEST(Child, AnswersCommandsAndEnds) {
  Result<ReadyChild> ready =
      spawn_ready({"sh", "-c", "echo ready there; while read x; do echo ${x#say }; done"});
  ASSERT_TRUE(ready) << ready.error().message();
  EXPECT_EQ(ready->address, "there");
  EXPECT_TRUE(ready->child->command("say ok").ok());
  EXPECT_EQ(ready->child->command("say no").message(), "say no: no");
  EXPECT_EQ(ready->child->pid() > 0, true);
}

TEST(Child, WhatIsNotReadyIsAnError) {
  EXPECT_EQ(spawn_ready({"sh", "-c", "echo busy"}).error().code(), Code::protocol);
  EXPECT_EQ(spawn_ready({"true"}).error().code(), Code::closed);
  EXPECT_FALSE(spawn_ready({"/does/not/exist"}));
}

TEST(Memory, SlicesFollowEachOtherAndWrap) {
  const Memory memory(10 << 10, 2);
  const auto slices = memory.slices(4 << 10, 3);
  ASSERT_EQ(slices.size(), 3U);
  EXPECT_EQ(slices[0].data(), memory.bytes().data());
  EXPECT_EQ(slices[1].data(), slices[0].data() + (4 << 10));
  EXPECT_EQ(slices[2].data(), slices[0].data());
  const Memory same(10 << 10, 2);
  const Memory other(10 << 10, 3);
  EXPECT_EQ(std::memcmp(memory.bytes().data(), same.bytes().data(), 10 << 10), 0);
  EXPECT_NE(std::memcmp(memory.bytes().data(), other.bytes().data(), 10 << 10), 0);
}

}  // namespace
}  // namespace aerokv::bench
