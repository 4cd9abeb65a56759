// SPDX-License-Identifier: Apache-2.0
// Makes the first, second, third, ... request of an operation fail, until one is not reached.
#pragma once

#include <atomic>
#include <optional>
#include <string>
#include <vector>

#include "tests/fault/variants.h"
#include "tests/fault/world.h"

namespace aerokv::testing {

/// One operation on one key, among neighbours.
struct Scenario {
  std::string name;
  Operation operation = Operation::get;
  std::optional<size_t> stored;  ///< bytes that the key has before the operation
  size_t bytes = 0;              ///< put: of the new content; get: of the target buffer
};

/// Runs `scenario` with every variant of `aim`, several at a time, each in a world of its own.
/// Reports failures to gtest; returns how often a fault was applied.
uint64_t fail_every_request(const Scenario& scenario, Aim aim);

}  // namespace aerokv::testing
