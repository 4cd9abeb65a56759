// SPDX-License-Identifier: Apache-2.0
// How many bytes of stores one node is given at once: what it takes, and not more. Decisions only.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <mutex>

#include "base/clock.h"

namespace aerokv::client {

/// The stores under way to one node, from all I/O threads.
///
/// The window follows the time that answers take. While they come as fast as they do when little is
/// under way, it grows: more would be taken. When they take twice as long, the rest only waits
/// in queues of the network and the server, where loads would wait behind it, and the window
/// shrinks. A server that says that it is overloaded shrinks it at once. Thread-safe.
class StoreWindow {
 public:
  static constexpr uint64_t kBytesMin = 1 << 20;
  static constexpr uint64_t kBytesFirst = 8 << 20;
  static constexpr uint64_t kBytesMax = 256ULL << 20;

  /// What begin() notes about a request, for answered().
  struct Ticket {
    TimePoint sent_at{};
    bool is_quiet = false;  ///< little else was under way
  };

  /// Whether `bytes` more may be sent now.
  [[nodiscard]] bool has_room(uint64_t bytes, TimePoint now) const;

  Ticket begin(uint64_t bytes, TimePoint now);
  /// The request is no longer under way, for whatever reason.
  void end(uint64_t bytes) { under_way_.fetch_sub(bytes, std::memory_order_relaxed); }
  /// Its answer has come. To be called before end().
  void answered(uint64_t bytes, const Ticket& ticket, TimePoint now);
  /// The node answered that its queues are full.
  void overloaded(TimePoint now);

  [[nodiscard]] uint64_t bytes() const { return bytes_.load(std::memory_order_relaxed); }
  [[nodiscard]] uint64_t under_way() const { return under_way_.load(std::memory_order_relaxed); }

 private:
  std::atomic<uint64_t> bytes_{kBytesFirst};
  std::atomic<uint64_t> under_way_{0};
  std::atomic<int64_t> quiet_until_{0};  // ticks: until then only the least is under way
  std::mutex mutex_;
  // The time that an answer takes when little is under way, by powers of two of the size.
  std::array<Duration, 40> usual_{};  // guarded by mutex_
  TimePoint next_quiet_{};            // guarded by mutex_
  uint32_t quiet_answers_ = 0;        // guarded by mutex_: since the last quiet time began
  TimePoint held_until_{};            // guarded by mutex_: no growth before
  TimePoint cut_at_{};                // guarded by mutex_
};

}  // namespace aerokv::client
