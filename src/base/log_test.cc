// SPDX-License-Identifier: Apache-2.0
#include "base/log.h"

#include <gtest/gtest.h>

#include <string>
#include <thread>
#include <vector>

namespace aerokv {
namespace {

class LogTest : public ::testing::Test {
 protected:
  LogTest() {
    set_log_sink([this](LogLevel level, std::string_view line) {
      levels_.push_back(level);
      lines_.emplace_back(line);
    });
  }
  ~LogTest() override { set_log_sink({}); }

  std::vector<LogLevel> levels_;
  std::vector<std::string> lines_;
};

TEST_F(LogTest, LinesReachTheSink) {
  log(LogLevel::warning, "cause a", "first");
  log(LogLevel::error, "cause b", "second");
  EXPECT_EQ(lines_, (std::vector<std::string>{"first", "second"}));
  EXPECT_EQ(levels_, (std::vector<LogLevel>{LogLevel::warning, LogLevel::error}));
}

TEST_F(LogTest, EqualCausesAreLimited) {
  for (int i = 0; i < 1000; ++i) log(LogLevel::info, "node down", "line " + std::to_string(i));
  log(LogLevel::info, "node up", "other");
  EXPECT_EQ(lines_, (std::vector<std::string>{"line 0", "other"}));
}

TEST_F(LogTest, OnlyLinesThatAreDueAreMade) {
  int made = 0;
  const auto line = [&made] { return "line " + std::to_string(++made); };
  for (int i = 0; i < 1000; ++i) log(LogLevel::info, "often", line);
  EXPECT_EQ(made, 1);
  EXPECT_EQ(lines_, (std::vector<std::string>{"line 1"}));
  set_log_sink({});
  log(LogLevel::info, "unheard", line);
  EXPECT_EQ(made, 1);
}

TEST_F(LogTest, ManyCausesStayBounded) {
  for (int i = 0; i < 5000; ++i) log(LogLevel::info, "cause " + std::to_string(i), "x");
  EXPECT_EQ(lines_.size(), 5000U);
}

TEST_F(LogTest, NoSinkIsSilence) {
  set_log_sink({});
  log(LogLevel::error, "cause", "unheard");
  EXPECT_TRUE(lines_.empty());
}

TEST_F(LogTest, CallsFromManyThreadsComeOneAtATime) {
  constexpr int kThreads = 4, kLines = 500;
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([t] {
      for (int i = 0; i < kLines; ++i) {
        const std::string cause = std::to_string(t) + "/" + std::to_string(i);
        log(LogLevel::debug, cause, cause);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(lines_.size(), static_cast<size_t>(kThreads) * kLines);
}

}  // namespace
}  // namespace aerokv
