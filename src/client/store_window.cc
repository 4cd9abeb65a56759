// SPDX-License-Identifier: Apache-2.0
#include "client/store_window.h"

#include <algorithm>
#include <bit>

namespace aerokv::client {
namespace {

// Answers may take this many times as long as with little under way.
constexpr double kTolerance = 2;
// No answer, however late, more than halves what is left of the window.
constexpr double kShrinkMost = 0.5;
// What one round of answers adds while they are quick.
constexpr double kGrowth = 0.125;
constexpr double kCutByOverload = 0.7;

// So often the queues are let run empty, to learn what an answer takes without them; and so long at
// most, or until so many answers have told.
constexpr std::chrono::seconds kQuietInterval{10};
constexpr milliseconds kQuietTimeMax{250};
constexpr uint32_t kQuietAnswers = 4;

constexpr milliseconds kCutInterval{20};
constexpr milliseconds kHoldAfterCut{200};

int64_t ticks(TimePoint time) {
  return time.time_since_epoch().count();
}

void note_time(Duration took, bool is_quiet, Duration& usual) {
  if (usual == Duration::zero() || took < usual) {
    usual = took;
  } else if (is_quiet) {
    usual += (took - usual) / 4;
  }
}

}  // namespace

bool StoreWindow::has_room(uint64_t bytes, TimePoint now) const {
  const bool quiet = ticks(now) < quiet_until_.load(std::memory_order_relaxed);
  return under_way() + bytes <= (quiet ? kBytesMin : this->bytes());
}

StoreWindow::Ticket StoreWindow::begin(uint64_t bytes, TimePoint now) {
  const uint64_t before = under_way_.fetch_add(bytes, std::memory_order_relaxed);
  return {now, before <= kBytesMin};
}

void StoreWindow::answered(uint64_t bytes, const Ticket& ticket, TimePoint now) {
  const Duration took = std::max<Duration>(now - ticket.sent_at, Duration(1));
  // Neither before it nor behind it: who came later has shared the network with it.
  const bool is_quiet = ticket.is_quiet && under_way() <= kBytesMin + bytes;
  const std::scoped_lock lock(mutex_);
  Duration& usual = usual_[std::min<size_t>(std::bit_width(bytes), usual_.size() - 1)];
  note_time(took, is_quiet, usual);
  const int64_t quiet_until = quiet_until_.load(std::memory_order_relaxed);
  if (ticks(now) < quiet_until) {
    if (is_quiet && ++quiet_answers_ >= kQuietAnswers) quiet_until_.store(0);
    return;
  }
  if (now >= next_quiet_) {
    const bool is_first = next_quiet_ == TimePoint{};
    next_quiet_ = now + kQuietInterval;
    quiet_answers_ = 0;
    if (!is_first) quiet_until_.store(ticks(now + kQuietTimeMax));
  }
  const uint64_t window = this->bytes();
  if (under_way() < window / 2) return;  // nobody knows whether more would be taken
  const double ratio = std::clamp(
      kTolerance * static_cast<double>(usual.count()) / static_cast<double>(took.count()),
      kShrinkMost, 1.0);
  double target = static_cast<double>(window) * ratio;
  if (now >= held_until_) {
    target += std::max(static_cast<double>(bytes), kGrowth * static_cast<double>(window));
  }
  // A window full of answers makes one whole step.
  const double share = std::min(1.0, static_cast<double>(bytes) / static_cast<double>(window));
  const double next = static_cast<double>(window) + (target - static_cast<double>(window)) * share;
  bytes_.store(std::clamp(static_cast<uint64_t>(next), kBytesMin, kBytesMax),
               std::memory_order_relaxed);
}

void StoreWindow::overloaded(TimePoint now) {
  const std::scoped_lock lock(mutex_);
  held_until_ = now + kHoldAfterCut;
  if (now - cut_at_ < kCutInterval) return;  // what was under way then is answered the same
  cut_at_ = now;
  const double next = static_cast<double>(bytes()) * kCutByOverload;
  bytes_.store(std::max(static_cast<uint64_t>(next), kBytesMin), std::memory_order_relaxed);
}

}  // namespace aerokv::client
