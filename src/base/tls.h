// SPDX-License-Identifier: Apache-2.0
// TLS over a non-blocking socket, in both roles. Which certificate is accepted is decided here.
#pragma once

#include <sys/uio.h>

#include <memory>
#include <span>
#include <string>

#include "aerokv/status.h"
#include "aerokv/tls.h"
#include "base/io_result.h"

namespace aerokv {

/// One TLS connection over a descriptor that somebody else owns and closes. Thread-compatible.
///
/// Encrypted bytes are kept here until the socket takes them: what send() has accepted is on its
/// way once wants_write() is false. What was decrypted and not asked for is kept as well: after
/// receive() has filled all regions there may be more without the socket being readable.
class TlsStream {
 public:
  struct Impl;  // private to the source files of this class

  TlsStream() noexcept;
  ~TlsStream();
  TlsStream(TlsStream&& other) noexcept;
  TlsStream& operator=(TlsStream&& other) noexcept;

  [[nodiscard]] bool is_open() const { return impl_ != nullptr; }

  /// Goes on with the handshake. moved: it is done, and the other side has passed all checks;
  /// would_block: call again when the socket is readable, or writable if wants_write();
  /// failed: error() has the reason.
  IoResult handshake();
  [[nodiscard]] bool is_established() const;

  /// Takes a part of `parts` or all of it. Without parts it only moves what waits here: moved with
  /// 0 bytes if nothing is left, would_block otherwise.
  IoResult send(std::span<const iovec> parts);

  /// Fills `parts` in order as far as bytes are there; a short answer means that no more were.
  /// With `only_buffered` the socket is not asked.
  IoResult receive(std::span<const iovec> parts, bool only_buffered = false);

  /// Encrypted bytes wait for the socket to become writable.
  [[nodiscard]] bool wants_write() const;

  /// Tells the other side that nothing more comes, if the socket takes it now.
  void say_goodbye();

  /// Why the last call failed, or was closed other than in order.
  [[nodiscard]] const Status& error() const;

  /// "TLSv1.3 TLS_AES_128_GCM_SHA256"; empty before the handshake.
  [[nodiscard]] std::string description() const;

  /// The common name of the certificate that the other side has shown and that was verified;
  /// empty if there is none. Servers know users of the mode "pki" by it.
  [[nodiscard]] std::string peer_common_name() const;

 private:
  friend class TlsContext;
  explicit TlsStream(std::unique_ptr<Impl> impl) noexcept;
  std::unique_ptr<Impl> impl_;
};

/// What a server asks of its clients.
enum class TlsClientCertificate : uint8_t { ignored, optional, required };

/// Keys and rules of one side, shared by its connections. Thread-safe.
class TlsContext {
 public:
  /// Reads all files. A client verifies the chain, then that the certificate is made out to the
  /// name given to connect().
  /// Errors: invalid, naming the option and the file.
  static Result<std::shared_ptr<TlsContext>> client(TlsOptions options);

  /// `options` needs a certificate and key, and a CA unless client certificates are ignored.
  static Result<std::shared_ptr<TlsContext>> server(
      TlsOptions options, TlsClientCertificate client = TlsClientCertificate::ignored);

  ~TlsContext();
  TlsContext(const TlsContext&) = delete;
  TlsContext& operator=(const TlsContext&) = delete;

  /// Begins a connection over `fd`. `name` is compared with the DNS names and the common name of
  /// the server's certificate: without regard to case, a wildcard only as the whole left-most
  /// label. No name is sent to the server.
  /// Files that have changed are read first; if they cannot be used, what was read before stays in
  /// use and a line is logged. Errors: invalid (the name), internal.
  Result<TlsStream> connect(int fd, const std::string& name);

  /// The server's side of connect().
  Result<TlsStream> accept(int fd);

  /// How often changed files were taken over.
  [[nodiscard]] uint64_t reloads() const;

 private:
  struct State;
  explicit TlsContext(std::unique_ptr<State> state);
  static Result<std::shared_ptr<TlsContext>> make(std::unique_ptr<State> state);
  Result<std::unique_ptr<TlsStream::Impl>> open(int fd);

  const std::unique_ptr<State> state_;
};

}  // namespace aerokv
