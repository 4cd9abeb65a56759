// SPDX-License-Identifier: Apache-2.0
// Some seconds of chaos, and the proof that chaos can fail: planted defects are found, and the
// schedule is cut down to the event that wakes one.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <fstream>
#include <iterator>
#include <random>

#include "tests/chaos/defects.h"
#include "tests/chaos/run.h"
#include "tests/chaos/shrink.h"

namespace aerokv::chaos {
namespace {

using testing::kSlowness;

std::string joined(const std::vector<std::string>& texts) {
  std::string all;
  for (const std::string& text : texts) all += text + "\n";
  return all;
}

TEST(Schedule, IsThatOfThePythonPart) {
  std::ifstream file(AEROKV_SOURCE_DIR "/tests/chaos/schedule_golden.txt");
  ASSERT_TRUE(file);
  std::string text;
  for (const auto& [seed, seconds, nodes] :
       std::vector<std::array<uint64_t, 3>>{{1, 20, 3}, {2, 20, 4}, {77, 60, 5}}) {
    text += "# " + std::to_string(seed) + " " + std::to_string(seconds) + " " +
            std::to_string(nodes) + "\n";
    for (const Event& event : make_schedule({seed, seconds, nodes})) text += text_of(event) + "\n";
  }
  EXPECT_EQ(std::string(std::istreambuf_iterator<char>(file), {}), text);
}

TEST(Schedule, HasEveryKindOfEvent) {
  std::string text;
  for (uint64_t seed = 0; seed < 20; ++seed) {
    for (const Event& event : make_schedule({seed, 60, 4})) text += text_of(event) + "\n";
  }
  for (const char* verb :
       {"stop", "start", "pause", "resume", "remove", "fault", "unfault", "limit", "link",
        "latency", "stop_writes", "expire\n", "user", "rack", "rotate\n"}) {
    EXPECT_NE(text.find(" " + std::string(verb)), std::string::npos) << verb;
  }
  // What stops or freezes a node by itself is left out: the stage could not bring it back.
  for (size_t i = 0; i + 2 < devserver::kFaultActions; ++i) {
    const auto action = static_cast<devserver::FaultAction>(i);
    EXPECT_NE(text.find(" action=" + std::string(devserver::fault_action_name(action)) + " "),
              std::string::npos)
        << devserver::fault_action_name(action);
  }
}

/// `length` events fail if the event with index `culprit` is among them, in `one_of` attempts.
Shrunk shrink_to(size_t culprit, size_t length, int tries, int one_of) {
  int attempts = 0;
  return shrink({true, length, "first"}, tries, [&](size_t events) {
    const bool fails = events > culprit && ++attempts % one_of == 0;
    return Attempt{fails, fails ? culprit + 1 : events, "again"};
  });
}

TEST(Shrinking, FindsTheShortestPrefix) {
  for (size_t culprit = 0; culprit < 40; ++culprit) {
    const Shrunk shrunk = shrink_to(culprit, 40, 2, 1);
    EXPECT_EQ(shrunk.events, culprit + 1);
    EXPECT_EQ(shrunk.failures, 2);
  }
}

TEST(Shrinking, SaysHowOftenARaceComesAgain) {
  const Shrunk shrunk = shrink_to(20, 40, 4, 2);
  EXPECT_EQ(shrunk.events, 21U);
  EXPECT_EQ(shrunk.failures, 2);
  EXPECT_EQ(shrunk.tries, 4);
}

TEST(Shrinking, KeepsTheWholeScheduleIfNothingComesAgain) {
  const Shrunk shrunk =
      shrink({true, 7, "once"}, 3, [](size_t events) { return Attempt{false, events, ""}; });
  EXPECT_EQ(shrunk.events, 7U);
  EXPECT_EQ(shrunk.failures, 0);
  EXPECT_EQ(shrunk.why, "once");
}

TEST(Contents, EveryByteIsCompared) {
  const Contents contents("set/1");
  for (uint64_t version = 1; version < 20; ++version) {
    std::vector<std::byte> payload(contents.size(version));
    contents.fill(version, payload);
    uint64_t found = 0;
    EXPECT_EQ(contents.identify(payload, 20, found), "");
    EXPECT_EQ(found, version);
    EXPECT_NE(contents.identify(payload, version - 1, found), "");
    EXPECT_NE(contents.identify(Bytes(payload).first(payload.size() - 1), 20, found), "");
    EXPECT_NE(Contents("set/2").identify(payload, 20, found), "");
    for (size_t at = 0; at < payload.size(); at += 1 + payload.size() / 50) {
      payload[at] ^= std::byte{0x40};
      EXPECT_NE(contents.identify(payload, 20, found), "") << at;
      payload[at] ^= std::byte{0x40};
    }
  }
}

Plan plan_for(uint64_t seed, uint64_t seconds, uint64_t nodes) {
  Plan plan;
  plan.recipe = {seed, seconds, nodes};
  return plan;
}

TEST(Chaos, SomeSecondsLeaveNothingWrongAndNothingBehind) {
  std::random_device device;
  const uint64_t seed = device() % 1'000'000;
  const Plan plan = plan_for(seed, 8, 3 + seed % 3);
  const Report report = run_and_count(plan);
  std::cout << text_of(report);
  EXPECT_TRUE(report.problems.empty())
      << "again: chaos --seed " << seed << " --seconds 8 --nodes " << plan.recipe.nodes << "\n"
      << joined(report.problems);
  EXPECT_EQ(report.events, report.events_planned);
  EXPECT_GE(report.calms, 1U);
  EXPECT_GT(report.counts.calm_checks, 0U);
  for (const Operation operation :
       {Operation::get, Operation::put, Operation::exists, Operation::remove}) {
    EXPECT_GT(report.counts.hits[static_cast<size_t>(operation)], 10U);
  }
}

struct Planted {
  Defect defect;
  const char* found_as;
};

class PlantedDefect : public ::testing::TestWithParam<Planted> {};

TEST_P(PlantedDefect, IsFound) {
  Plan plan = plan_for(5, 1, 3);
  plan.events_max = 0;
  plan.wrap = plant(GetParam().defect, true);
  plan.stranded_after = std::chrono::milliseconds(
      (GetParam().defect == Defect::late_completion ? 4000 : 1000) * kSlowness);
  // Who meets the defect, and whether somebody stores the key first, is a matter of luck.
  std::string problems;
  for (int i = 0; i < 5 && problems.find(GetParam().found_as) == std::string::npos; ++i) {
    const Report report =
        GetParam().defect == Defect::leaked_descriptor ? run_and_count(plan) : run(plan);
    problems = joined(report.problems);
  }
  EXPECT_NE(problems.find(GetParam().found_as), std::string::npos) << problems;
}

std::vector<Planted> planted() {
  if (kSlowness > 1) {  // the optimised build looks for all of them
    return {{Defect::flipped_byte, "with a wrong byte"}, {Defect::lost_store, "in calm weather"}};
  }
  return {{Defect::flipped_byte, "with a wrong byte"},
          {Defect::stale_half, "with a wrong byte"},
          {Defect::foreign_object, "another key"},
          {Defect::old_version, "in calm weather, expected"},
          {Defect::lost_store, "in calm weather, expected"},
          {Defect::ghost, "in calm weather, "},
          {Defect::overrun, "behind the buffer"},
          {Defect::lost_completion, "stranded"},
          {Defect::late_completion, "after its deadline"},
          {Defect::leaked_descriptor, "more descriptors"}};
}

INSTANTIATE_TEST_SUITE_P(All, PlantedDefect, ::testing::ValuesIn(planted()));

TEST(PlantedDefects, TheScheduleIsCutToTheEventThatWakesThem) {
  Plan plan = plan_for(1, 3, 3);
  plan.wrap = plant(Defect::flipped_byte, false);
  size_t culprit = 0;
  // A schedule in which others come before it and behind it.
  for (size_t length = 0; culprit == 0 || culprit + 2 > length; ++plan.recipe.seed) {
    const std::vector<Event> events = make_schedule(plan.recipe);
    length = events.size();
    const auto first = std::find_if(events.begin(), events.end(), [](const Event& event) {
      return event.kind == Event::Kind::stop || event.kind == Event::Kind::pause;
    });
    culprit = static_cast<size_t>(first - events.begin());
  }
  --plan.recipe.seed;
  const auto attempt = [&](size_t count) {
    plan.events_max = count;
    const Report report = run(plan);
    return Attempt{!report.problems.empty(), report.events, joined(report.problems)};
  };
  const Attempt first = attempt(SIZE_MAX);
  ASSERT_TRUE(first.failed);
  const Shrunk shrunk = shrink(first, 1, attempt);
  EXPECT_EQ(shrunk.events, culprit + 1);
  EXPECT_EQ(shrunk.failures, 1);
  EXPECT_NE(shrunk.why.find("wrong byte"), std::string::npos) << shrunk.why;
}

}  // namespace
}  // namespace aerokv::chaos
