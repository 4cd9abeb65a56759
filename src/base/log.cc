// SPDX-License-Identifier: Apache-2.0
#include "base/log.h"

#include <chrono>
#include <map>
#include <mutex>

#include "base/clock.h"

namespace aerokv {
namespace {

constexpr std::chrono::seconds kQuietInterval{10};
// Causes are literals of this library, so the table stays small; the bound is for the day when
// somebody passes a computed one.
constexpr size_t kCausesMax = 1024;

struct Cause {
  TimePoint last{};
  uint64_t left_out = 0;
};

struct State {
  std::mutex mutex;
  LogSink sink;
  std::map<std::string, Cause, std::less<>> causes;
};

State& state() {
  static State* instance = new State;  // outlives every thread that may still log at exit
  return *instance;
}

}  // namespace

void set_log_sink(LogSink sink) {
  State& s = state();
  const std::scoped_lock lock(s.mutex);
  s.sink = std::move(sink);
  s.causes.clear();
}

void log(LogLevel level, std::string_view cause, const std::string& message) {
  log(level, cause, [&message] { return message; });
}

void log(LogLevel level, std::string_view cause, const std::function<std::string()>& message) {
  State& s = state();
  const std::scoped_lock lock(s.mutex);
  if (!s.sink) return;
  auto it = s.causes.find(cause);
  if (it == s.causes.end()) {
    if (s.causes.size() >= kCausesMax) s.causes.clear();
    it = s.causes.emplace(std::string(cause), Cause{}).first;
  }
  const TimePoint now = SteadyClock::now();
  if (it->second.last != TimePoint{} && now - it->second.last < kQuietInterval) {
    ++it->second.left_out;
    return;
  }
  std::string line = message();
  if (it->second.left_out > 0) {
    line += " (" + std::to_string(it->second.left_out) + " similar lines left out)";
  }
  it->second = Cause{now, 0};
  s.sink(level, line);
}

}  // namespace aerokv
