// SPDX-License-Identifier: Apache-2.0
#include "client/latency.h"

#include <algorithm>
#include <bit>

namespace aerokv::client {
namespace {

constexpr Duration kPeakStep = std::chrono::seconds(1);  // after which a peak loses a quarter
constexpr int kPeakStepsMax = 32;
constexpr uint32_t kUpdateInterval = 32;
constexpr uint32_t kUnitMicroseconds = 16;

}  // namespace

/// The position of the highest bit, and the two bits behind it.
size_t Latency::bucket_of(Duration wait) {
  const auto us = std::chrono::duration_cast<std::chrono::microseconds>(wait).count();
  const auto units = static_cast<uint64_t>(std::max<int64_t>(us, 0)) / kUnitMicroseconds;
  if (units < 4) return static_cast<size_t>(units);
  const auto high = static_cast<uint32_t>(std::bit_width(units)) - 1;
  const auto bucket = (high - 1) * 4 + static_cast<uint32_t>((units >> (high - 2)) & 3);
  return std::min<size_t>(bucket, kBuckets - 1);
}

void Latency::add(Duration wait, TimePoint now) {
  peak_ = std::max(peak(now), wait);
  if (in_current_ == kGeneration) {
    current_ ^= 1;
    counts_[current_].fill(0);
    in_previous_ = in_current_;
    in_current_ = 0;
  }
  ++counts_[current_][bucket_of(wait)];
  if (++in_current_ % kUpdateInterval == 0) update_p99();
}

void Latency::add_given_up(Duration waited, TimePoint now) {
  peak_ = std::max(peak(now), 2 * waited);
}

Duration Latency::peak(TimePoint now) {
  for (int i = 0; i < kPeakStepsMax && now - peak_at_ >= kPeakStep; ++i) {
    peak_ = peak_ * 3 / 4;
    peak_at_ += kPeakStep;
  }
  if (now - peak_at_ >= kPeakStep) peak_at_ = now;
  return peak_;
}

void Latency::update_p99() {
  const uint32_t all = in_current_ + in_previous_;
  if (all < kSamplesMin) return;
  uint32_t above = 0;
  size_t bucket = kBuckets - 1;
  for (; bucket > 0; --bucket) {
    above += counts_[0][bucket] + uint32_t{counts_[1][bucket]};
    if (above * 100 > all) break;
  }
  // The upper bound of the bucket.
  const uint64_t next = bucket + 1;
  const uint64_t units = next < 4 ? next : (4 + next % 4) << (next / 4 - 1);
  p99_ = std::chrono::microseconds(static_cast<int64_t>(units * kUnitMicroseconds));
}

}  // namespace aerokv::client
