// SPDX-License-Identifier: Apache-2.0
#include "bindings/store_totals.h"

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <map>
#include <mutex>
#include <utility>

namespace aerokv::bindings {
namespace {

void add(Histogram& to, const Histogram& from) {
  for (size_t i = 0; i < to.counts.size(); ++i) to.counts[i] += from.counts[i];
  to.sum += from.sum;
}

/// What belongs to a store alone.
void add_store(StoreStats& to, const StoreStats& from) {
  for (size_t i = 0; i < kOperations; ++i) {
    StoreStats::PerOperation& sum = to.operations[i];
    const StoreStats::PerOperation& one = from.operations[i];
    sum.items += one.items;
    sum.hits += one.hits;
    sum.misses += one.misses;
    sum.errors += one.errors;
    sum.bytes += one.bytes;
    sum.round_trips += one.round_trips;
    sum.in_flight += one.in_flight;
    for (size_t code = 0; code < kCodes; ++code) {
      sum.errors_by_code[code] += one.errors_by_code[code];
    }
    add(sum.batch_microseconds, one.batch_microseconds);
  }
  for (size_t i = 0; i < kMissReasons; ++i) to.misses_by_reason[i] += from.misses_by_reason[i];
  for (size_t i = 0; i < kShedReasons; ++i) {
    to.stores_shed_by_reason[i] += from.stores_shed_by_reason[i];
  }
  to.store_bytes_queued += from.store_bytes_queued;
  to.store_bytes_queued_peak = std::max(to.store_bytes_queued_peak, from.store_bytes_queued_peak);
  to.stop_writes += from.stop_writes;
  add(to.stored_segment_counts, from.stored_segment_counts);
  add(to.stored_segment_bytes, from.stored_segment_bytes);
  to.damaged_keys += from.damaged_keys;
}

/// What belongs to its engine.
void add_engine(StoreStats& to, const StoreStats& from) {
  to.requests += from.requests;
  to.retries += from.retries;
  to.stalls += from.stalls;
  to.hedges += from.hedges;
  to.hedges_won += from.hedges_won;
  to.probes += from.probes;
  to.connection_errors += from.connection_errors;
  to.bytes_in_flight += from.bytes_in_flight;
  to.bytes_in_flight_peak = std::max(to.bytes_in_flight_peak, from.bytes_in_flight_peak);
}

void add_nodes(std::vector<StoreStats::NodeStats>& to,
               const std::vector<StoreStats::NodeStats>& from) {
  for (const StoreStats::NodeStats& node : from) {
    const auto same = std::find_if(to.begin(), to.end(), [&node](const auto& other) {
      return other.name == node.name && other.address == node.address;
    });
    if (same == to.end()) {
      to.push_back(node);
      continue;
    }
    same->suspect |= node.suspect;
    same->probed |= node.probed;
    same->requests += node.requests;
    same->failures += node.failures;
    same->connections += node.connections;
    same->store_window_bytes += node.store_window_bytes;
  }
}

class Totals {
 public:
  /// Those of this process: after a fork the stores of the parent are not here, and the lock may
  /// be held for ever. Never destroyed: stores may end while the process does.
  static Totals& instance() {
    static std::atomic<Totals*> current = nullptr;
    Totals* found = current.load();
    while (found == nullptr || found->process_ != ::getpid()) {
      auto* fresh = new Totals;
      if (current.compare_exchange_strong(found, fresh)) return *fresh;
      delete fresh;
    }
    return *found;
  }

  void join(const Store* store) {
    const uint64_t engine = store->stats().engine;
    const std::scoped_lock lock(mutex_);
    stores_.emplace(store, engine);
  }

  /// Keeps what a closed store has counted.
  void leave(const Store* store) {
    const std::scoped_lock lock(mutex_);
    const auto found = stores_.find(store);
    if (found == stores_.end()) return;  // the parent's
    const uint64_t engine = found->second;
    stores_.erase(found);
    StoreStats last = store->stats();
    last.damaged_keys = last.store_bytes_queued = last.stop_writes = 0;
    add_store(left_, last);
    const bool is_used = std::any_of(stores_.begin(), stores_.end(), [engine](const auto& entry) {
      return entry.second == engine;
    });
    if (!is_used) add_engine(left_, last);
  }

  StoreTotals read() {
    StoreTotals out;
    // Held throughout: a store that leaves meanwhile must be seen once.
    const std::scoped_lock lock(mutex_);
    out.stats = left_;
    std::map<uint64_t, StoreStats> engines;
    for (const auto& [store, engine] : stores_) {
      StoreStats one = store->stats();
      add_store(out.stats, one);
      if (!one.nodes.empty()) ++out.open_stores;
      // A closed store no longer knows the nodes; another one of its engine may.
      StoreStats& last = engines[engine];
      if (last.engine == 0 || !one.nodes.empty()) last = std::move(one);
    }
    for (const auto& [engine, last] : engines) {
      add_engine(out.stats, last);
      add_nodes(out.stats.nodes, last.nodes);
      if (!last.nodes.empty()) ++out.open_engines;
    }
    return out;
  }

 private:
  const pid_t process_ = ::getpid();
  std::mutex mutex_;
  std::map<const Store*, uint64_t> stores_;  // guarded by mutex_: with their engines
  StoreStats left_;                          // guarded by mutex_: of stores that are gone
};

}  // namespace

std::shared_ptr<Store> count_in_totals(std::unique_ptr<Store> store) {
  Totals::instance().join(store.get());
  return {store.release(), [](Store* last) {
            const std::unique_ptr<Store> owned(last);
            owned->close();
            Totals::instance().leave(owned.get());
          }};
}

StoreTotals store_totals() {
  return Totals::instance().read();
}

}  // namespace aerokv::bindings
