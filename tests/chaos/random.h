// SPDX-License-Identifier: Apache-2.0
// Random numbers that are the same on every machine and in the Python part (schedule.py).
#pragma once

#include <cstdint>

namespace aerokv::chaos {

/// SplitMix64.
class Random {
 public:
  explicit Random(uint64_t seed) : state_(seed) {}

  uint64_t next() {
    state_ += 0x9E3779B97F4A7C15ULL;
    return mix(state_);
  }
  /// 0 to `bound` - 1.
  uint64_t below(uint64_t bound) { return next() % bound; }
  /// `from` to `to`, both included.
  uint64_t between(uint64_t from, uint64_t to) { return from + below(to - from + 1); }
  bool one_in(uint64_t n) { return below(n) == 0; }

  static uint64_t mix(uint64_t z) {
    z = (z ^ (z >> 30)) * 0xBF58476D1CE4E5B9ULL;
    z = (z ^ (z >> 27)) * 0x94D049BB133111EBULL;
    return z ^ (z >> 31);
  }

 private:
  uint64_t state_;
};

}  // namespace aerokv::chaos
