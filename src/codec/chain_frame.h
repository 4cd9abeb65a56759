// SPDX-License-Identifier: Apache-2.0
// The header in front of what a chain of transforms has made: docs/formats/chain.md.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "aerokv/bytes.h"
#include "aerokv/status.h"

namespace aerokv::codec {

inline constexpr size_t kChainStagesMax = 8;

/// Bytes in front of the last stage's output.
constexpr size_t chain_header_bytes(size_t stages) {
  return 8 + 8 * stages;
}

/// Writes the header; `output_bytes` has one number for each stage, in the order of encoding, 1 to
/// kChainStagesMax of them, and `dst` has room for chain_header_bytes() of them.
void write_chain_header(const std::vector<uint64_t>& output_bytes, MutableBytes dst);

/// Reads what write_chain_header() wrote: the bytes of each stage's output. `bounds` has the most
/// that each stage can have made. The frame may be followed by other bytes; the last output is
/// certain to be there in full.
/// Errors: corruption (truncated; a length above its bound), invalid (not such a frame, another
/// version or number of stages).
Result<std::vector<uint64_t>> read_chain_header(Bytes frame, const std::vector<uint64_t>& bounds);

}  // namespace aerokv::codec
