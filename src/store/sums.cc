// SPDX-License-Identifier: Apache-2.0
#include "store/sums.h"

#include <isa-l.h>

#include <string>

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace aerokv::store {

uint64_t segment_sum(Bytes slice) {
  return XXH3_64bits(slice.data(), slice.size());
}

std::vector<std::byte> encode_sums(std::span<const uint64_t> sums) {
  std::vector<std::byte> blob(8 * sums.size());
  for (size_t i = 0; i < sums.size(); ++i) store_be<uint64_t>(blob.data() + 8 * i, sums[i]);
  return blob;
}

Result<std::vector<uint64_t>> decode_sums(Bytes blob, uint64_t segment_count) {
  if (blob.size() % 8 != 0 || blob.size() / 8 != segment_count) {
    return Status(Code::corruption, "sums: " + std::to_string(blob.size()) + " bytes for " +
                                        std::to_string(segment_count) + " segments");
  }
  std::vector<uint64_t> sums(blob.size() / 8);
  for (size_t i = 0; i < sums.size(); ++i) sums[i] = load_be<uint64_t>(blob.data() + 8 * i);
  return sums;
}

uint32_t crc32(Bytes bytes, uint32_t crc) {
  return crc32_gzip_refl(crc, reinterpret_cast<const unsigned char*>(bytes.data()), bytes.size());
}

}  // namespace aerokv::store
