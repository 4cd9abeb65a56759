// SPDX-License-Identifier: Apache-2.0
#include "client/faults.h"

#include <gtest/gtest.h>

#include <fstream>
#include <initializer_list>
#include <random>
#include <set>
#include <sstream>

#include "client/latency.h"

namespace aerokv::client {
namespace {

using std::chrono::microseconds;
using std::chrono::seconds;
using Codes = std::initializer_list<uint8_t>;

std::string next_text(Next next) {
  constexpr const char* kTexts[] = {"elsewhere, at once", "again, after a pause",
                                    "after a new login", "ends"};
  return kTexts[static_cast<size_t>(next)];
}

std::string blame_text(Blame blame) {
  constexpr const char* kTexts[] = {"no", "third in a row", "at once"};
  return kTexts[static_cast<size_t>(blame)];
}

/// The table as docs/reference/errors.md has it.
std::string table_text() {
  std::string text =
      "| fault | read | write | node avoided | new map asked for | write in doubt | "
      "counts against the budget |\n| --- | --- | --- | --- | --- | --- | --- |\n";
  const auto yes = [](bool flag) { return std::string(flag ? "yes" : "no"); };
  for (const FaultRule& rule : kFaultRules) {
    text += "| " + std::string(rule.name) + " | " + next_text(rule.read) + " | " +
            next_text(rule.write) + " | " + blame_text(rule.blame) + " | " + yes(rule.wakes_tend) +
            " | " + (rule.doubt == Doubt::none ? "no" : "if it was sent") + " | " +
            yes(rule.is_budgeted) + " |\n";
  }
  return text;
}

TEST(Faults, AreDocumented) {
  std::ifstream file(std::string(AEROKV_SOURCE_DIR) + "/docs/reference/errors.md");
  std::stringstream page;
  page << file.rdbuf();
  EXPECT_NE(page.str().find(table_text()), std::string::npos)
      << "docs/reference/errors.md must have this table:\n"
      << table_text();
}

TEST(Faults, EveryCodeHasOneRule) {
  std::set<int> codes;
  for (const FaultRule& rule : kFaultRules) {
    EXPECT_FALSE(rule.name.empty());
    for (const uint8_t code : rule.codes) {
      if (code == 0) continue;
      EXPECT_TRUE(codes.insert(code).second) << int{code};
      EXPECT_NE(rule.name.find(std::to_string(code >= 211 ? 213 : code)), std::string::npos)
          << rule.name << " does not say " << int{code};
      EXPECT_EQ(fault_of_code(code), rule.kind);
      EXPECT_NE(wire::result_name(code), wire::result_name(199)) << "no such code";
    }
  }
  for (const uint8_t code : Codes{1, 2, 3, 4, 5, 12, 20, 81, 199, 255}) {
    EXPECT_EQ(fault_of_code(code), FaultKind::final_code) << int{code};
    EXPECT_TRUE(is_final(code));
  }
  for (const uint8_t code : Codes{8, 13, 22}) EXPECT_TRUE(is_final(code)) << int{code};
  for (const uint8_t code : Codes{7, 9, 11, 14, 18, 65, 66, 80, 152}) EXPECT_FALSE(is_final(code));
  EXPECT_TRUE(is_final(wire::result::kOk));
}

TEST(Faults, ReadsTurnElsewhereAndWritesStayWithTheMaster) {
  for (const FaultRule& rule : kFaultRules) {
    EXPECT_NE(rule.write, Next::elsewhere) << rule.name << ": only the master takes writes";
    // What ends the one ends the other: a code does not say which it answers.
    EXPECT_EQ(rule.read == Next::give_up, rule.write == Next::give_up) << rule.name;
    if (rule.blame != Blame::none) {
      EXPECT_TRUE(rule.wakes_tend) << rule.name;
      EXPECT_EQ(rule.read, Next::elsewhere) << rule.name;
    }
  }
  // The server says itself that it has not done these.
  for (const uint8_t code : Codes{7, 8, 11, 13, 14, 18, 22}) {
    EXPECT_EQ(rule_of(fault_of_code(code)).doubt, Doubt::none) << int{code};
  }
  EXPECT_EQ(rule_of(fault_of_code(9)).doubt, Doubt::if_sent);
}

TEST(BackOff, DoublesUpToItsLimitWithJitter) {
  uint64_t random = 1;
  for (uint32_t attempt = 1; attempt < 40; ++attempt) {
    const Duration whole =
        std::min<Duration>(kBackOffMax, kBackOffFirst * (1U << std::min(attempt - 1, 10U)));
    std::set<Duration> seen;
    for (int i = 0; i < 50; ++i) {
      const Duration pause = back_off(attempt, random);
      EXPECT_LE(pause, whole);
      EXPECT_GE(pause, whole / 2);
      seen.insert(pause);
    }
    EXPECT_GT(seen.size(), 40U) << "those who failed together come back together";
  }
}

TEST(RetryBudget, GivesAShareOfTheRequestsAndAFloor) {
  RetryBudget budget({0.2, 10, 20});
  TimePoint now(seconds(1000));
  int taken = 0;
  while (budget.try_take(now)) ++taken;
  EXPECT_EQ(taken, 20);
  for (int i = 0; i < 50; ++i) budget.note_request(now);
  for (taken = 0; budget.try_take(now); ++taken) {
  }
  EXPECT_NEAR(taken, 10, 1);
  now += seconds(1);
  for (taken = 0; budget.try_take(now); ++taken) {
  }
  EXPECT_NEAR(taken, 10, 1);
  // Over any time: at most what was earned.
  taken = 0;
  for (int i = 0; i < 1000; ++i) {
    now += milliseconds(10);
    budget.note_request(now);
    taken += budget.try_take(now) ? 1 : 0;
  }
  EXPECT_NEAR(taken, 0.2 * 1000 + 10 * 10, 2);
  // What much traffic earned is kept for a second or two: a hiccup may cost all that was under way.
  for (int i = 0; i < 10000; ++i) budget.note_request(now);
  for (taken = 0; budget.try_take(now); ++taken) {
  }
  EXPECT_NEAR(taken, 2000, 60);
  for (int i = 0; i < 10000; ++i) budget.note_request(now);
  now += seconds(3);
  for (taken = 0; budget.try_take(now); ++taken) {
  }
  EXPECT_NEAR(taken, 20, 1);
}

TEST(RetryBudget, SpreadsThoseThatAreOverIt) {
  RetryBudget budget({0, 10, 5});
  const TimePoint now(seconds(1000));
  for (int i = 0; i < 5; ++i) EXPECT_EQ(budget.reserve(now), Duration::zero());
  for (int i = 1; i <= 20; ++i) {
    const auto pause = std::chrono::duration_cast<milliseconds>(budget.reserve(now));
    EXPECT_NEAR(static_cast<double>(pause.count()), i * 100.0, 1.0);
  }
  budget.give_back();
  EXPECT_NEAR(std::chrono::duration<double>(budget.reserve(now)).count(), 2.0, 0.01);
}

TEST(Latency, KnowsThePeakAndForgetsIt) {
  Latency latency;
  TimePoint now(seconds(1000));
  EXPECT_EQ(latency.peak(now), Duration::zero());
  latency.add(milliseconds(40), now);
  latency.add(milliseconds(1), now);
  EXPECT_EQ(latency.peak(now), Duration(milliseconds(40)));
  now += seconds(5);
  EXPECT_LT(latency.peak(now), milliseconds(15));
  EXPECT_GT(latency.peak(now), milliseconds(5));
  now += seconds(100);
  EXPECT_LT(latency.peak(now), milliseconds(1));
  latency.add_given_up(milliseconds(75), now);
  EXPECT_EQ(latency.peak(now), Duration(milliseconds(150)));
}

TEST(Latency, P99IsNearTheTruth) {
  const uint64_t seed = std::random_device{}();
  std::printf("seed %llu\n", static_cast<unsigned long long>(seed));
  std::mt19937_64 random(seed);
  for (const int64_t scale : {20, 300, 5000, 90000}) {
    Latency latency;
    const TimePoint now(seconds(1000));
    EXPECT_EQ(latency.p99(), Duration::zero()) << "nothing is known yet";
    std::vector<int64_t> all;
    std::exponential_distribution<double> wait(1.0 / static_cast<double>(scale));
    for (int i = 0; i < 1024; ++i) {
      all.push_back(static_cast<int64_t>(wait(random)));
      latency.add(microseconds(all.back()), now);
    }
    std::sort(all.begin(), all.end());
    const auto p99 =
        static_cast<double>(std::chrono::duration_cast<microseconds>(latency.p99()).count());
    EXPECT_GE(p99 + 16, static_cast<double>(all[1000]));
    EXPECT_LE(p99, static_cast<double>(all[1022]) * 1.3 + 32);
  }
}

TEST(Latency, P99FollowsAChange) {
  Latency latency;
  const TimePoint now(seconds(1000));
  for (int i = 0; i < 2000; ++i) latency.add(milliseconds(50), now);
  EXPECT_GT(latency.p99(), milliseconds(49));
  for (int i = 0; i < 1100; ++i) latency.add(microseconds(500), now);
  EXPECT_LT(latency.p99(), milliseconds(1));
}

}  // namespace
}  // namespace aerokv::client
