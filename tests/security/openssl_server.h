// SPDX-License-Identifier: Apache-2.0
// A TLS server made of OpenSSL's own calls, without TlsContext: it may be set up as badly as a test
// needs it.
#pragma once

#include <openssl/ssl.h>

#include "base/certificates_testing.h"
#include "tests/hostile/scripted_node.h"

namespace aerokv::testing {

class OpenSslServer {
 public:
  /// `set_up` spoils the context; `serve` has each connection whose handshake has succeeded.
  OpenSslServer(const Certificate& certificate, const std::function<void(SSL_CTX*)>& set_up,
                std::function<void(SSL*)> serve = nullptr);
  ~OpenSslServer();
  OpenSslServer(const OpenSslServer&) = delete;
  OpenSslServer& operator=(const OpenSslServer&) = delete;

  [[nodiscard]] uint16_t port() const { return listener_.port(); }

 private:
  std::unique_ptr<SSL_CTX, decltype(&SSL_CTX_free)> context_;
  const std::function<void(SSL*)> serve_;
  Listener listener_;
  std::thread thread_;
};

/// Answers info requests over `ssl` as one node would, until the other side is gone.
void answer_info(SSL* ssl, const std::map<std::string, std::string>& values);

}  // namespace aerokv::testing
