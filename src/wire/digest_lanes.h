// SPDX-License-Identifier: Apache-2.0
// RIPEMD-160 of eight messages side by side. Included by one source file per instruction set,
// which differ in nothing but their compiler flags. Source: the published algorithm.
#pragma once

#include <array>
#include <cstdint>
#include <cstring>
#include <utility>

namespace aerokv::wire {

inline constexpr size_t kLanes = 8;
inline constexpr size_t kBlockBytes = 64;

/// Eight padded messages of whole blocks; a lane with fewer blocks than others ends earlier.
struct LaneMessages {
  std::array<const uint8_t*, kLanes> blocks{};
  std::array<uint32_t, kLanes> block_counts{};
};

using LaneDigests = std::array<std::array<uint8_t, 20>, kLanes>;

void ripemd160_lanes_baseline(const LaneMessages& messages, LaneDigests& digests);
#if defined(__x86_64__)
void ripemd160_lanes_avx2(const LaneMessages& messages, LaneDigests& digests);
#endif

}  // namespace aerokv::wire
