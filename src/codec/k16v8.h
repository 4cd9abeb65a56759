// SPDX-License-Identifier: Apache-2.0
// The container of keys in full and values in 8 bits, as LMCache 0.5 calls it EncodedKV.
// docs/formats/k16v8.md has its bytes.
#pragma once

#include <cstddef>
#include <cstdint>

#include "aerokv/bytes.h"
#include "aerokv/status.h"
#include "aerokv/tensor.h"

namespace aerokv::codec {

/// Bytes before the payload in containers that are written here: all six texts are empty.
inline constexpr size_t kKvHeadBytes = 213;
/// One float32.
inline constexpr size_t kKvScaleBytes = 4;

/// Bytes of a whole container.
constexpr size_t kv_container_bytes(size_t k_bytes, size_t v_bytes) {
  return kKvHeadBytes + k_bytes + v_bytes + kKvScaleBytes;
}

/// How the container tags elements of K: their own type, and uint8 for types that it has no
/// number for.
DType kv_tag(DType dtype);

/// Writes the head of a container with one scale for the whole of V. `crc` sums the payload.
/// Requires kKvHeadBytes at `to`, kv_tag(k_tag) == k_tag.
void write_kv_head(std::byte* to, DType k_tag, size_t k_bytes, size_t v_bytes, uint32_t crc);

/// One container at the front of some bytes. The spans borrow from them.
struct KvContainer {
  DType k_tag = DType::bfloat16;
  float scale = 1.0F;
  uint32_t crc = 0;  ///< of `payload`, as its writer says
  Bytes payload;     ///< k, v and the scale
  Bytes k;
  Bytes v;           ///< e4m3fn
  size_t bytes = 0;  ///< of the container
};

/// Reads the container at the front of `src`; more may follow. Does not compute the sum.
/// Errors: corruption (no container, truncated, lengths that contradict each other), invalid
/// (version, types and kinds of scales that this reader does not know).
Result<KvContainer> read_kv_container(Bytes src);

}  // namespace aerokv::codec
