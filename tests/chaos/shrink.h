// SPDX-License-Identifier: Apache-2.0
// The shortest prefix of a schedule that still fails. Races make one pass worth little, so each
// prefix is tried several times.
#pragma once

#include <cstddef>
#include <functional>
#include <string>

namespace aerokv::chaos {

struct Attempt {
  bool failed = false;
  size_t events = 0;  ///< applied before it failed
  std::string why;
};

struct Shrunk {
  size_t events = 0;  ///< length of the prefix
  int failures = 0;   ///< of `tries` attempts with it
  int tries = 0;
  std::string why;  ///< of the last failure
};

/// `first`: a failure of the whole schedule. `attempt(n)` plays the first n events.
Shrunk shrink(const Attempt& first, int tries, const std::function<Attempt(size_t)>& attempt);

}  // namespace aerokv::chaos
