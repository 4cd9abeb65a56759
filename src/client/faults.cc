// SPDX-License-Identifier: Apache-2.0
#include "client/faults.h"

#include <algorithm>

namespace aerokv::client {
namespace {

constexpr bool is_in_order() {
  for (size_t i = 0; i < kFaultKinds; ++i) {
    if (static_cast<size_t>(kFaultRules[i].kind) != i) return false;
  }
  return true;
}
static_assert(is_in_order(), "rule_of() finds rules by their place");

/// xorshift64*; for spreading only.
uint64_t next_random(uint64_t& state) {
  state ^= state >> 12;
  state ^= state << 25;
  state ^= state >> 27;
  return state * 0x2545F4914F6CDD1DULL;
}

}  // namespace

Duration back_off(uint32_t attempt, uint64_t& random_state) {
  const uint32_t doublings = std::clamp<uint32_t>(attempt, 1, 11) - 1;
  const Duration whole =
      std::min<Duration>(kBackOffMax, Duration(kBackOffFirst) * (1 << doublings));
  const auto half = static_cast<uint64_t>(whole.count() / 2);
  return whole - Duration(static_cast<Duration::rep>(next_random(random_state) % (half + 1)));
}

void RetryBudget::note_request() {
  tokens_ = std::min(limits_.burst, tokens_ + limits_.share);
}

void RetryBudget::earn(TimePoint now) {
  if (now <= earned_at_) return;
  if (earned_at_ != TimePoint{}) {
    const std::chrono::duration<double> passed = now - earned_at_;
    tokens_ = std::min(limits_.burst, tokens_ + passed.count() * limits_.per_second);
  }
  earned_at_ = now;
}

Duration RetryBudget::reserve(TimePoint now) {
  earn(now);
  tokens_ -= 1;
  if (tokens_ >= 0) return Duration::zero();
  return std::chrono::duration_cast<Duration>(
      std::chrono::duration<double>(-tokens_ / limits_.per_second));
}

bool RetryBudget::try_take(TimePoint now) {
  earn(now);
  if (tokens_ < 1) return false;
  tokens_ -= 1;
  return true;
}

void RetryBudget::give_back() {
  tokens_ = std::min(limits_.burst, tokens_ + 1);
}

}  // namespace aerokv::client
