// SPDX-License-Identifier: Apache-2.0
// The encrypted frame: AES-GCM with a random IV. docs/formats/aesgcm.md is the format.
#pragma once

#include "aerokv/bytes.h"
#include "aerokv/status.h"

namespace aerokv::codec {

inline constexpr size_t kAesGcmIvBytes = 12;
inline constexpr size_t kAesGcmTagBytes = 16;
inline constexpr size_t kAesGcmOverhead = 1 + kAesGcmIvBytes + kAesGcmTagBytes;

/// Longest plaintext under one IV (NIST SP 800-38D), far beyond any object.
inline constexpr uint64_t kAesGcmBytesMax = (1ULL << 36) - 32;

/// Writes the frame of `plain` under a fresh random IV to `frame`, which has exactly
/// kAesGcmOverhead bytes more. `key` has 16 or 32 bytes. The buffers must not overlap.
/// Errors: invalid (the key's size, kAesGcmBytesMax), internal (OpenSSL, no randomness); the frame
/// is unspecified then.
Status encrypt_aesgcm(Bytes key, Bytes plain, MutableBytes frame);

/// The same with an IV of the caller's, for vectors: an IV must never be used twice with one key.
Status encrypt_aesgcm_with_iv(Bytes key, Bytes iv, Bytes plain, MutableBytes frame);

/// Decrypts the frame at the front of `source` into `plain`, whose size tells how long it is; bytes
/// behind the frame are ignored.
/// Errors: corruption (too short), invalid (another version, the key's size), denied (the tag does
/// not belong to these bytes and this key; `plain` is wiped), internal (OpenSSL; likewise).
Status decrypt_aesgcm(Bytes key, Bytes source, MutableBytes plain);

}  // namespace aerokv::codec
