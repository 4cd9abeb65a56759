// SPDX-License-Identifier: Apache-2.0
// What info commands show of the cluster.
#include <algorithm>
#include <bit>
#include <map>

#include "devserver/cluster.h"

namespace aerokv::devserver {
namespace {

// The port that a peer without one would have; every peer has one.
constexpr int kDefaultPort = 3000;

bool has(NodeMask mask, int node) {
  return (mask & mask_of_node(node)) != 0;
}

}  // namespace

std::string endpoint_text(const Endpoint& endpoint) {
  const bool is_v6 = endpoint.host.find(':') != std::string::npos;
  return (is_v6 ? "[" + endpoint.host + "]" : endpoint.host) + ":" + std::to_string(endpoint.port);
}

int64_t Cluster::partition_generation(int node) const {
  const std::scoped_lock lock(mutex_);
  return records_[static_cast<size_t>(node)].partition_generation;
}

int64_t Cluster::peers_generation(int node) const {
  const std::scoped_lock lock(mutex_);
  return records_[static_cast<size_t>(node)].peers.generation;
}

int64_t Cluster::rebalance_generation(int node) const {
  const std::scoped_lock lock(mutex_);
  return records_[static_cast<size_t>(node)].rebalance_generation;
}

int Cluster::cluster_size(int node) const {
  const std::scoped_lock lock(mutex_);
  return std::popcount(records_[static_cast<size_t>(node)].seen_members);
}

std::string Cluster::address(int node, AddressKind kind) const {
  const auto& endpoint = addresses_[static_cast<size_t>(node)][static_cast<size_t>(kind)];
  return endpoint ? endpoint_text(*endpoint) : std::string();
}

int Cluster::rack(int node) const {
  const std::scoped_lock lock(mutex_);
  return racks_.empty() ? 0 : racks_[static_cast<size_t>(node)];
}

std::string Cluster::racks(int node) const {
  const std::scoped_lock lock(mutex_);
  std::map<int, std::string> members;
  for (int other = 0; other < nodes_; ++other) {
    if (!has(records_[static_cast<size_t>(node)].seen_members, other)) continue;
    std::string& list = members[racks_[static_cast<size_t>(other)]];
    list += (list.empty() ? "" : ",") + id(other);
  }
  std::string text;
  for (const auto& [rack, list] : members) {
    text += (text.empty() ? "rack_" : ":rack_") + std::to_string(rack) + "=" + list;
  }
  return text;
}

std::string Cluster::peers(int node, std::optional<int64_t> since, AddressKind kind) const {
  const std::scoped_lock lock(mutex_);
  const Peers& p = records_[static_cast<size_t>(node)].peers;
  NodeMask present = p.known;
  NodeMask gone = 0;
  if (since) {
    present = 0;
    for (const Peers::Change& change : p.changes) {
      if (change.generation <= *since) continue;
      const NodeMask bit = mask_of_node(change.node);
      present = static_cast<NodeMask>(change.present ? present | bit : present & ~bit);
      gone = static_cast<NodeMask>(change.present ? gone & ~bit : gone | bit);
    }
  }
  const bool is_tls = kind == AddressKind::tls || kind == AddressKind::tls_alternate;
  std::string list;
  for (int other = 0; other < nodes_; ++other) {
    const std::string where = address(other, kind);
    if (where.empty() || (!has(present, other) && !has(gone, other))) continue;
    if (!list.empty()) list += ',';
    list += '[' + id(other) + ',' + (is_tls ? tls_name_ : std::string()) + ',';
    list += has(present, other) ? "[" + where + "]]" : "]";
  }
  return std::to_string(p.generation) + "," + std::to_string(kDefaultPort) + ",[" + list + "]";
}

std::string Cluster::stable_key(int node, bool ignore_migrations) const {
  const std::scoped_lock lock(mutex_);
  const NodeRecord& record = records_[static_cast<size_t>(node)];
  if (!is_member(node) || record.changing || rebalancing_) return {};
  return unsettled_ > 0 && !ignore_migrations ? std::string() : record.key;
}

std::string Cluster::principal_id() const {
  const int node = principal();
  return node < 0 ? "0" : id(node);
}

uint64_t Cluster::migrations_left(int node) const {
  const std::scoped_lock lock(mutex_);
  if (unsettled_ == 0) return 0;
  uint64_t left = 0;
  for (uint32_t partition = 0; partition < kPartitionCount; ++partition) {
    const Partition& p = agreed_[partition];
    const bool concerned = p.acting == node || std::find(p.replicas.begin(), p.replicas.end(),
                                                         node) != p.replicas.end();
    if (concerned && !is_settled(partition)) ++left;
  }
  return left;
}

void Cluster::add_statistics(Namespace& ns, int node,
                             std::unordered_map<std::string_view, std::string>& values) const {
  uint64_t master = 0;
  uint64_t prole = 0;
  uint64_t other = 0;
  for (uint32_t partition = 0; partition < kPartitionCount; ++partition) {
    uint64_t count = 0;
    {
      const std::scoped_lock lock(ns.lock_of(partition));
      count = ns.table(node, partition).size();
    }
    if (count == 0) continue;
    const View v = view(node, partition);
    if (nodes_ == 1 || v.acting == node) {
      master += count;
    } else if (has(v.replicas, node)) {
      prole += count;
    } else {
      other += count;
    }
  }
  const int members = cluster_size(node);
  values["objects"] = std::to_string(master + prole + other);
  values["master_objects"] = std::to_string(master);
  values["prole_objects"] = std::to_string(prole);
  values["non_replica_objects"] = std::to_string(other);
  values["ns_cluster_size"] = std::to_string(members);
  values["effective_replication_factor"] = std::to_string(std::min(members, replication_));
  values["replication-factor"] = std::to_string(replication_);
  values["migrate_tx_partitions_remaining"] = std::to_string(migrations_left(node));
}

std::vector<Cluster::Bitmap> Cluster::bitmaps(int node, int max) const {
  const int replicas = std::max(1, std::min(replication_, cluster_size(node)));
  std::vector<Bitmap> maps(static_cast<size_t>(std::min(max, replicas)), Bitmap{});
  for (uint32_t partition = 0; partition < kPartitionCount; ++partition) {
    const View v = view(node, partition);
    for (size_t k = 0; k < maps.size(); ++k) {
      if ((v.claims >> k & 1) == 0) continue;
      maps[k][partition >> 3] |= static_cast<uint8_t>(0x80U >> (partition & 7));
    }
  }
  return maps;
}

}  // namespace aerokv::devserver
