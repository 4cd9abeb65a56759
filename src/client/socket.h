// SPDX-License-Identifier: Apache-2.0
// Non-blocking stream sockets. Everything above sees only these functions: TLS takes their place
// behind the same signatures.
#pragma once

#include <sys/uio.h>

#include <cstddef>
#include <span>

#include "base/fd.h"
#include "client/node.h"

namespace aerokv::client {

/// What a non-blocking call did.
struct IoResult {
  enum class Kind : uint8_t { moved, would_block, closed, failed };
  Kind kind = Kind::moved;
  size_t bytes = 0;
  int error = 0;  ///< errno, only with failed
};

/// One non-blocking stream connection. Thread-compatible.
class Socket {
 public:
  /// Starts connecting; the socket becomes writable when it is done or has failed.
  /// Sets TCP_NODELAY and close-on-exec.
  static Result<Socket> start_connect(const SocketAddress& address);

  Socket() = default;

  /// The outcome of start_connect() once the socket is writable.
  [[nodiscard]] Status connect_result() const;

  IoResult send(std::span<const iovec> parts);
  IoResult receive(std::span<const iovec> parts);

  [[nodiscard]] int fd() const { return fd_.get(); }
  [[nodiscard]] bool is_open() const { return fd_.is_open(); }
  void close() { fd_.reset(); }

 private:
  explicit Socket(UniqueFd fd) : fd_(std::move(fd)) {}
  UniqueFd fd_;
};

}  // namespace aerokv::client
