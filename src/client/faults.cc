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

void RetryBudget::turn_second(TimePoint now) {
  const Duration passed = now - second_;
  if (passed < std::chrono::seconds(1)) return;
  requests_before_ = passed < std::chrono::seconds(2) ? requests_ : 0;
  requests_ = 0;
  second_ = now;
}

void RetryBudget::keep_to_limit() {
  tokens_ = std::min(tokens_, limits_.burst + limits_.share * (requests_before_ + requests_));
}

void RetryBudget::note_request(TimePoint now) {
  turn_second(now);
  requests_ += 1;
  tokens_ += limits_.share;
  keep_to_limit();
}

void RetryBudget::earn(TimePoint now) {
  turn_second(now);
  if (now <= earned_at_) return;
  if (earned_at_ != TimePoint{}) {
    const std::chrono::duration<double> passed = now - earned_at_;
    tokens_ += passed.count() * limits_.per_second;
  }
  keep_to_limit();
  earned_at_ = now;
}

Duration RetryBudget::reserve(TimePoint now) {
  earn(now);
  tokens_ -= 1;
  if (tokens_ >= 0) return Duration::zero();
  const double rate = limits_.per_second + limits_.share * requests_before_;
  return std::chrono::duration_cast<Duration>(std::chrono::duration<double>(-tokens_ / rate));
}

bool RetryBudget::try_take(TimePoint now) {
  earn(now);
  if (tokens_ < 1) return false;
  tokens_ -= 1;
  return true;
}

void RetryBudget::give_back() {
  tokens_ += 1;
  keep_to_limit();
}

}  // namespace aerokv::client
