// SPDX-License-Identifier: Apache-2.0
// OpenSSL's own limit on this machine: SSL_write() in another process, SSL_read() here, over
// blocking loopback sockets, with nothing of ours in between.
#pragma once

#include <openssl/ssl.h>

#include <memory>
#include <string>
#include <vector>

#include "aerokv/bytes.h"
#include "aerokv/status.h"
#include "base/fd.h"

namespace aerokv::bench {

/// Prints "ready HOST:PORT"; sends as many bytes as a client asks for, again and again. Serves
/// until stdin ends.
int run_tls_peer(const std::string& certificate, const std::string& key);

/// Connections to such a peer, each with a thread.
class TlsLoop {
 public:
  static Result<TlsLoop> connect(const std::string& address, size_t connections);

  /// Fills `targets`, each connection its own share of them.
  Status receive(const std::vector<MutableBytes>& targets);

  /// "TLSv1.3 TLS_AES_128_GCM_SHA256".
  [[nodiscard]] std::string cipher() const;

 private:
  struct Link {
    UniqueFd fd;
    std::unique_ptr<SSL, decltype(&SSL_free)> ssl{nullptr, SSL_free};
  };
  static Status receive_share(SSL* ssl, const std::vector<MutableBytes>& targets);

  std::vector<Link> links_;
};

}  // namespace aerokv::bench
