// SPDX-License-Identifier: Apache-2.0
#include "devserver/cluster.h"

namespace aerokv::devserver {

Cluster::Cluster(const Options& options, std::vector<Endpoint> endpoints)
    : nodes_(options.nodes),
      ids_(options.node_ids),
      endpoints_(std::move(endpoints)),
      states_(new State[static_cast<size_t>(nodes_)]) {}

bool Cluster::is_alive(int node) const {
  return is_running(node) && !is_frozen(node);
}

int Cluster::target(int asked, uint32_t partition, bool write) const {
  (void)partition;
  (void)write;
  return asked;
}

NodeList Cluster::replicas(int node, uint32_t partition) const {
  (void)node;
  (void)partition;
  return {};
}

bool Cluster::has_copy(int node, uint32_t partition) const {
  (void)node;
  (void)partition;
  return true;
}

void Cluster::stop(int node) {
  State& s = states_[static_cast<size_t>(node)];
  s.running = false;
  s.frozen = false;
}
void Cluster::start(int node) {
  State& s = states_[static_cast<size_t>(node)];
  ++s.life;
  s.running = true;
}
void Cluster::pause(int node) {
  states_[static_cast<size_t>(node)].frozen = true;
}
void Cluster::resume(int node) {
  states_[static_cast<size_t>(node)].frozen = false;
}
Status Cluster::await_settled(std::chrono::milliseconds) {
  return {};
}

int64_t Cluster::partition_generation(int) const {
  return 0;
}
int64_t Cluster::peers_generation(int) const {
  return 0;
}
int64_t Cluster::rebalance_generation(int) const {
  return 1;
}
int Cluster::cluster_size(int) const {
  return nodes_;
}
std::string Cluster::peers(int, std::optional<int64_t>, bool) const {
  return "0,3000,[]";
}
std::string Cluster::stable_key(int, bool) const {
  return "98A3286B687C";
}
bool Cluster::is_principal(int node) const {
  return node == nodes_ - 1;
}

std::string Cluster::principal_id() const {
  return ids_.back();
}
uint64_t Cluster::migrations_left(int) const {
  return 0;
}

void Cluster::add_statistics(Namespace& ns, int node,
                             std::unordered_map<std::string_view, std::string>& values) const {
  const std::string records = std::to_string(ns.counters(node).records.load());
  values["objects"] = records;
  values["master_objects"] = records;
}

std::vector<std::array<uint8_t, kPartitionCount / 8>> Cluster::bitmaps(int, int) const {
  std::vector<std::array<uint8_t, kPartitionCount / 8>> maps(1);
  maps[0].fill(0xFF);
  return maps;
}

}  // namespace aerokv::devserver
