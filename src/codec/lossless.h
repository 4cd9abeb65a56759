// SPDX-License-Identifier: Apache-2.0
// The blocks of the lossless frame: planes through zstd, or as they are where that gains nothing.
// docs/formats/lossless.md is the format.
#pragma once

#include <array>

#include "aerokv/bytes.h"
#include "aerokv/status.h"
#include "codec/planes.h"

namespace aerokv::codec {

/// Source bytes of a block, as this project writes them: planes of 128 KiB for 16-bit elements are
/// what zstd cuts its input into, and all of it stays in the second cache.
inline constexpr size_t kLosslessBlockBytes = 256 << 10;

inline constexpr int kLosslessLevelMin = -7;
inline constexpr int kLosslessLevelMax = 19;

/// A block as it is stored: planes one behind the other.
struct LosslessBlock {
  /// Of each plane; as long as the plane itself = not compressed.
  std::array<uint32_t, kPlanesMax> sizes{};
  uint64_t sum = 0;  ///< XXH3-64 of the stored bytes

  [[nodiscard]] size_t bytes() const;
};

/// Stores `source` (whole elements of `shape`, not empty, below 2^32 bytes) at `target`, which has
/// room for as many bytes. Up to level 1 frequent bytes are given shorter codes and long runs are
/// found; from level 2 on zstd also searches with that level, and the smaller of both is taken.
/// Errors: internal (zstd).
Result<LosslessBlock> encode_block(Bytes source, PlaneShape shape, int level, std::byte* target);

/// Fills `target` with the block in `source`, which has block.bytes().
/// Errors: corruption (the sum, a size that cannot be, zstd's complaints).
Status decode_block(Bytes source, const LosslessBlock& block, PlaneShape shape,
                    MutableBytes target);

}  // namespace aerokv::codec
