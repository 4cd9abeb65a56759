// SPDX-License-Identifier: Apache-2.0
// XXH3-64, also of bytes that are copied at the same time, so that memory is read once.
#pragma once

#include "aerokv/bytes.h"
#include "codec/kernels.h"

namespace aerokv::codec {

/// The XXH3-64 of `source` with seed 0. The result is the same for every kernel.
uint64_t xxh3_64(Bytes source, Kernel kernel);

/// Copies `source` to `target` (as many bytes, not overlapping) and returns the XXH3-64 of
/// them.
uint64_t copy_and_hash(Bytes source, std::byte* target, Kernel kernel);

/// The scalar one: xxHash as it was compiled for the baseline, block after block.
uint64_t copy_and_hash_blocks(Bytes source, std::byte* target);

#if defined(__x86_64__)
/// Both require more than 240 bytes, and AVX2.
uint64_t xxh3_64_avx2(Bytes source);
uint64_t copy_and_hash_avx2(Bytes source, std::byte* target);
#endif

}  // namespace aerokv::codec
