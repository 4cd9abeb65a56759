// SPDX-License-Identifier: Apache-2.0
#include "peer.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <cstddef>
#include <iostream>
#include <string>
#include <thread>
#include <vector>

#include "base/fd.h"

namespace aerokv::bench {
namespace {

// As large as what a server would hold, so that the sent bytes come from memory, not from a cache.
constexpr size_t kSourceBytes = 256U << 20;

bool send_all(int fd, const std::byte* from, size_t count) {
  while (count > 0) {
    const ssize_t sent = ::send(fd, from, count, MSG_NOSIGNAL);
    if (sent <= 0) return false;
    from += sent;
    count -= static_cast<size_t>(sent);
  }
  return true;
}

bool receive_all(int fd, std::byte* to, size_t count) {
  while (count > 0) {
    const ssize_t received = ::recv(fd, to, count, 0);
    if (received <= 0) return false;
    to += received;
    count -= static_cast<size_t>(received);
  }
  return true;
}

bool serve_one(int fd, const PeerRequest& request, const std::vector<std::byte>& source,
               std::vector<std::byte>& sink) {
  if (request.is_receive != 0) {
    for (uint64_t left = request.bytes; left > 0;) {
      const ssize_t received = ::recv(fd, sink.data(), std::min<uint64_t>(left, sink.size()), 0);
      if (received <= 0) return false;
      left -= static_cast<uint64_t>(received);
    }
    return send_all(fd, sink.data(), 1);
  }
  size_t at = 0;
  for (uint64_t left = request.bytes; left > 0;) {
    const uint64_t step = std::min(left, kPeerBlockBytes);
    if (!send_all(fd, source.data() + at, static_cast<size_t>(step))) return false;
    left -= step;
    at = (at + kPeerBlockBytes) % source.size();
  }
  return true;
}

void serve_connection(UniqueFd fd, const std::vector<std::byte>& source) {
  const int one = 1;
  ::setsockopt(fd.get(), IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
  std::vector<std::byte> sink(kPeerBlockBytes, std::byte{1});
  PeerRequest request;
  while (receive_all(fd.get(), reinterpret_cast<std::byte*>(&request), sizeof(request)) &&
         serve_one(fd.get(), request, source, sink)) {
  }
}

}  // namespace

int serve_until_stdin_ends(
    const std::function<void(UniqueFd fd, const std::vector<std::byte>& source)>& serve) {
  const UniqueFd listener(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof(address);
  auto* generic = reinterpret_cast<sockaddr*>(&address);
  if (::bind(listener.get(), generic, length) < 0 || ::listen(listener.get(), 16) < 0 ||
      ::getsockname(listener.get(), generic, &length) < 0) {
    std::cerr << "peer: " << status_from_errno(errno, "listen").message() << "\n";
    return 1;
  }
  const std::vector<std::byte> source(kSourceBytes, std::byte{42});
  std::thread acceptor([&] {
    while (true) {
      UniqueFd fd(::accept4(listener.get(), nullptr, nullptr, SOCK_CLOEXEC));
      if (!fd.is_open()) return;
      std::thread(serve, std::move(fd), std::cref(source)).detach();
    }
  });
  std::cout << "ready 127.0.0.1:" << ntohs(address.sin_port) << std::endl;
  for (std::string line; std::getline(std::cin, line);) {
  }
  std::cout.flush();
  ::_exit(0);  // the other threads own nothing that outlives the process
}

int run_peer() {
  return serve_until_stdin_ends(serve_connection);
}

}  // namespace aerokv::bench
