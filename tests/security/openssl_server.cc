// SPDX-License-Identifier: Apache-2.0
#include "tests/security/openssl_server.h"

namespace aerokv::testing {

OpenSslServer::OpenSslServer(const Certificate& certificate,
                             const std::function<void(SSL_CTX*)>& set_up,
                             std::function<void(SSL*)> serve)
    : context_(SSL_CTX_new(TLS_server_method()), SSL_CTX_free), serve_(std::move(serve)) {
  SSL_CTX_use_certificate(context_.get(), certificate.x509());
  SSL_CTX_use_PrivateKey(context_.get(), certificate.key());
  if (set_up) set_up(context_.get());
  thread_ = std::thread([this] {
    while (true) {
      const UniqueFd socket = listener_.accept();
      if (!socket.is_open()) return;
      const std::unique_ptr<SSL, decltype(&SSL_free)> ssl(SSL_new(context_.get()), SSL_free);
      SSL_set_fd(ssl.get(), socket.get());
      if (SSL_accept(ssl.get()) == 1 && serve_) serve_(ssl.get());
    }
  });
}

OpenSslServer::~OpenSslServer() {
  listener_.shut_down();
  thread_.join();
}

void answer_info(SSL* ssl, const std::map<std::string, std::string>& values) {
  while (true) {
    std::array<unsigned char, 8> head{};
    size_t got = 0;
    if (SSL_read_ex(ssl, head.data(), head.size(), &got) != 1 || got != head.size()) return;
    const size_t size = size_t{head[6]} << 8 | head[7];
    std::string commands(size, '\0');
    if (size > 0 && SSL_read_ex(ssl, commands.data(), size, &got) != 1) return;
    std::string body;
    for (size_t at = 0; at < commands.size();) {
      const size_t end = std::min(commands.find('\n', at), commands.size());
      const std::string command = commands.substr(at, end - at);
      const auto known = values.find(command);
      body += command + "\t" + (known == values.end() ? "" : known->second) + "\n";
      at = end + 1;
    }
    std::string frame{2, 1, 0, 0, 0, 0, 0, 0};
    frame[6] = static_cast<char>(body.size() >> 8);
    frame[7] = static_cast<char>(body.size() & 255);
    frame += body;
    if (SSL_write_ex(ssl, frame.data(), frame.size(), &got) != 1) return;
  }
}

}  // namespace aerokv::testing
