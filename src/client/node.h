// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/socket.h>

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/limits.h"
#include "client/faults.h"
#include "client/options.h"
#include "client/store_window.h"
#include "wire/info.h"

namespace aerokv::client {

/// A resolved address.
struct SocketAddress {
  sockaddr_storage storage{};
  socklen_t length = 0;

  [[nodiscard]] bool is_loopback() const;
  bool operator==(const SocketAddress& other) const;
};

/// Resolves a name or a numeric address. Blocks on the resolver for names only.
/// Errors: unavailable.
Result<std::vector<SocketAddress>> resolve(const wire::Endpoint& endpoint);

/// Token of a login; every further connection of the node presents it.
struct Session {
  std::vector<std::byte> token;
  TimePoint expires_at{};
};

/// One server process. Identity and address never change: a node that comes back at another
/// address is another object. Thread-safe.
class Node {
 public:
  Node(std::string name, wire::Endpoint endpoint, const SocketAddress& address)
      : name_(std::move(name)), endpoint_(std::move(endpoint)), address_(address) {}

  [[nodiscard]] const std::string& name() const { return name_; }
  [[nodiscard]] const wire::Endpoint& endpoint() const { return endpoint_; }
  [[nodiscard]] const SocketAddress& address() const { return address_; }
  [[nodiscard]] std::string label() const { return name_ + " (" + endpoint_.to_string() + ")"; }

  /// A suspect did not answer or refused connections: its circuit breaker is open. Reads avoid it
  /// while another replica is there, writes wait; any answer ends it, and probes ask for one.
  [[nodiscard]] bool is_suspect() const { return suspect_since_.load() != 0; }
  void suspect(TimePoint now, const Status& why);
  /// Clears the suspicion unless it is younger than `asked_at`, when the answer was asked for.
  void clear_suspicion(TimePoint asked_at);

  /// An attempt failed; `blame` says what that makes of the node.
  void note_failure(TimePoint now, Blame blame, const Status& why);
  /// The node did what it was asked for at `asked_at`.
  void note_answer(TimePoint asked_at) {
    if (failures_in_a_row_.load(std::memory_order_relaxed) == 0) return;
    clear_suspicion(asked_at);
    if (!is_suspect()) failures_in_a_row_.store(0, std::memory_order_relaxed);
  }

  /// True if a suspect is to be asked whether it works again: then the caller does so and calls
  /// end_probe(). One at a time, at growing intervals.
  bool begin_probe(TimePoint now);
  void end_probe(TimePoint now);
  /// A probe is under way.
  [[nodiscard]] bool is_probed() const { return probe_due_.load() == kProbing; }

  /// Something was received from the node, on any connection of any thread.
  void note_progress(TimePoint now) {
    last_progress_.store(now.time_since_epoch().count(), std::memory_order_relaxed);
  }
  /// How long ago that was.
  [[nodiscard]] Duration silence(TimePoint now) const {
    return now - TimePoint(Duration(last_progress_.load(std::memory_order_relaxed)));
  }

  /// False once the cluster has dropped the node; it is never used again.
  [[nodiscard]] bool is_active() const { return active_.load(); }
  void deactivate() { active_.store(false); }

  [[nodiscard]] std::shared_ptr<const Session> session() const;
  void set_session(std::shared_ptr<const Session> session);
  /// The server no longer takes this session: a new login is due at the next tend.
  void reject_session(const std::shared_ptr<const Session>& session);

  /// The stores under way to it.
  StoreWindow stores;

  // Statistics; relaxed counters.
  std::atomic<uint64_t> requests{0};
  std::atomic<uint64_t> failures{0};
  std::atomic<uint64_t> bytes_received{0};
  std::atomic<uint64_t> connections_opened{0};
  std::atomic<int64_t> connections_open{0};

 private:
  static constexpr int64_t kProbing = INT64_MAX;

  const std::string name_;
  const wire::Endpoint endpoint_;
  const SocketAddress address_;
  std::atomic<int64_t> suspect_since_{0};  // ticks of the steady clock, 0 = healthy
  std::atomic<uint32_t> failures_in_a_row_{0};
  std::atomic<int64_t> probe_due_{0};      // ticks of the steady clock, or kProbing
  std::atomic<int64_t> probe_pause_{0};    // ticks, until the next but one
  std::atomic<int64_t> last_progress_{0};  // ticks of the steady clock
  std::atomic<bool> active_{true};
  mutable std::mutex mutex_;
  std::shared_ptr<const Session> session_;  // guarded by mutex_
};

using NodePtr = std::shared_ptr<Node>;

/// Owners of one partition: [0] is the master. Slots may be empty, and during a migration two
/// slots may name the same node.
using Replicas = std::array<NodePtr, kReplicasMax>;

/// A state of the cluster as one tend saw it. Immutable once published.
struct ClusterMap {
  uint64_t version = 0;
  std::vector<NodePtr> nodes;
  std::vector<Replicas> partitions;  ///< empty until the namespace was seen
  uint32_t replication_factor = 0;
  bool strong_consistency = false;
  std::vector<std::pair<std::string, int>> racks;  ///< node name, rack id

  [[nodiscard]] int rack_of(const std::string& node) const;
};

/// How a request picks its node.
struct Routing {
  ReplicaPolicy policy = ReplicaPolicy::sequence;
  int rack_id = -1;
};

/// The node for attempt number `attempt` (0 = first) of a request, or null if no node is known.
///
/// Writes: the master, else any node (it passes the request on). Reads: the distinct active
/// replicas in the order of the policy, suspects last; attempt n takes the n-th, wrapping around.
/// `spread` starts the policy `any` (and nodes that only pass on) at different nodes. A read that
/// was tried before goes to a healthy replica other than `last`, if there is one.
NodePtr choose_node(const ClusterMap& map, const Routing& routing, uint32_t partition,
                    bool is_write, uint32_t attempt, uint32_t spread, const Node* last = nullptr);

/// Builds the next map from what nodes claim. Owned by the tend thread; pure.
class PartitionTable {
 public:
  PartitionTable() : slots_(kPartitionCount) {}

  /// Takes the claims of `node`. A set bit takes its slot; clear bits change nothing, and an older
  /// regime is ignored. Returns the nodes that lost a slot to this one: their maps must be read
  /// again. Source: cluster recordings, facts 4 to 9.
  std::vector<NodePtr> claim(const NodePtr& node, const wire::ReplicaMap& claims);

  /// Empties the slots of a node that left.
  void drop(const NodePtr& node) { replace(node, nullptr); }
  /// The node goes on as another object: it has another address now.
  void replace(const NodePtr& node, const NodePtr& successor);

  [[nodiscard]] bool owns_any(const NodePtr& node) const;
  [[nodiscard]] const std::vector<Replicas>& slots() const { return slots_; }
  [[nodiscard]] uint32_t replication_factor() const { return replication_factor_; }
  [[nodiscard]] bool strong_consistency() const { return strong_consistency_; }

 private:
  std::vector<Replicas> slots_;
  std::vector<uint32_t> regimes_ = std::vector<uint32_t>(kPartitionCount, 0);
  uint32_t replication_factor_ = 0;
  bool strong_consistency_ = false;
};

}  // namespace aerokv::client
