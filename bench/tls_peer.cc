// SPDX-License-Identifier: Apache-2.0
#include "tls_peer.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cerrno>
#include <iostream>
#include <thread>

#include "peer.h"
#include "wire/info.h"

namespace aerokv::bench {
namespace {

constexpr const char* kSuite = "TLS_AES_128_GCM_SHA256";

using Context = std::unique_ptr<SSL_CTX, decltype(&SSL_CTX_free)>;

Context make_context(bool is_server) {
  Context context(SSL_CTX_new(is_server ? TLS_server_method() : TLS_client_method()), SSL_CTX_free);
  SSL_CTX_set_min_proto_version(context.get(), TLS1_3_VERSION);
  SSL_CTX_set_ciphersuites(context.get(), kSuite);
  return context;
}

void set_no_delay(int fd) {
  const int one = 1;
  ::setsockopt(fd, IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
}

void serve(SSL_CTX* context, UniqueFd fd, const std::vector<std::byte>& source) {
  set_no_delay(fd.get());
  const std::unique_ptr<SSL, decltype(&SSL_free)> ssl(SSL_new(context), SSL_free);
  SSL_set_fd(ssl.get(), fd.get());
  if (SSL_accept(ssl.get()) != 1) return;
  uint64_t bytes = 0;
  size_t moved = 0;
  while (SSL_read_ex(ssl.get(), &bytes, sizeof(bytes), &moved) == 1 && moved == sizeof(bytes)) {
    size_t at = 0;
    for (uint64_t left = bytes; left > 0; left -= moved) {
      const auto step = static_cast<size_t>(std::min(left, kPeerBlockBytes));
      if (SSL_write_ex(ssl.get(), source.data() + at, step, &moved) != 1) return;
      at = (at + kPeerBlockBytes) % source.size();
    }
  }
}

}  // namespace

int run_tls_peer(const std::string& certificate, const std::string& key) {
  const Context context = make_context(true);
  if (SSL_CTX_use_certificate_chain_file(context.get(), certificate.c_str()) != 1 ||
      SSL_CTX_use_PrivateKey_file(context.get(), key.c_str(), SSL_FILETYPE_PEM) != 1) {
    std::cerr << "tls peer: no certificate\n";
    return 1;
  }
  return serve_until_stdin_ends([&](UniqueFd fd, const std::vector<std::byte>& source) {
    serve(context.get(), std::move(fd), source);
  });
}

Result<TlsLoop> TlsLoop::connect(const std::string& address, size_t connections) {
  const Result<std::vector<wire::Endpoint>> endpoints = wire::parse_endpoints(address, 0);
  if (!endpoints) return endpoints.error();
  const Context context = make_context(false);
  TlsLoop loop;
  for (size_t i = 0; i < connections; ++i) {
    Link link;
    link.fd = UniqueFd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    sockaddr_in to{};
    to.sin_family = AF_INET;
    to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    to.sin_port = htons((*endpoints)[0].port);
    if (::connect(link.fd.get(), reinterpret_cast<const sockaddr*>(&to), sizeof(to)) < 0) {
      return status_from_errno(errno, "connect to the TLS peer");
    }
    set_no_delay(link.fd.get());
    link.ssl.reset(SSL_new(context.get()));
    SSL_set_fd(link.ssl.get(), link.fd.get());
    if (SSL_connect(link.ssl.get()) != 1) {
      return Status(Code::unavailable, "TLS peer: no handshake");
    }
    loop.links_.push_back(std::move(link));
  }
  return loop;
}

Status TlsLoop::receive_share(SSL* ssl, const std::vector<MutableBytes>& targets) {
  uint64_t bytes = 0;
  for (const MutableBytes& target : targets) bytes += target.size();
  size_t moved = 0;
  if (SSL_write_ex(ssl, &bytes, sizeof(bytes), &moved) != 1) {
    return {Code::unavailable, "send to the TLS peer"};
  }
  for (MutableBytes target : targets) {
    while (!target.empty()) {
      if (SSL_read_ex(ssl, target.data(), target.size(), &moved) != 1) {
        return {Code::unavailable, "receive from the TLS peer"};
      }
      target = target.subspan(moved);
    }
  }
  return {};
}

Status TlsLoop::receive(const std::vector<MutableBytes>& targets) {
  std::vector<std::vector<MutableBytes>> shares(links_.size());
  for (size_t i = 0; i < targets.size(); ++i) shares[i % shares.size()].push_back(targets[i]);
  std::vector<Status> results(links_.size());
  std::vector<std::thread> threads;
  for (size_t i = 1; i < links_.size(); ++i) {
    threads.emplace_back([&, i] { results[i] = receive_share(links_[i].ssl.get(), shares[i]); });
  }
  results[0] = receive_share(links_[0].ssl.get(), shares[0]);
  for (std::thread& thread : threads) thread.join();
  for (Status& result : results) AEROKV_TRY(std::move(result));
  return {};
}

std::string TlsLoop::cipher() const {
  const SSL* ssl = links_.front().ssl.get();
  return std::string(SSL_get_version(ssl)) + " " + SSL_get_cipher_name(ssl);
}

}  // namespace aerokv::bench
