// SPDX-License-Identifier: Apache-2.0
// The checksum frame: the bytes of an object behind a sum and the first bytes of its key's hash.
// docs/formats/checksum.md is the format.
#pragma once

#include "aerokv/bytes.h"
#include "aerokv/status.h"

namespace aerokv::codec {

inline constexpr size_t kChecksumOverhead = 17;

/// Writes the frame of `payload`, bound to `chunk_hash` (raw bytes, any length), to `frame`, which
/// has exactly kChecksumOverhead bytes more. The two must not overlap.
void encode_checksum(Bytes payload, Bytes chunk_hash, MutableBytes frame);

/// Copies the payload of the frame at the front of `source` to `payload`, whose size tells how long
/// it is; bytes behind the frame are ignored.
/// Errors: corruption (too short, bound to another hash, or a wrong sum: then `payload` is wiped),
/// invalid (another version). `payload` is untouched unless the sum is what is wrong.
Status decode_checksum(Bytes source, Bytes chunk_hash, MutableBytes payload);

}  // namespace aerokv::codec
