// SPDX-License-Identifier: Apache-2.0
// One run: a schedule, or its first events, over a cluster with traffic.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <vector>

#include "tests/chaos/schedule.h"
#include "tests/chaos/traffic.h"

namespace aerokv::chaos {

struct Plan {
  Recipe recipe;
  size_t events_max = SIZE_MAX;  ///< only so many of the schedule
  Wrap wrap{};
  std::chrono::milliseconds stranded_after = kStrandedAfter;
};

struct Report {
  std::vector<std::string> problems;  ///< empty = nothing wrong
  size_t events = 0;                  ///< applied; fewer than planned after a problem
  size_t events_planned = 0;
  uint64_t calms = 0;
  double seconds = 0;
  Counts counts;
};

/// Ends with the first problem.
Report run(const Plan& plan);

/// What this process uses besides a run.
struct Resources {
  size_t resident_bytes = 0;
  size_t descriptors = 0;
  size_t threads = 0;
};
Resources resources();

/// Runs traffic without events, so that everything that is made once exists; then the plan, and
/// adds a problem for what is left over.
Report run_and_count(const Plan& plan);

std::string text_of(const Report& report);

}  // namespace aerokv::chaos
