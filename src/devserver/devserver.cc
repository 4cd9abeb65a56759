// SPDX-License-Identifier: Apache-2.0
#include "devserver/devserver.h"

#include <algorithm>
#include <atomic>
#include <thread>

#include "devserver/ports.h"
#include "devserver/service.h"
#include "devserver/setup.h"
#include "devserver/worker.h"

namespace aerokv::devserver {
namespace {

constexpr milliseconds kHousekeepingPause{200};

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
  Status restart_node(int node, milliseconds down);
  Status rolling_restart(milliseconds down, milliseconds timeout);
  Status remove_node(int node, milliseconds timeout);
  Status set_link(int node, uint64_t bytes_per_second);

  /// Calls `change` with the index of `node`, or of every node.
  template <typename Change>
  Status for_nodes(int node, Change change) {
    if (node != kAllNodes) AEROKV_TRY(check_node(node));
    const int first = node == kAllNodes ? 0 : node;
    const int last = node == kAllNodes ? service->options.all_nodes() - 1 : node;
    for (int i = first; i <= last; ++i) change(i);
    return {};
  }

  void request_stop(int node) override;
  void request_pause(int node) override;

  void accept_loop();
  void housekeeping_loop();
  void kill_sockets(int node);
  void thaw(int node);
  void finish_stop(int node);

  std::unique_ptr<Service> service;
  std::vector<std::unique_ptr<Worker>> workers;
  Ports ports;
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
  std::shared_ptr<TlsContext> tls;
  if (options.has_tls()) {
    auto made = TlsContext::server(options.tls.options, options.tls.client_certificates);
    if (!made) return made.error();
    tls = std::move(made).value();
  }
  AEROKV_TRY(ports.open(options));
  for (int node = 0; node < options.nodes; ++node) AEROKV_TRY(ports.listen(node));
  auto made_wake = make_event_fd();
  if (!made_wake) return made_wake.error();
  wake = std::move(made_wake).value();
  const int threads = options.threads;
  std::vector<NodeAddresses> addresses = ports.advertised(options);
  service = std::make_unique<Service>(std::move(options), std::move(addresses));
  service->tls = std::move(tls);
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
  ports.close();
}

void DevServer::Impl::accept_loop() {
  while (!stopping) {
    ports.await_clients(wake.get(), [this](UniqueFd client, int node, bool is_tls) {
      workers[next_worker++ % workers.size()]->adopt(std::move(client), node, is_tls);
    });
    clear_event_fd(wake.get());
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
  const int nodes = service->options.all_nodes();
  if (node >= 0 && node < nodes) return {};
  return {Code::invalid,
          "node " + std::to_string(node) + ": expected 0 to " + std::to_string(nodes - 1)};
}

// Refuses new clients and closes the connections of those that are there. The port stays ours.
void DevServer::Impl::kill_sockets(int node) {
  if (!ports.refuse(node)) return;
  signal_event_fd(wake.get());
  for (const auto& worker : workers) {
    Worker* w = worker.get();
    w->post_and_wait([w, node] { w->close_connections(node); });
  }
}

// Buries a node that the cluster counts as dead, unless it has been started again meanwhile.
void DevServer::Impl::finish_stop(int node) {
  const std::scoped_lock lock(control_mutex);
  if (service->cluster.is_running(node)) return;
  kill_sockets(node);
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
  kill_sockets(node);  // a death that a fault has asked for may not have been carried out yet
  for (Namespace& ns : service->namespaces) ns.clear_node(node);  // what came after its death
  service->cluster.start(node);
  AEROKV_TRY(ports.listen(node));
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
  thaw(node);
  return {};
}

// Lets the node's connections look again at what they were waiting for.
void DevServer::Impl::thaw(int node) {
  for (const auto& worker : workers) {
    Worker* w = worker.get();
    w->post([w, node] { w->thaw_connections(node); });
  }
}

Status DevServer::Impl::restart_node(int node, milliseconds down) {
  AEROKV_TRY(stop_node(node));
  std::this_thread::sleep_for(down);
  return start_node(node);
}

Status DevServer::Impl::rolling_restart(milliseconds down, milliseconds timeout) {
  for (int node = 0; node < service->options.all_nodes(); ++node) {
    if (!service->cluster.is_running(node)) continue;
    AEROKV_TRY(restart_node(node, down));
    AEROKV_TRY(service->cluster.await_settled(timeout));
  }
  return {};
}

Status DevServer::Impl::remove_node(int node, milliseconds timeout) {
  AEROKV_TRY(check_node(node));
  if (!service->cluster.has_others(node)) {
    return {Code::invalid, "remove node " + std::to_string(node) + ": no other is there"};
  }
  if (service->cluster.is_member(node)) {
    service->cluster.quiesce(node);
    AEROKV_TRY(service->cluster.await_settled(timeout));
  }
  return stop_node(node);
}

Status DevServer::Impl::set_link(int node, uint64_t bytes_per_second) {
  return for_nodes(node, [&](int one) {
    service->links_in[static_cast<size_t>(one)].set_speed(bytes_per_second);
    service->links_out[static_cast<size_t>(one)].set_speed(bytes_per_second);
    thaw(one);
  });
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
  const bool has_clear = impl_->service->options.clear_port;
  return impl_->ports.endpoints(has_clear ? AddressKind::clear : AddressKind::tls);
}
std::vector<Endpoint> DevServer::alternate_endpoints() const {
  return impl_->ports.endpoints(AddressKind::clear_alternate);
}
std::vector<Endpoint> DevServer::tls_endpoints() const {
  return impl_->ports.endpoints(AddressKind::tls);
}
std::vector<Endpoint> DevServer::alternate_tls_endpoints() const {
  return impl_->ports.endpoints(AddressKind::tls_alternate);
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

Status DevServer::restart_node(int node, std::chrono::milliseconds down) {
  return impl_->restart_node(node, down);
}
Status DevServer::rolling_restart(std::chrono::milliseconds down,
                                  std::chrono::milliseconds timeout) {
  return impl_->rolling_restart(down, timeout);
}
Status DevServer::remove_node(int node, std::chrono::milliseconds timeout) {
  return impl_->remove_node(node, timeout);
}
Status DevServer::set_link(int node, uint64_t bytes_per_second) {
  return impl_->set_link(node, bytes_per_second);
}
Status DevServer::set_latency(int node, std::chrono::microseconds latency) {
  if (latency.count() < 0) return {Code::invalid, "latency: expected 0 or more"};
  return impl_->for_nodes(
      node, [&](int one) { impl_->service->latencies[static_cast<size_t>(one)] = latency; });
}
Status DevServer::set_stop_writes(int node, bool on) {
  return impl_->for_nodes(node, [&](int one) {
    for (Namespace& ns : impl_->service->namespaces) ns.settings(one).stop_writes = on;
  });
}
Status DevServer::set_rack(int node, int rack) {
  AEROKV_TRY(impl_->check_node(node));
  if (!impl_->service->cluster.has_racks()) {
    return {Code::invalid, "set rack: the server was started without racks"};
  }
  impl_->service->cluster.set_rack(node, rack);
  return {};
}

Status DevServer::set_user(UserOptions user) {
  return impl_->service->users.set_user(std::move(user));
}
Status DevServer::drop_user(const std::string& name) {
  return impl_->service->users.drop_user(name);
}
void DevServer::expire_sessions() {
  impl_->service->users.expire_sessions();
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
