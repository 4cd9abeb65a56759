// SPDX-License-Identifier: Apache-2.0
#include "devserver/service.h"

#include <algorithm>

namespace aerokv::devserver {
namespace {

size_t idle_bytes_max(const Options& options) {
  uint64_t total = 0;
  for (const NamespaceOptions& ns : options.namespaces) {
    total += ns.size_bytes * static_cast<uint64_t>(options.all_nodes());
  }
  return static_cast<size_t>(std::min<uint64_t>(total, 2ULL << 30));
}

size_t reserve_bytes(const Options& options) {
  return std::min(static_cast<size_t>(options.reserve_bytes), idle_bytes_max(options));
}

}  // namespace

Service::Service(Options o, std::vector<NodeAddresses> addresses)
    : options(std::move(o)),
      pool(idle_bytes_max(options), reserve_bytes(options)),
      cluster(options, std::move(addresses)),
      users(options.users, options.session_ttl, options.has_tls()),
      counters(static_cast<size_t>(options.all_nodes())),
      recent_tasks_(static_cast<size_t>(options.all_nodes())) {
  for (int node = 0; node < options.all_nodes(); ++node) {
    links_in.emplace_back(options.link_bytes_per_second);
    links_out.emplace_back(options.link_bytes_per_second);
    latencies.emplace_back(std::chrono::microseconds{0});
  }
  for (const NamespaceOptions& ns : options.namespaces) {
    namespaces.emplace_back(ns, options.all_nodes(), pool);
    last_nsup_.emplace_back(static_cast<size_t>(options.all_nodes()), started_);
  }
  cluster.start_clock(namespaces);
}

uint64_t Service::uptime_seconds() const {
  const auto up = SteadyClock::now() - started_;
  return static_cast<uint64_t>(std::chrono::duration_cast<std::chrono::seconds>(up).count());
}

void Service::wake_housekeeping() {
  const std::scoped_lock lock(housekeeping_mutex_);
  housekeeping_due_ = true;
  housekeeping_wanted_.notify_all();
}

void Service::await_housekeeping(std::chrono::milliseconds time) {
  std::unique_lock lock(housekeeping_mutex_);
  housekeeping_wanted_.wait_for(lock, time, [this] { return housekeeping_due_; });
  housekeeping_due_ = false;
}

void Service::housekeeping() {
  const TimePoint now = SteadyClock::now();
  size_t index = 0;
  for (Namespace& ns : namespaces) {
    std::vector<TimePoint>& last = last_nsup_[index++];
    const bool truncating = ns.truncating.exchange(false);
    for (int node = 0; node < options.all_nodes(); ++node) {
      TimePoint& last_run = last[static_cast<size_t>(node)];
      const std::chrono::seconds period(ns.settings(node).nsup_period_s.load());
      const bool expired = period.count() > 0 && now - last_run >= period;
      if (expired) last_run = now;
      if (expired || truncating) ns.reap(node, expired);
    }
  }
}

}  // namespace aerokv::devserver
