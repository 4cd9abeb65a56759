// SPDX-License-Identifier: Apache-2.0
#include "codec/checksum_copy.h"

#include <algorithm>
#include <cstring>

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace aerokv::codec {
namespace {

// Read once from memory, hashed and copied while it is in the second cache.
constexpr size_t kBlockBytes = 131072;

#if defined(__x86_64__)
// XXH3 has other paths for inputs up to 240 bytes.
bool is_for_avx2(Bytes source, Kernel kernel) {
  return (kernel == Kernel::avx2 || kernel == Kernel::avx512) && source.size() > 240;
}
#endif

}  // namespace

uint64_t copy_and_hash_blocks(Bytes source, std::byte* target) {
  if (source.size() <= kBlockBytes) {
    if (!source.empty()) std::memcpy(target, source.data(), source.size());
    return XXH3_64bits(source.data(), source.size());
  }
  XXH3_state_t state;
  XXH3_64bits_reset(&state);
  for (size_t at = 0; at < source.size(); at += kBlockBytes) {
    const Bytes block = source.subspan(at, std::min(kBlockBytes, source.size() - at));
    XXH3_64bits_update(&state, block.data(), block.size());
    std::memcpy(target + at, block.data(), block.size());
  }
  return XXH3_64bits_digest(&state);
}

uint64_t xxh3_64(Bytes source, Kernel kernel) {
#if defined(__x86_64__)
  if (is_for_avx2(source, kernel)) return xxh3_64_avx2(source);
#endif
  static_cast<void>(kernel);
  return XXH3_64bits(source.data(), source.size());
}

uint64_t copy_and_hash(Bytes source, std::byte* target, Kernel kernel) {
#if defined(__x86_64__)
  if (is_for_avx2(source, kernel)) return copy_and_hash_avx2(source, target);
#endif
  static_cast<void>(kernel);
  return copy_and_hash_blocks(source, target);
}

}  // namespace aerokv::codec
