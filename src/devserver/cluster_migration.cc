// SPDX-License-Identifier: Apache-2.0
// How data follow the map: one partition after the other.
#include "devserver/cluster.h"

namespace aerokv::devserver {
namespace {

bool has(NodeMask mask, int node) {
  return (mask & mask_of_node(node)) != 0;
}

}  // namespace

bool Cluster::migrate_one() {
  for (uint32_t i = 0; i < kPartitionCount; ++i) {
    const uint32_t partition = next_migration_;
    next_migration_ = (next_migration_ + 1) % kPartitionCount;
    if (is_settled(partition) || !migrate(partition)) continue;
    if (is_settled(partition)) --unsettled_;
    return true;
  }
  return false;
}

bool Cluster::migrate(uint32_t partition) {
  Partition& p = agreed_[partition];
  // Nothing moves from or to a node that cannot take part.
  int to = -1;
  for (const uint8_t node : p.replicas) {
    if (!has(p.full, node) && takes_part(node)) {
      to = node;
      break;
    }
  }
  if (!takes_part(p.acting) || (to < 0 && p.duplicate == kNobody)) return false;
  const NodeMask nodes = updatable();
  std::vector<View> before;
  for (int node = 0; node < nodes_; ++node) before.push_back(view(node, partition));

  {
    std::vector<std::unique_lock<std::mutex>> locks;
    for (Namespace& ns : *namespaces_) locks.emplace_back(ns.lock_of(partition));
    for (Namespace& ns : *namespaces_) {
      if (p.duplicate != kNobody) merge_partition(ns, partition, p.duplicate, p.acting);
      if (to >= 0) copy_partition(ns, partition, p.acting, to);
    }
    p.duplicate = kNobody;
    if (to >= 0) p.full |= mask_of_node(to);
    p.acting = p.replicas.front() == to ? static_cast<uint8_t>(to) : p.acting;
    NodeMask keeps = mask_of_node(p.acting);
    for (const uint8_t node : p.replicas) keeps |= mask_of_node(node);
    p.full &= keeps;
    publish(partition, nodes);
    if (is_settled(partition)) {
      for (Namespace& ns : *namespaces_) {
        for (int node = 0; node < nodes_; ++node) {
          if (has(members_, node) && !has(keeps, node)) ns.clear_partition(node, partition);
        }
      }
    }
  }
  for (int node = 0; node < nodes_; ++node) {
    if (!has(nodes, node)) continue;
    const bool claims_changed =
        before[static_cast<size_t>(node)].claims != view(node, partition).claims;
    if (claims_changed) ++records_[static_cast<size_t>(node)].partition_generation;
  }
  return true;
}

// Requires the partition's lock.
void Cluster::copy_partition(Namespace& ns, uint32_t partition, int from, int to) {
  ns.clear_partition(to, partition);
  for (const Record* record : ns.table(from, partition).records()) {
    ns.put_record(to, partition, std::make_unique<Record>(*record));
  }
}

// Requires the partition's lock. The higher generation wins, then the later write.
void Cluster::merge_partition(Namespace& ns, uint32_t partition, int from, int to) {
  for (const Record* record : ns.table(from, partition).records()) {
    ns.merge_record(*record, partition, to);
  }
}

}  // namespace aerokv::devserver
