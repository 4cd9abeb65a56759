// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <atomic>
#include <cstdint>
#include <mutex>

#include "base/clock.h"

namespace aerokv::devserver {

/// One direction of the network link of a node, which carries so many bytes a second and no more,
/// whoever sends them. Thread-safe.
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

  /// When the link is free; a moment that has passed if it is now.
  [[nodiscard]] TimePoint free_at() const {
    if (!is_limited()) return {};
    const std::scoped_lock lock(mutex_);
    return free_at_;
  }

  void carry(size_t bytes) {
    if (!is_limited()) return;
    const std::scoped_lock lock(mutex_);
    const uint64_t speed = bytes_per_second_.load(std::memory_order_relaxed);
    if (speed == 0) return;
    const std::chrono::duration<double> time(static_cast<double>(bytes) /
                                             static_cast<double>(speed));
    // Timers are late by a little: what was lost that way may be caught up with.
    constexpr milliseconds kCatchUp{2};
    free_at_ = std::max(free_at_, SteadyClock::now() - kCatchUp) +
               std::chrono::duration_cast<Duration>(time);
  }

 private:
  std::atomic<uint64_t> bytes_per_second_;  // written under mutex_
  mutable std::mutex mutex_;
  TimePoint free_at_{};  // guarded by mutex_
};

}  // namespace aerokv::devserver
