// SPDX-License-Identifier: Apache-2.0
// Who owns which partition, as each node sees it.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <unordered_map>
#include <vector>

#include "devserver/devserver.h"
#include "devserver/storage.h"

namespace aerokv::devserver {

/// A few node indexes.
struct NodeList {
  std::array<uint8_t, kNodesMax> nodes{};
  uint8_t count = 0;

  void add(int node) { nodes[count++] = static_cast<uint8_t>(node); }
  [[nodiscard]] bool contains(int node) const {
    for (uint8_t i = 0; i < count; ++i) {
      if (nodes[i] == node) return true;
    }
    return false;
  }
};

class Cluster {
 public:
  Cluster(const Options& options, std::vector<Endpoint> endpoints);

  [[nodiscard]] int size() const { return nodes_; }
  [[nodiscard]] const std::string& id(int node) const { return ids_[static_cast<size_t>(node)]; }

  /// Running and not frozen.
  [[nodiscard]] bool is_alive(int node) const;
  [[nodiscard]] bool is_running(int node) const { return state(node).running.load(); }
  [[nodiscard]] bool is_frozen(int node) const {
    return state(node).frozen.load(std::memory_order_relaxed);
  }
  /// Has joined: answers anything but code 11.
  [[nodiscard]] bool is_member(int node) const {
    return state(node).member.load(std::memory_order_relaxed);
  }
  /// Counts the lives of a node: a request that waits for a dead one must not go to the next life.
  [[nodiscard]] uint64_t life(int node) const { return state(node).life.load(); }

  /// The node that executes a request which node `asked` received.
  [[nodiscard]] int target(int asked, uint32_t partition, bool write) const;
  /// The nodes that get a copy of what is written at `node`.
  [[nodiscard]] NodeList replicas(int node, uint32_t partition) const;
  /// True if `node` answers queries for the partition.
  [[nodiscard]] bool has_copy(int node, uint32_t partition) const;

  // Events of a node.
  void stop(int node);
  void start(int node);
  void pause(int node);
  void resume(int node);
  Status await_settled(std::chrono::milliseconds timeout);

  // What info commands say about the cluster, as `node` sees it.
  [[nodiscard]] int64_t partition_generation(int node) const;
  [[nodiscard]] int64_t peers_generation(int node) const;
  [[nodiscard]] int64_t rebalance_generation(int node) const;
  /// Members that `node` knows, itself included; 0 before it has joined.
  [[nodiscard]] int cluster_size(int node) const;
  /// "generation,port,[peers]"; with `since` only what changed after that generation.
  [[nodiscard]] std::string peers(int node, std::optional<int64_t> since, bool alternate) const;
  /// Hex text of the current cluster key; empty while partitions wait for data, unless
  /// `ignore_migrations`.
  [[nodiscard]] std::string stable_key(int node, bool ignore_migrations) const;
  [[nodiscard]] bool is_principal(int node) const;
  [[nodiscard]] std::string principal_id() const;
  /// Partitions that still have to come to or leave `node`.
  [[nodiscard]] uint64_t migrations_left(int node) const;
  /// Adds what "namespace/..." shows of the cluster.
  void add_statistics(Namespace& ns, int node,
                      std::unordered_map<std::string_view, std::string>& values) const;
  /// The bitmaps of the partitions for which `node` is replica 0, 1, ...; at most `max`.
  [[nodiscard]] std::vector<std::array<uint8_t, kPartitionCount / 8>> bitmaps(int node,
                                                                              int max) const;

 private:
  struct State {
    std::atomic<bool> running{true};
    std::atomic<bool> frozen{false};
    std::atomic<bool> member{true};
    std::atomic<uint64_t> life{1};
  };
  [[nodiscard]] const State& state(int node) const { return states_[static_cast<size_t>(node)]; }

  const int nodes_;
  const std::vector<std::string> ids_;
  const std::vector<Endpoint> endpoints_;
  std::unique_ptr<State[]> states_;
};

}  // namespace aerokv::devserver
