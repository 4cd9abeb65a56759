// SPDX-License-Identifier: Apache-2.0
#include "xxh3_rival.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace aerokv::bench {

uint64_t xxh3_rival(Bytes bytes) {
  return XXH3_64bits(bytes.data(), bytes.size());
}

}  // namespace aerokv::bench
