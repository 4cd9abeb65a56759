// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "aerokv/bytes.h"

namespace aerokv::bench {

/// xxHash's own XXH3-64, compiled for AVX2 on x86-64.
uint64_t xxh3_rival(Bytes bytes);

}  // namespace aerokv::bench
