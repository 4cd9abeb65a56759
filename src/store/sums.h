// SPDX-License-Identifier: Apache-2.0
// The two sums of the record schema: XXH3-64 of each segment (bins `sums` and `sum`) and the
// optional zlib CRC-32 (bin `crc32`). Thread-safe pure functions.
#pragma once

#include <cstdint>
#include <span>
#include <vector>

#include "aerokv/bytes.h"
#include "aerokv/status.h"

namespace aerokv::store {

/// XXH3-64 with seed 0.
uint64_t segment_sum(Bytes slice);

/// The int64 that bin `sum` of a segment record holds: the same 64 bits.
inline int64_t sum_to_bin(uint64_t sum) {
  return static_cast<int64_t>(sum);
}
inline uint64_t sum_from_bin(int64_t value) {
  return static_cast<uint64_t>(value);
}

/// The blob of bin `sums`: 8 bytes big-endian for each sum, in order.
std::vector<std::byte> encode_sums(std::span<const uint64_t> sums);

/// Errors: corruption if `blob` is not exactly 8 * segment_count bytes. Allocates no more than
/// the blob's own size.
Result<std::vector<uint64_t>> decode_sums(Bytes blob, uint64_t segment_count);

/// zlib's CRC-32. `crc` is the value of the bytes before `bytes`: crc32(b, crc32(a)) is the
/// CRC of a followed by b; the CRC of nothing is 0.
uint32_t crc32(Bytes bytes, uint32_t crc = 0);

}  // namespace aerokv::store
