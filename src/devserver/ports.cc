// SPDX-License-Identifier: Apache-2.0
#include "devserver/ports.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <cerrno>

namespace aerokv::devserver {
namespace {

constexpr int kListenBacklog = 1024;

struct Address {
  sockaddr_storage storage{};
  socklen_t size = 0;
};

Result<Address> address_of(const std::string& host, uint16_t port) {
  Address address;
  auto* v4 = reinterpret_cast<sockaddr_in*>(&address.storage);
  auto* v6 = reinterpret_cast<sockaddr_in6*>(&address.storage);
  if (::inet_pton(AF_INET, host.c_str(), &v4->sin_addr) == 1) {
    v4->sin_family = AF_INET;
    v4->sin_port = htons(port);
    address.size = sizeof *v4;
  } else if (::inet_pton(AF_INET6, host.c_str(), &v6->sin6_addr) == 1) {
    v6->sin6_family = AF_INET6;
    v6->sin6_port = htons(port);
    address.size = sizeof *v6;
  } else {
    return Status(Code::invalid, "host " + host + ": expected an IPv4 or IPv6 address");
  }
  return address;
}

Result<uint16_t> port_of(int fd) {
  sockaddr_storage storage{};
  socklen_t size = sizeof storage;
  if (::getsockname(fd, reinterpret_cast<sockaddr*>(&storage), &size) != 0) {
    return status_from_errno(errno, "getsockname");
  }
  return ntohs(storage.ss_family == AF_INET6
                   ? reinterpret_cast<const sockaddr_in6*>(&storage)->sin6_port
                   : reinterpret_cast<const sockaddr_in*>(&storage)->sin_port);
}

Result<UniqueFd> bind_to(const std::string& host, uint16_t port) {
  auto address = address_of(host, port);
  if (!address) return address.error();
  UniqueFd fd(::socket(address->storage.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!fd.is_open()) return status_from_errno(errno, "socket");
  const int on = 1;
  ::setsockopt(fd.get(), SOL_SOCKET, SO_REUSEADDR, &on, sizeof on);
  if (::bind(fd.get(), reinterpret_cast<sockaddr*>(&address->storage), address->size) != 0) {
    return status_from_errno(errno, "bind " + host + ":" + std::to_string(port));
  }
  return fd;
}

/// A socket bound to host and port (0 = any), not yet listening: clients are refused. The port
/// stays its own when it stops to listen, which it would not if the kernel had chosen it: so a
/// chosen one is bound once more by number.
Result<UniqueFd> bind_socket(const std::string& host, uint16_t port) {
  auto first = bind_to(host, port);
  if (!first || port != 0) return first;
  const auto chosen = port_of(first->get());
  if (!chosen) return chosen.error();
  return bind_to(host, *chosen);
}

bool is_tls(AddressKind kind) {
  return kind == AddressKind::tls || kind == AddressKind::tls_alternate;
}

}  // namespace

Status Ports::add(int node, AddressKind kind, const std::string& host, uint16_t port) {
  auto socket = bind_socket(host, port);
  if (!socket) return socket.error();
  const auto bound = port_of(socket->get());
  if (!bound) return bound.error();
  ports_.push_back({std::move(socket).value(), node, kind, {host, *bound}, false});
  return {};
}

Status Ports::open(const Options& options) {
  const auto port_of_node = [](uint16_t first, int node) {
    return static_cast<uint16_t>(first == 0 ? 0 : first + node);
  };
  const bool has_alternate = !options.alternate_host.empty();
  for (int node = 0; node < options.all_nodes(); ++node) {
    const uint16_t clear = port_of_node(options.port, node);
    const uint16_t tls = port_of_node(options.tls.port, node);
    if (options.clear_port) {
      AEROKV_TRY(add(node, AddressKind::clear, options.host, clear));
      if (has_alternate) {
        AEROKV_TRY(add(node, AddressKind::clear_alternate, options.alternate_host, clear));
      }
    }
    if (!options.has_tls()) continue;
    AEROKV_TRY(add(node, AddressKind::tls, options.host, tls));
    if (has_alternate) {
      AEROKV_TRY(add(node, AddressKind::tls_alternate, options.alternate_host, tls));
    }
  }
  return {};
}

std::vector<NodeAddresses> Ports::advertised(const Options& options) const {
  std::vector<NodeAddresses> nodes(static_cast<size_t>(options.all_nodes()));
  for (const Port& port : ports_) {
    Endpoint endpoint = port.endpoint;
    const bool standard = port.kind == AddressKind::clear || port.kind == AddressKind::tls;
    if (standard && !options.advertised_host.empty()) endpoint.host = options.advertised_host;
    nodes[static_cast<size_t>(port.node)][static_cast<size_t>(port.kind)] = std::move(endpoint);
  }
  return nodes;
}

std::vector<Endpoint> Ports::endpoints(AddressKind kind) const {
  std::vector<Endpoint> endpoints;
  for (const Port& port : ports_) {
    if (port.kind == kind) endpoints.push_back(port.endpoint);
  }
  return endpoints;
}

Status Ports::listen(int node) {
  const std::scoped_lock lock(mutex_);
  for (Port& port : ports_) {
    if (port.node != node) continue;
    if (::listen(port.socket.get(), kListenBacklog) != 0) return status_from_errno(errno, "listen");
    port.listening = true;
  }
  return {};
}

bool Ports::refuse(int node) {
  const std::scoped_lock lock(mutex_);
  bool listened = false;
  for (Port& port : ports_) {
    if (port.node != node || !port.listening) continue;
    ::shutdown(port.socket.get(), SHUT_RDWR);  // ends listening, keeps the port
    port.listening = false;
    listened = true;
  }
  return listened;
}

void Ports::close() {
  const std::scoped_lock lock(mutex_);
  for (Port& port : ports_) {
    port.listening = false;
    port.socket.reset();
  }
}

void Ports::await_clients(int wake, const Taker& take) {
  std::vector<pollfd> polled{{wake, POLLIN, 0}};
  std::vector<Port*> waiting{nullptr};
  {
    const std::scoped_lock lock(mutex_);
    for (Port& port : ports_) {
      if (!port.listening) continue;
      polled.push_back({port.socket.get(), POLLIN, 0});
      waiting.push_back(&port);
    }
  }
  ::poll(polled.data(), polled.size(), -1);
  for (size_t i = 1; i < polled.size(); ++i) {
    if ((polled[i].revents & (POLLIN | POLLERR | POLLNVAL)) == 0) continue;
    const std::scoped_lock lock(mutex_);
    const Port& port = *waiting[i];
    while (port.listening) {
      UniqueFd client(::accept4(port.socket.get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
      if (!client.is_open()) break;
      const int on = 1;
      ::setsockopt(client.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
      take(std::move(client), port.node, is_tls(port.kind));
    }
  }
}

}  // namespace aerokv::devserver
