// SPDX-License-Identifier: Apache-2.0
#include "devserver/devserver.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cerrno>
#include <set>
#include <thread>

#include "devserver/service.h"
#include "devserver/worker.h"

namespace aerokv::devserver {
namespace {

constexpr int kListenBacklog = 1024;
constexpr milliseconds kHousekeepingPause{200};

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

Status check_namespace(const NamespaceOptions& ns) {
  const auto bad = [&](const std::string& what) {
    return Status(Code::invalid, "namespace " + ns.name + ": " + what);
  };
  if (ns.name.empty() || ns.name.size() > kNamespaceBytesMax ||
      ns.name.find_first_of(":;,/\n\t=") != std::string::npos) {
    return bad("expected a name of 1 to 31 bytes");
  }
  if (ns.max_record_bytes < 64 || ns.max_record_bytes > kRecordBytesMax) {
    return bad("max_record_bytes " + std::to_string(ns.max_record_bytes) + ", expected 64 to " +
               std::to_string(kRecordBytesMax));
  }
  if (ns.size_bytes == 0 || ns.size_bytes > (1ULL << 50)) return bad("size_bytes out of range");
  if (ns.default_ttl_s > kTtlSecondsMax) return bad("default_ttl_s over ten years");
  return {};
}

/// Fills in defaults. Errors: invalid.
Status complete(Options& options) {
  const auto bad = [](const std::string& what) {
    return Status(Code::invalid, "development server: " + what);
  };
  if (options.nodes < 1 || options.nodes > kNodesMax) return bad("nodes: expected 1 to 16");
  if (options.replication < 1) return bad("replication: expected at least 1");
  options.replication = std::min(options.replication, options.nodes);
  if (options.namespaces.empty()) return bad("namespaces: expected at least one");
  std::set<std::string> names;
  for (const NamespaceOptions& ns : options.namespaces) {
    AEROKV_TRY(check_namespace(ns));
    if (!names.insert(ns.name).second) return bad("namespace " + ns.name + " is there twice");
  }
  for (const UserOptions& user : options.users) {
    if (user.name.empty() || user.name.size() > kUserBytesMax)
      return bad("user name: 1 to 63 bytes");
    if (user.password.size() > kPasswordBytesMax) return bad("password: up to 63 bytes");
  }
  if (options.node_ids.empty()) {
    for (int i = 1; i <= options.nodes; ++i) {
      constexpr std::string_view kDigits = "0123456789ABCDEF";
      std::string id = options.nodes == 1 ? "A" : "B";
      if (i > 15) id += kDigits[static_cast<size_t>(i / 16)];
      id += kDigits[static_cast<size_t>(i % 16)];
      options.node_ids.push_back(std::move(id));
    }
  }
  if (options.node_ids.size() != static_cast<size_t>(options.nodes)) {
    return bad("node_ids: expected one for each node");
  }
  std::set<std::string> ids;
  for (const std::string& id : options.node_ids) {
    if (id.empty() || id.size() > 16 ||
        id.find_first_not_of("0123456789ABCDEF") != std::string::npos || !ids.insert(id).second) {
      return bad("node id " + id + ": expected 1 to 16 hexadecimal digits, each id once");
    }
  }
  if (options.threads < 0 || options.threads > 64) return bad("threads: expected 0 to 64");
  if (options.threads == 0) {
    options.threads = static_cast<int>(std::clamp(std::thread::hardware_concurrency(), 1U, 4U));
  }
  if (options.port != 0 && options.port + options.nodes - 1 > 65535) return bad("port: too high");
  return {};
}

}  // namespace

struct DevServer::Impl : NodeControl {
  ~Impl() override { stop(); }

  Status open(Options options);
  void stop();
  Status check_node(int node) const;
  Status stop_node(int node);
  Status start_node(int node);
  Status pause_node(int node);
  Status resume_node(int node);

  void request_stop(int node) override;
  void request_pause(int node) override;

  void accept_loop();
  void accept_all(size_t node);
  void housekeeping_loop();
  void kill_sockets(size_t node);
  void finish_stop(int node);

  std::unique_ptr<Service> service;
  std::vector<std::unique_ptr<Worker>> workers;
  std::vector<UniqueFd> sockets;  // listening, or bound only while the node is stopped
  std::vector<bool> listening;
  std::mutex sockets_mutex;  // sockets, listening
  std::mutex control_mutex;  // one change of a node at a time
  UniqueFd wake;
  std::thread acceptor;
  std::thread housekeeper;
  std::atomic<bool> stopping{false};
  std::mutex wanted_mutex;
  std::vector<int> wanted_stops;
  size_t next_worker = 0;
};

Status DevServer::Impl::open(Options options) {
  AEROKV_TRY(complete(options));
  std::vector<Endpoint> endpoints;
  for (int i = 0; i < options.nodes; ++i) {
    const auto port = static_cast<uint16_t>(options.port == 0 ? 0 : options.port + i);
    auto socket = bind_socket(options.host, port);
    if (!socket) return socket.error();
    if (::listen(socket->get(), kListenBacklog) != 0) return status_from_errno(errno, "listen");
    const auto bound = port_of(socket->get());
    if (!bound) return bound.error();
    endpoints.push_back({options.host, *bound});
    sockets.push_back(std::move(socket).value());
    listening.push_back(true);
  }
  auto made_wake = make_event_fd();
  if (!made_wake) return made_wake.error();
  wake = std::move(made_wake).value();
  const int threads = options.threads;
  service = std::make_unique<Service>(std::move(options), std::move(endpoints));
  for (int i = 0; i < threads; ++i) {
    auto worker = Worker::create(*service, *this);
    if (!worker) return worker.error();
    workers.push_back(std::move(worker).value());
  }
  for (const auto& worker : workers) worker->start();
  acceptor = std::thread([this] { accept_loop(); });
  housekeeper = std::thread([this] { housekeeping_loop(); });
  return {};
}

void DevServer::Impl::stop() {
  if (stopping.exchange(true)) return;
  if (wake.is_open()) signal_event_fd(wake.get());
  if (acceptor.joinable()) acceptor.join();
  if (service != nullptr) service->wake_housekeeping();
  if (housekeeper.joinable()) housekeeper.join();
  for (const auto& worker : workers) worker->stop();
  if (service != nullptr) service->cluster.stop_clock();
  const std::scoped_lock lock(sockets_mutex);
  sockets.clear();
  listening.clear();
}

void DevServer::Impl::accept_loop() {
  while (!stopping) {
    std::vector<pollfd> polled{{wake.get(), POLLIN, 0}};
    std::vector<size_t> nodes;
    {
      const std::scoped_lock lock(sockets_mutex);
      for (size_t i = 0; i < sockets.size(); ++i) {
        if (!listening[i]) continue;
        polled.push_back({sockets[i].get(), POLLIN, 0});
        nodes.push_back(i);
      }
    }
    ::poll(polled.data(), polled.size(), -1);
    if ((polled[0].revents & POLLIN) != 0) clear_event_fd(wake.get());
    for (size_t i = 1; i < polled.size() && !stopping; ++i) {
      if ((polled[i].revents & (POLLIN | POLLERR | POLLNVAL)) != 0) accept_all(nodes[i - 1]);
    }
  }
}

void DevServer::Impl::accept_all(size_t node) {
  const std::scoped_lock lock(sockets_mutex);
  while (listening[node]) {
    UniqueFd client(::accept4(sockets[node].get(), nullptr, nullptr, SOCK_NONBLOCK | SOCK_CLOEXEC));
    if (!client.is_open()) return;
    const int on = 1;
    ::setsockopt(client.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
    workers[next_worker++ % workers.size()]->adopt(std::move(client), static_cast<int>(node));
  }
}

void DevServer::Impl::housekeeping_loop() {
  while (!stopping) {
    service->await_housekeeping(kHousekeepingPause);
    std::vector<int> stops;
    {
      const std::scoped_lock lock(wanted_mutex);
      stops.swap(wanted_stops);
    }
    for (const int node : stops) finish_stop(node);
    service->housekeeping();
  }
}

Status DevServer::Impl::check_node(int node) const {
  if (node >= 0 && node < service->options.nodes) return {};
  return {Code::invalid, "node " + std::to_string(node) + ": expected 0 to " +
                             std::to_string(service->options.nodes - 1)};
}

// Refuses new clients and closes the connections of those that are there. The port stays ours.
void DevServer::Impl::kill_sockets(size_t node) {
  {
    const std::scoped_lock lock(sockets_mutex);
    if (!listening[node]) return;
    listening[node] = false;
    ::shutdown(sockets[node].get(), SHUT_RDWR);  // ends listening, keeps the port
  }
  signal_event_fd(wake.get());
  for (const auto& worker : workers) {
    Worker* w = worker.get();
    w->post_and_wait([w, node] { w->close_connections(static_cast<int>(node)); });
  }
}

// Buries a node that the cluster counts as dead, unless it has been started again meanwhile.
void DevServer::Impl::finish_stop(int node) {
  const std::scoped_lock lock(control_mutex);
  if (service->cluster.is_running(node)) return;
  kill_sockets(static_cast<size_t>(node));
  for (Namespace& ns : service->namespaces) ns.clear_node(node);
}

Status DevServer::Impl::stop_node(int node) {
  AEROKV_TRY(check_node(node));
  service->cluster.stop(node);
  finish_stop(node);
  return {};
}

Status DevServer::Impl::start_node(int node) {
  AEROKV_TRY(check_node(node));
  const std::scoped_lock lock(control_mutex);
  if (service->cluster.is_running(node)) {
    return {Code::invalid, "start node " + std::to_string(node) + ": it is running"};
  }
  const auto at = static_cast<size_t>(node);
  kill_sockets(at);  // a death that a fault has asked for may not have been carried out yet
  const std::scoped_lock sockets_lock(sockets_mutex);
  for (Namespace& ns : service->namespaces) ns.clear_node(node);  // what came after its death
  service->cluster.start(node);
  if (::listen(sockets[at].get(), kListenBacklog) != 0) return status_from_errno(errno, "listen");
  listening[at] = true;
  signal_event_fd(wake.get());
  return {};
}

Status DevServer::Impl::pause_node(int node) {
  AEROKV_TRY(check_node(node));
  const std::scoped_lock lock(control_mutex);
  service->cluster.pause(node);
  return {};
}

Status DevServer::Impl::resume_node(int node) {
  AEROKV_TRY(check_node(node));
  const std::scoped_lock lock(control_mutex);
  service->cluster.resume(node);
  for (const auto& worker : workers) {
    Worker* w = worker.get();
    w->post([w, node] { w->thaw_connections(node); });
  }
  return {};
}

void DevServer::Impl::request_stop(int node) {
  service->cluster.stop(node);
  {
    const std::scoped_lock lock(wanted_mutex);
    wanted_stops.push_back(node);
  }
  service->wake_housekeeping();
}

void DevServer::Impl::request_pause(int node) {
  service->cluster.pause(node);
}

DevServer::DevServer(std::unique_ptr<Impl> impl) : impl_(std::move(impl)) {}
DevServer::~DevServer() = default;

Result<std::unique_ptr<DevServer>> DevServer::start(Options options) {
  auto impl = std::make_unique<Impl>();
  AEROKV_TRY(impl->open(std::move(options)));
  return std::unique_ptr<DevServer>(new DevServer(std::move(impl)));
}

std::vector<Endpoint> DevServer::endpoints() const {
  return impl_->service->endpoints;
}
void DevServer::stop() {
  impl_->stop();
}
Status DevServer::stop_node(int node) {
  return impl_->stop_node(node);
}
Status DevServer::start_node(int node) {
  return impl_->start_node(node);
}
Status DevServer::pause_node(int node) {
  return impl_->pause_node(node);
}
Status DevServer::resume_node(int node) {
  return impl_->resume_node(node);
}

Status DevServer::await_settled(std::chrono::milliseconds timeout) {
  return impl_->service->cluster.await_settled(timeout);
}

uint64_t DevServer::add_fault(Fault fault) {
  return impl_->service->faults.add(std::move(fault));
}
bool DevServer::remove_fault(uint64_t id) {
  return impl_->service->faults.remove(id);
}
void DevServer::clear_faults() {
  impl_->service->faults.clear();
}
std::vector<FaultCounter> DevServer::fault_counters() const {
  return impl_->service->faults.counters();
}
Status DevServer::await_fault(uint64_t id, uint64_t count, std::chrono::milliseconds timeout) {
  return impl_->service->faults.await(id, count, timeout);
}

Result<NodeStats> DevServer::stats(int node) const {
  AEROKV_TRY(impl_->check_node(node));
  Service& service = *impl_->service;
  const NodeCounters& counters = service.counters[static_cast<size_t>(node)];
  NodeStats stats;
  for (size_t i = 0; i < kRequestKinds; ++i) stats.requests[i] = counters.requests[i].load();
  stats.bytes_in = counters.bytes_in.load();
  stats.bytes_out = counters.bytes_out.load();
  stats.connections_opened = counters.connections_opened.load();
  stats.connections_now = static_cast<uint64_t>(std::max<int64_t>(0, counters.connections_now));
  for (Namespace& ns : service.namespaces) {
    const auto positive = [](int64_t n) { return static_cast<uint64_t>(std::max<int64_t>(0, n)); };
    stats.records += positive(ns.counters(node).records.load());
    stats.used_bytes += positive(ns.counters(node).used_bytes.load());
  }
  stats.running = service.cluster.is_running(node);
  stats.frozen = service.cluster.is_frozen(node);
  stats.member = service.cluster.is_member(node);
  return stats;
}

}  // namespace aerokv::devserver
