// SPDX-License-Identifier: Apache-2.0
// The raw limit of this machine: bare loops over loopback sockets, and memcpy.
#pragma once

#include <memory>
#include <vector>

#include "aerokv/bytes.h"
#include "aerokv/status.h"
#include "base/fd.h"
#include "process.h"

namespace aerokv::bench {

/// Connections to a peer process, each with a blocking socket and, if there are several, a thread.
class RawLoop {
 public:
  static Result<RawLoop> connect(const std::string& address, size_t connections);

  /// Fills `targets` by recv(), each connection its own share of them.
  Status receive(const std::vector<MutableBytes>& targets);
  /// Sends `sources` by send(), until the peer has them all.
  Status send(const std::vector<Bytes>& sources);

 private:
  std::vector<UniqueFd> fds_;
};

}  // namespace aerokv::bench
