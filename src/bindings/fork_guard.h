// SPDX-License-Identifier: Apache-2.0
// Notices that an object lives in a forked child, where the engine's threads do not exist.
#pragma once

#include <unistd.h>

#include "bindings/errors.h"

namespace aerokv::bindings {

/// Remembers the process that made it. A child must not lock, wait or join anything of the
/// parent's: another thread may have held the lock at the fork.
class ForkGuard {
 public:
  [[nodiscard]] bool is_child() const { return getpid() != owner_; }

  /// Throws ClosedError in a child. Requires the GIL.
  void check(const char* what) const {
    if (is_child()) raise_forked(what);
  }

 private:
  pid_t owner_ = getpid();
};

}  // namespace aerokv::bindings
