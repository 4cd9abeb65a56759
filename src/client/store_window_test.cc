// SPDX-License-Identifier: Apache-2.0
#include "client/store_window.h"

#include <gtest/gtest.h>

#include <queue>

namespace aerokv::client {
namespace {

using std::chrono::microseconds;

constexpr uint64_t kRequest = 1 << 20;

/// A server that takes `bytes_per_us` and answers `latency` after it has a request.
struct Server {
  double bytes_per_us;
  microseconds latency{200};
  TimePoint free_at{};

  TimePoint answer_at(uint64_t bytes, TimePoint now) {
    const microseconds time(static_cast<int64_t>(static_cast<double>(bytes) / bytes_per_us));
    free_at = std::max(free_at, now) + time;
    return free_at + latency;
  }
};

/// Sends whatever the window allows for `time`; returns the bytes that were answered.
uint64_t drive(StoreWindow& window, Server& server, TimePoint& now, Duration time) {
  struct Flight {
    TimePoint due;
    StoreWindow::Ticket ticket;
  };
  std::queue<Flight> flights;
  uint64_t answered = 0;
  const TimePoint end = now + time;
  while (now < end) {
    while (flights.empty() || window.has_room(kRequest, now)) {
      flights.push({server.answer_at(kRequest, now), window.begin(kRequest, now)});
    }
    now = std::max(now, flights.front().due);
    window.answered(kRequest, flights.front().ticket, now);
    window.end(kRequest);
    flights.pop();
    answered += kRequest;
  }
  for (; !flights.empty(); flights.pop()) {
    now = std::max(now, flights.front().due);
    window.end(kRequest);
  }
  return answered;
}

TEST(StoreWindow, ShrinksToWhatASlowServerTakes) {
  StoreWindow window;
  Server server{100};  // 100 MB/s: a request takes 10 ms
  TimePoint now{std::chrono::hours(1)};
  const uint64_t bytes = drive(window, server, now, std::chrono::seconds(2));
  EXPECT_LE(window.bytes(), 6 * kRequest);
  EXPECT_GE(bytes, 190'000'000U);  // and wastes nothing of it
  EXPECT_EQ(window.under_way(), 0U);
}

TEST(StoreWindow, GrowsToWhatAFarServerNeeds) {
  StoreWindow window;
  Server server{10'000, microseconds(10'000)};  // 10 GB/s, 10 ms away: 100 MB fill the pipe
  TimePoint now{std::chrono::hours(1)};
  drive(window, server, now, std::chrono::seconds(1));
  const uint64_t bytes = drive(window, server, now, std::chrono::seconds(1));
  EXPECT_GE(bytes, 9'000'000'000U);
}

TEST(StoreWindow, StaysSmallForLong) {
  StoreWindow window;
  Server server{100};
  TimePoint now{std::chrono::hours(1)};
  for (int i = 0; i < 60; ++i) {
    const uint64_t bytes = drive(window, server, now, std::chrono::seconds(1));
    EXPECT_GE(bytes, 85'000'000U) << i;
    if (i > 2) {
      EXPECT_LE(window.bytes(), 8 * kRequest) << i;
    }
  }
}

TEST(StoreWindow, LearnsThatTheServerIsFartherNow) {
  StoreWindow window;
  TimePoint now{std::chrono::hours(1)};
  Server near{5'000};
  drive(window, near, now, std::chrono::seconds(3));
  Server far{5'000, microseconds(20'000)};
  drive(window, far, now, std::chrono::seconds(3));
  const uint64_t bytes = drive(window, far, now, std::chrono::seconds(1));
  EXPECT_GE(bytes, 3'000'000'000U);
}

TEST(StoreWindow, GivesWayWhenTheServerSaysSo) {
  StoreWindow window;
  TimePoint now{std::chrono::hours(1)};
  const uint64_t before = window.bytes();
  window.overloaded(now);
  EXPECT_LT(window.bytes(), before * 3 / 4);
  const uint64_t once = window.bytes();
  window.overloaded(now + milliseconds(1));  // answers to what was under way already
  EXPECT_EQ(window.bytes(), once);
  for (int i = 0; i < 100; ++i) window.overloaded(now += milliseconds(50));
  EXPECT_EQ(window.bytes(), StoreWindow::kBytesMin);
}

TEST(StoreWindow, DoesNotGrowUnused) {
  StoreWindow window;
  TimePoint now{std::chrono::hours(1)};
  for (int i = 0; i < 1000; ++i) {
    const StoreWindow::Ticket ticket = window.begin(kRequest, now);
    now += microseconds(500);
    window.answered(kRequest, ticket, now);
    window.end(kRequest);
  }
  EXPECT_EQ(window.bytes(), StoreWindow::kBytesFirst);
}

}  // namespace
}  // namespace aerokv::client
