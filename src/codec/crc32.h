// SPDX-License-Identifier: Apache-2.0
// CRC-32 of zlib (reflected 0xedb88320), also of parts that were summed apart.
#pragma once

#include <cstdint>

#include "aerokv/bytes.h"

namespace aerokv::codec {

/// The sum of `bytes`, or of what `crc` sums and `bytes` behind it.
uint32_t crc32(Bytes bytes, uint32_t crc = 0);

/// The sum of two runs of bytes, one behind the other, from the sum of each and the length of the
/// second.
uint32_t crc32_join(uint32_t first, uint32_t second, uint64_t second_bytes);

}  // namespace aerokv::codec
