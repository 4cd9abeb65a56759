// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <mutex>

#include "base/clock.h"

namespace aerokv::devserver {

/// One direction of the network link of a node, which carries so many bytes a second and no more,
/// whoever sends them. Connections move their bytes in turns, in the order in which they asked.
/// Thread-safe.
class Link {
 public:
  /// Bytes moved at once through a limited link, so that its connections take turns.
  static constexpr size_t kTurnBytes = 64 << 10;

  /// 0 = no limit.
  explicit Link(uint64_t bytes_per_second) : bytes_per_second_(bytes_per_second) {}

  [[nodiscard]] bool is_limited() const {
    return bytes_per_second_.load(std::memory_order_relaxed) != 0;
  }

  /// From now on. Who waits for the link has to be woken.
  void set_speed(uint64_t bytes_per_second) {
    const std::scoped_lock lock(mutex_);
    bytes_per_second_.store(bytes_per_second, std::memory_order_relaxed);
    free_at_ = {};
  }

  /// How many of `wanted` bytes may be moved at once.
  [[nodiscard]] size_t turn(size_t wanted) const {
    return is_limited() ? std::min(wanted, kTurnBytes) : wanted;
  }

  /// Asks for a turn of kTurnBytes and tells when it begins; a moment that has passed if it may at
  /// once. Every turn is ended by carry().
  [[nodiscard]] TimePoint reserve() {
    const std::scoped_lock lock(mutex_);
    // Timers are late by a little: what was lost that way may be caught up with.
    constexpr milliseconds kCatchUp{2};
    const TimePoint begin = std::max(free_at_, SteadyClock::now() - kCatchUp);
    free_at_ = begin + time_of(kTurnBytes);
    return begin;
  }

  /// The end of a turn, in which so many bytes were moved.
  void carry(size_t bytes) {
    const std::scoped_lock lock(mutex_);
    free_at_ += time_of(bytes) - time_of(kTurnBytes);
  }

 private:
  [[nodiscard]] Duration time_of(size_t bytes) const {
    const uint64_t speed = bytes_per_second_.load(std::memory_order_relaxed);
    if (speed == 0) return {};
    const std::chrono::duration<double> time(static_cast<double>(bytes) /
                                             static_cast<double>(speed));
    return std::chrono::duration_cast<Duration>(time);
  }

  std::atomic<uint64_t> bytes_per_second_;  // written under mutex_
  mutable std::mutex mutex_;
  TimePoint free_at_{};  // guarded by mutex_
};

}  // namespace aerokv::devserver
