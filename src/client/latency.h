// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <array>
#include <cstdint>

#include "base/clock.h"

namespace aerokv::client {

/// How long answers of one node took to begin, of late. Owned by one thread; a sample costs a few
/// nanoseconds.
class Latency {
 public:
  void add(Duration wait, TimePoint now);

  /// An answer was given up after `waited`: it would have taken longer. Without this a node that
  /// has become slower than our patience would never be known as such.
  void add_given_up(Duration waited, TimePoint now);

  /// The longest of late; old ones count less and less. Zero before the first sample.
  [[nodiscard]] Duration peak(TimePoint now);

  /// Only one in a hundred of the last took longer; zero while there are too few to tell.
  [[nodiscard]] Duration p99() const { return p99_; }

 private:
  static constexpr size_t kBuckets = 80;  // four for each doubling, from 16 microseconds on
  static constexpr uint32_t kGeneration = 512;
  static constexpr uint32_t kSamplesMin = 100;

  static size_t bucket_of(Duration wait);
  void update_p99();

  std::array<std::array<uint16_t, kBuckets>, 2> counts_{};
  size_t current_ = 0;
  uint32_t in_current_ = 0;
  uint32_t in_previous_ = 0;
  Duration p99_{};
  Duration peak_{};
  TimePoint peak_at_{};
};

}  // namespace aerokv::client
