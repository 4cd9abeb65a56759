// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstddef>
#include <cstdint>

namespace aerokv {

/// What a non-blocking call on a stream did.
struct IoResult {
  enum class Kind : uint8_t { moved, would_block, closed, failed };
  Kind kind = Kind::moved;
  size_t bytes = 0;
  int error = 0;  ///< errno, only with failed; 0 if TLS failed, whose stream has the reason
};

}  // namespace aerokv
