// SPDX-License-Identifier: Apache-2.0
// Who owns which partition, as each node sees it; what happens when nodes die, freeze and return.
//
// The model: `agreed_` is what the members have agreed on. Each node has a view of its own, which
// follows the agreement a little later, or not at all while the node is frozen. A node that is
// killed stays in the agreement until the others notice. A partition has final replicas, which
// follow from the ids of the members, and an acting master: the first in the succession that holds
// the data. Migration brings the data to the final replicas, one partition after the other.
#pragma once

#include <array>
#include <atomic>
#include <condition_variable>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <random>
#include <string>
#include <string_view>
#include <thread>
#include <unordered_map>
#include <vector>

#include "base/clock.h"
#include "devserver/devserver.h"
#include "devserver/storage.h"

namespace aerokv::devserver {

/// A set of nodes, one bit for each index.
using NodeMask = uint16_t;
constexpr NodeMask mask_of_node(int node) {
  return static_cast<NodeMask>(1U << node);
}

/// The addresses under which a node can be reached, by kind.
enum class AddressKind : uint8_t { clear, clear_alternate, tls, tls_alternate };
inline constexpr size_t kAddressKinds = 4;
using NodeAddresses = std::array<std::optional<Endpoint>, kAddressKinds>;

/// "host:port", with brackets around an IPv6 address.
std::string endpoint_text(const Endpoint& endpoint);

class Cluster {
 public:
  Cluster(const Options& options, std::vector<NodeAddresses> addresses);
  ~Cluster();

  /// Starts to follow events. The namespaces must outlive the cluster's thread.
  void start_clock(std::deque<Namespace>& namespaces);
  void stop_clock();

  /// All nodes, those that do not run included.
  [[nodiscard]] int size() const { return nodes_; }
  [[nodiscard]] const std::string& id(int node) const { return ids_[static_cast<size_t>(node)]; }

  [[nodiscard]] bool is_running(int node) const { return state(node).running.load(); }
  [[nodiscard]] bool is_frozen(int node) const {
    return state(node).frozen.load(std::memory_order_relaxed);
  }
  /// Has joined: answers clients with anything but code 11.
  [[nodiscard]] bool is_member(int node) const {
    return state(node).member.load(std::memory_order_relaxed);
  }
  /// Takes part in the requests of other nodes: running, not frozen, and known to the others.
  [[nodiscard]] bool takes_part(int node) const;
  /// Counts the lives of a node: a request that waits for a dead one must not go to the next life.
  [[nodiscard]] uint64_t life(int node) const { return state(node).life.load(); }

  /// The node that executes a request which node `asked` received.
  [[nodiscard]] int target(int asked, uint32_t partition, bool write) const;
  /// The nodes that get a copy of what is written at `node`.
  [[nodiscard]] NodeMask replicas(int node, uint32_t partition) const;
  /// A node whose copy may be newer than that of `node`, the acting master; -1 = none.
  [[nodiscard]] int duplicate(int node, uint32_t partition) const;
  /// True if `node` answers queries for the partition.
  [[nodiscard]] bool has_copy(int node, uint32_t partition) const;

  // Events of a node.
  void stop(int node);
  void start(int node);
  void pause(int node);
  void resume(int node);
  /// Takes the node's partitions away from it; a later start() gives them back.
  void quiesce(int node);
  void set_rack(int node, int rack);
  Status await_settled(std::chrono::milliseconds timeout);
  /// True if another running node is a member.
  [[nodiscard]] bool has_others(int node) const;

  // What info commands say about the cluster, as `node` sees it.
  [[nodiscard]] int64_t partition_generation(int node) const;
  [[nodiscard]] int64_t peers_generation(int node) const;
  [[nodiscard]] int64_t rebalance_generation(int node) const;
  /// Members that `node` knows, itself included; 0 before it has joined.
  [[nodiscard]] int cluster_size(int node) const;
  /// "generation,port,[peers]"; with `since` only what changed after that generation. Peers without
  /// an address of this kind are left out.
  [[nodiscard]] std::string peers(int node, std::optional<int64_t> since, AddressKind kind) const;
  /// The node's own address of this kind; empty = none.
  [[nodiscard]] std::string address(int node, AddressKind kind) const;
  [[nodiscard]] bool has_racks() const { return !racks_.empty(); }
  [[nodiscard]] int rack(int node) const;
  /// "rack_1=A,B:rack_2=C" of the members that `node` knows.
  [[nodiscard]] std::string racks(int node) const;
  /// Hex text of the current cluster key; empty while partitions wait for data, unless
  /// `ignore_migrations`, and while the cluster changes.
  [[nodiscard]] std::string stable_key(int node, bool ignore_migrations) const;
  [[nodiscard]] bool is_principal(int node) const { return principal() == node; }
  [[nodiscard]] std::string principal_id() const;
  /// Partitions that still have to come to or leave `node`.
  [[nodiscard]] uint64_t migrations_left(int node) const;
  /// Adds what "namespace/..." shows of the cluster.
  void add_statistics(Namespace& ns, int node,
                      std::unordered_map<std::string_view, std::string>& values) const;
  using Bitmap = std::array<uint8_t, kPartitionCount / 8>;
  /// The partitions for which `node` claims to be replica 0, 1, ...; at most `max` bitmaps.
  [[nodiscard]] std::vector<Bitmap> bitmaps(int node, int max) const;

 private:
  static constexpr uint8_t kNobody = 0xFF;

  /// One partition as one node sees it; fits into one atomic word.
  struct View {
    uint8_t acting = kNobody;     ///< acting master
    uint8_t duplicate = kNobody;  ///< another holder, perhaps with newer records
    NodeMask replicas = 0;        ///< final replicas
    NodeMask full = 0;            ///< holders of all data
    uint16_t claims = 0;          ///< bit k: this node claims to be replica k
  };

  struct State {
    std::atomic<bool> running{true};
    std::atomic<bool> frozen{false};
    std::atomic<bool> part{true};    // known to the others and able to serve them
    std::atomic<bool> member{true};  // serves clients
    std::atomic<uint64_t> life{1};
  };

  /// What a node tells about peers.
  struct Peers {
    struct Change {
      int64_t generation = 0;
      int node = 0;
      bool present = false;
    };
    NodeMask known = 0;
    int64_t generation = 0;
    std::vector<Change> changes;
  };

  /// Guarded by mutex_.
  struct NodeRecord {
    int64_t partition_generation = 0;
    int64_t rebalance_generation = 1;
    Peers peers;
    NodeMask seen_members = 0;
    bool changing = false;  // between two agreements
    std::string key;
  };

  /// What the members have agreed on about one partition.
  struct Partition {
    std::vector<uint8_t> replicas;  // final, in order
    uint8_t acting = kNobody;
    uint8_t duplicate = kNobody;
    NodeMask full = 0;
  };

  enum class EventKind : uint8_t { detect, join, rejoin, answer, peers_again, recluster };
  struct Event {
    TimePoint time;
    EventKind kind = EventKind::detect;
    int node = 0;
    uint64_t epoch = 0;  // of the node; an event of an older epoch is void
  };

  [[nodiscard]] State& state(int node) { return states_[static_cast<size_t>(node)]; }
  [[nodiscard]] const State& state(int node) const { return states_[static_cast<size_t>(node)]; }
  [[nodiscard]] std::atomic<uint64_t>& word(int node, uint32_t partition) const {
    return views_[static_cast<size_t>(node) * kPartitionCount + partition];
  }
  [[nodiscard]] View view(int node, uint32_t partition) const;
  [[nodiscard]] int principal() const;

  // All of these require mutex_.
  void run_clock();
  void schedule(TimePoint time, EventKind kind, int node);
  void handle(const Event& event);
  void detect(int node);
  void join(int node);
  [[nodiscard]] NodeMask take_joining(TimePoint now);
  void begin_rebalance(NodeMask members, NodeMask empty, NodeMask stale);
  void answer(int node);
  [[nodiscard]] std::vector<uint8_t> order_of(uint32_t partition, NodeMask members) const;
  void agree(uint32_t partition, NodeMask members, NodeMask empty, NodeMask stale);
  void change_some_maps();
  void end_rebalance();
  void publish(uint32_t partition, NodeMask nodes);
  [[nodiscard]] View view_for(int node, uint32_t partition) const;
  [[nodiscard]] NodeMask updatable() const;
  [[nodiscard]] bool is_settled(uint32_t partition) const;
  void set_peers(int node, NodeMask peers, int64_t generations);
  /// False if no partition can be moved now.
  bool migrate_one();
  bool migrate(uint32_t partition);
  void copy_partition(Namespace& ns, uint32_t partition, int from, int to);
  void merge_partition(Namespace& ns, uint32_t partition, int from, int to);
  [[nodiscard]] std::string new_key();

  const int nodes_;
  const int replication_;
  const ClusterTiming timing_;
  const std::vector<std::string> ids_;
  const std::vector<NodeAddresses> addresses_;
  const std::string tls_name_;
  const std::vector<std::vector<uint8_t>> succession_;
  std::unique_ptr<State[]> states_;
  std::unique_ptr<std::atomic<uint64_t>[]> views_;

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::deque<Namespace>* namespaces_ = nullptr;
  std::thread clock_;
  bool stopping_ = false;
  std::vector<NodeRecord> records_;
  std::vector<uint64_t> epochs_;
  std::vector<Event> events_;
  std::vector<Partition> agreed_;
  NodeMask members_ = 0;
  NodeMask newcomers_ = 0;  // joined in the rebalance under way
  NodeMask quiesced_ = 0;
  std::vector<int> racks_;  // of each node; the number of elements never changes
  std::string key_;
  std::mt19937_64 random_{0x5EED};
  bool rebalancing_ = false;
  uint32_t maps_changed_ = 0;  // partitions published in the rebalance under way
  TimePoint next_map_change_{};
  uint32_t next_migration_ = 0;
  uint64_t unsettled_ = 0;
  TimePoint migration_time_{};
};

}  // namespace aerokv::devserver
