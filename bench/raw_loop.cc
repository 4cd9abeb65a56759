// SPDX-License-Identifier: Apache-2.0
#include "raw_loop.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <cerrno>
#include <functional>
#include <thread>

#include "peer.h"
#include "wire/info.h"

namespace aerokv::bench {
namespace {

Status ask(int fd, const PeerRequest& request) {
  if (::send(fd, &request, sizeof(request), MSG_NOSIGNAL) != sizeof(request)) {
    return status_from_errno(errno, "send to the peer");
  }
  return {};
}

template <typename Span>
uint64_t total_bytes(const std::vector<Span>& spans) {
  uint64_t bytes = 0;
  for (const Span& span : spans) bytes += span.size();
  return bytes;
}

Status receive_share(int fd, const std::vector<MutableBytes>& targets) {
  AEROKV_TRY(ask(fd, {0, total_bytes(targets)}));
  for (MutableBytes target : targets) {
    while (!target.empty()) {
      const ssize_t count = ::recv(fd, target.data(), target.size(), 0);
      if (count <= 0) return status_from_errno(errno, "receive from the peer");
      target = target.subspan(static_cast<size_t>(count));
    }
  }
  return {};
}

Status send_share(int fd, const std::vector<Bytes>& sources) {
  AEROKV_TRY(ask(fd, {1, total_bytes(sources)}));
  for (Bytes source : sources) {
    while (!source.empty()) {
      const ssize_t count = ::send(fd, source.data(), source.size(), MSG_NOSIGNAL);
      if (count <= 0) return status_from_errno(errno, "send to the peer");
      source = source.subspan(static_cast<size_t>(count));
    }
  }
  std::byte answer{};
  if (::recv(fd, &answer, 1, 0) != 1) return status_from_errno(errno, "receive from the peer");
  return {};
}

/// Deals `spans` to the connections in turn and runs `transfer` for each at once.
template <typename Span>
Status deal(const std::vector<UniqueFd>& fds, const std::vector<Span>& spans,
            Status (*transfer)(int, const std::vector<Span>&)) {
  std::vector<std::vector<Span>> shares(fds.size());
  for (size_t i = 0; i < spans.size(); ++i) shares[i % shares.size()].push_back(spans[i]);
  std::vector<Status> results(fds.size());
  std::vector<std::thread> threads;
  for (size_t i = 1; i < fds.size(); ++i) {
    threads.emplace_back([&, i] { results[i] = transfer(fds[i].get(), shares[i]); });
  }
  results[0] = transfer(fds[0].get(), shares[0]);
  for (std::thread& thread : threads) thread.join();
  for (Status& result : results) AEROKV_TRY(std::move(result));
  return {};
}

}  // namespace

Result<RawLoop> RawLoop::connect(const std::string& address, size_t connections) {
  const Result<std::vector<wire::Endpoint>> endpoints = wire::parse_endpoints(address, 0);
  if (!endpoints) return endpoints.error();
  sockaddr_in to{};
  to.sin_family = AF_INET;
  to.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  to.sin_port = htons((*endpoints)[0].port);
  RawLoop loop;
  for (size_t i = 0; i < connections; ++i) {
    UniqueFd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
    if (::connect(fd.get(), reinterpret_cast<const sockaddr*>(&to), sizeof(to)) < 0) {
      return status_from_errno(errno, "connect to the peer");
    }
    const int one = 1;
    ::setsockopt(fd.get(), IPPROTO_TCP, TCP_NODELAY, &one, sizeof(one));
    loop.fds_.push_back(std::move(fd));
  }
  return loop;
}

Status RawLoop::receive(const std::vector<MutableBytes>& targets) {
  return deal<MutableBytes>(fds_, targets, receive_share);
}

Status RawLoop::send(const std::vector<Bytes>& sources) {
  return deal<Bytes>(fds_, sources, send_share);
}

}  // namespace aerokv::bench
