// SPDX-License-Identifier: Apache-2.0
// Non-blocking stream sockets, in clear text or with TLS. Everything above sees only this class.
#pragma once

#include <sys/uio.h>

#include <cstddef>
#include <span>
#include <string>

#include "base/fd.h"
#include "base/tls.h"
#include "client/node.h"

namespace aerokv::client {

/// One non-blocking stream connection. Thread-compatible.
class Socket {
 public:
  /// Starts connecting; see finish_connect().
  /// Sets TCP_NODELAY and close-on-exec. Errors: unavailable, invalid (no TLS name).
  static Result<Socket> start_connect(const SocketAddress& address, const ClientOptions& options,
                                      const std::string& tls_name);

  Socket() = default;

  /// Goes on with the connection and the handshake of TLS. moved: it can be used; would_block: call
  /// again when the socket is writable if wants_write(), readable otherwise; failed: failure() has
  /// the reason.
  IoResult finish_connect();

  /// Without parts send() moves what was taken before and still waits to be sent.
  IoResult send(std::span<const iovec> parts) {
    return tls_.is_open() ? tls_.send(parts) : send_clear(parts);
  }
  /// Fills the parts as far as bytes are there: a short answer means that no more were. TLS keeps
  /// bytes that were not asked for: after an answer that filled everything, one with
  /// `only_buffered` hands these out without asking the network.
  IoResult receive(std::span<const iovec> parts, bool only_buffered = false) {
    return tls_.is_open() ? tls_.receive(parts, only_buffered)
                          : receive_clear(parts, only_buffered);
  }

  /// Something that was taken waits for the socket to become writable.
  [[nodiscard]] bool wants_write() const {
    return is_connecting_ || (tls_.is_open() && tls_.wants_write());
  }

  /// receive() has met the end behind the bytes of its last answer, and says so when called again.
  [[nodiscard]] bool has_ended() const { return tls_.is_open() && !tls_.error().ok(); }

  /// What a result other than moved and would_block means; `doing` is "send" or "receive".
  [[nodiscard]] Status failure(const IoResult& result, const char* doing) const;

  /// True while the other side has not passed the checks of TLS, if there is TLS: a failure is then
  /// one of trust or of the protocol, not of the network.
  [[nodiscard]] bool is_in_handshake() const { return tls_.is_open() && !tls_.is_established(); }

  [[nodiscard]] int fd() const { return fd_.get(); }
  [[nodiscard]] bool is_open() const { return fd_.is_open(); }
  void close();

 private:
  explicit Socket(UniqueFd fd) : fd_(std::move(fd)) {}
  IoResult send_clear(std::span<const iovec> parts);
  IoResult receive_clear(std::span<const iovec> parts, bool only_buffered);

  UniqueFd fd_;
  TlsStream tls_;
  bool is_connecting_ = true;
};

}  // namespace aerokv::client
