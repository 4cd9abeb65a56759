// SPDX-License-Identifier: Apache-2.0
// The other end of the bare loop: a process that sends or swallows bytes, as plainly as possible.
#pragma once

#include <cstddef>
#include <cstdint>
#include <functional>
#include <vector>

#include "base/fd.h"

namespace aerokv::bench {

/// What a client of the peer sends first, and again for each transfer.
struct PeerRequest {
  uint64_t is_receive = 0;  ///< 0: the peer sends `bytes`; 1: it swallows them and sends one byte
  uint64_t bytes = 0;
};

/// How much the peer hands to one send() or recv(), about a segment.
inline constexpr uint64_t kPeerBlockBytes = 1U << 20;

/// Prints "ready HOST:PORT" and gives each connection to `serve` on a thread of its own, with the
/// bytes to send from, until stdin ends. Returns only if it cannot listen.
int serve_until_stdin_ends(
    const std::function<void(UniqueFd fd, const std::vector<std::byte>& source)>& serve);

/// Sends and swallows without TLS.
int run_peer();

}  // namespace aerokv::bench
