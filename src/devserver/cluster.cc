// SPDX-License-Identifier: Apache-2.0
#include "devserver/cluster.h"

#include <algorithm>
#include <bit>

#include "devserver/succession.h"

namespace aerokv::devserver {
namespace {

// A map changes in so many steps, between which clients see it half-changed.
constexpr uint32_t kMapSteps = 16;
// A newcomer answers so much later than the others list it, at most.
constexpr milliseconds kNewcomerLag{400};
// Nodes that start within this part of the time to join, join together.
constexpr int kJoinWindow = 8;
// Migrations that come late are made up for, up to this.
constexpr milliseconds kMigrationLag{20};
constexpr std::chrono::microseconds kMigrationMin{20};

bool has(NodeMask mask, int node) {
  return (mask & mask_of_node(node)) != 0;
}

NodeMask without(NodeMask mask, NodeMask other) {
  return static_cast<NodeMask>(mask & ~other);
}

}  // namespace

Cluster::Cluster(const Options& options, std::vector<NodeAddresses> addresses)
    : nodes_(options.all_nodes()),
      replication_(options.replication),
      timing_(options.timing),
      ids_(options.node_ids),
      addresses_(std::move(addresses)),
      tls_name_(options.tls.name),
      succession_(succession(ids_)),
      states_(new State[static_cast<size_t>(nodes_)]),
      views_(new std::atomic<uint64_t>[static_cast<size_t>(nodes_) * kPartitionCount]),
      records_(static_cast<size_t>(nodes_)),
      epochs_(static_cast<size_t>(nodes_), 0),
      agreed_(kPartitionCount),
      racks_(options.racks) {
  for (int node = 0; node < nodes_; ++node) {
    if (node < options.nodes) {
      members_ |= mask_of_node(node);
      continue;
    }
    State& s = state(node);  // a spare one
    s.running = s.part = s.member = false;
    for (uint32_t p = 0; p < kPartitionCount; ++p) word(node, p) = std::bit_cast<uint64_t>(View{});
  }
  key_ = new_key();
  for (uint32_t partition = 0; partition < kPartitionCount; ++partition) {
    agree(partition, members_, members_, 0);
    publish(partition, members_);
  }
  for (int node = 0; node < options.nodes; ++node) {
    NodeRecord& record = records_[static_cast<size_t>(node)];
    const NodeMask peers = without(members_, mask_of_node(node));
    if (peers != 0) set_peers(node, peers, 4);
    record.seen_members = members_;
    record.key = key_;
  }
}

Cluster::~Cluster() {
  stop_clock();
}

void Cluster::start_clock(std::deque<Namespace>& namespaces) {
  namespaces_ = &namespaces;
  clock_ = std::thread([this] { run_clock(); });
}

void Cluster::stop_clock() {
  if (!clock_.joinable()) return;
  {
    const std::scoped_lock lock(mutex_);
    stopping_ = true;
  }
  changed_.notify_all();
  clock_.join();
}

// ---- what requests ask

Cluster::View Cluster::view(int node, uint32_t partition) const {
  return std::bit_cast<View>(word(node, partition).load(std::memory_order_acquire));
}

bool Cluster::takes_part(int node) const {
  const State& s = state(node);
  return s.running.load(std::memory_order_relaxed) && !s.frozen.load(std::memory_order_relaxed) &&
         s.part.load(std::memory_order_relaxed);
}

int Cluster::target(int asked, uint32_t partition, bool write) const {
  if (nodes_ == 1) return 0;
  const View v = view(asked, partition);
  const bool reads_itself = !write && has(v.replicas, asked) && has(v.full, asked);
  return reads_itself || v.acting == kNobody ? asked : v.acting;
}

NodeMask Cluster::replicas(int node, uint32_t partition) const {
  if (nodes_ == 1) return 0;
  return without(view(node, partition).replicas, mask_of_node(node));
}

int Cluster::duplicate(int node, uint32_t partition) const {
  if (nodes_ == 1) return -1;
  const View v = view(node, partition);
  return v.acting == node && v.duplicate != kNobody ? v.duplicate : -1;
}

bool Cluster::has_copy(int node, uint32_t partition) const {
  if (nodes_ == 1) return true;
  const View v = view(node, partition);
  return v.acting == node || (has(v.replicas, node) && has(v.full, node));
}

// ---- events from outside

void Cluster::stop(int node) {
  const std::scoped_lock lock(mutex_);
  State& s = state(node);
  if (!s.running) return;
  s.running = false;
  s.frozen = false;
  s.part = false;
  s.member = false;
  ++epochs_[static_cast<size_t>(node)];
  schedule(SteadyClock::now() + timing_.detection, EventKind::detect, node);
}

void Cluster::start(int node) {
  const std::scoped_lock lock(mutex_);
  State& s = state(node);
  if (s.running) return;
  ++s.life;
  ++epochs_[static_cast<size_t>(node)];
  NodeRecord& record = records_[static_cast<size_t>(node)];
  record = NodeRecord{};
  record.partition_generation = -1;
  record.rebalance_generation = 0;
  for (uint32_t partition = 0; partition < kPartitionCount; ++partition) {
    word(node, partition).store(std::bit_cast<uint64_t>(View{}), std::memory_order_release);
  }
  s.running = true;
  quiesced_ = without(quiesced_, mask_of_node(node));
  // The others have to find out first that the node's former life has ended.
  const bool unnoticed = has(members_, node);
  schedule(SteadyClock::now() + timing_.join + (unnoticed ? timing_.join / 3 : milliseconds{0}),
           EventKind::join, node);
}

void Cluster::quiesce(int node) {
  const std::scoped_lock lock(mutex_);
  quiesced_ |= mask_of_node(node);
  schedule(SteadyClock::now(), EventKind::recluster, node);
}

void Cluster::set_rack(int node, int rack) {
  const std::scoped_lock lock(mutex_);
  racks_[static_cast<size_t>(node)] = rack;
  schedule(SteadyClock::now(), EventKind::recluster, node);
}

bool Cluster::has_others(int node) const {
  for (int other = 0; other < nodes_; ++other) {
    if (other != node && is_member(other) && takes_part(other)) return true;
  }
  return false;
}

void Cluster::pause(int node) {
  const std::scoped_lock lock(mutex_);
  State& s = state(node);
  if (!s.running || s.frozen) return;
  s.frozen = true;
  ++epochs_[static_cast<size_t>(node)];
  schedule(SteadyClock::now() + timing_.detection, EventKind::detect, node);
}

void Cluster::resume(int node) {
  const std::scoped_lock lock(mutex_);
  State& s = state(node);
  if (!s.frozen) return;
  s.frozen = false;
  ++epochs_[static_cast<size_t>(node)];
  const TimePoint now = SteadyClock::now();
  if (!s.member && !s.part) {
    schedule(now + timing_.join, EventKind::join, node);  // frozen before it had joined
  } else if (!s.member) {
    schedule(now, EventKind::answer, node);
  } else if (!has(members_, node)) {
    records_[static_cast<size_t>(node)].changing = true;
    schedule(now + timing_.resume, EventKind::rejoin, node);
  }
}

Status Cluster::await_settled(std::chrono::milliseconds timeout) {
  std::unique_lock lock(mutex_);
  const bool settled = changed_.wait_for(lock, timeout, [&] {
    if (rebalancing_ || unsettled_ > 0 || !events_.empty()) return false;
    for (int node = 0; node < nodes_; ++node) {
      if (state(node).running && !state(node).member) return false;
    }
    return true;
  });
  if (settled) return {};
  return {Code::timeout, "await settled: " + std::to_string(unsettled_) +
                             " partitions wait for data, " + std::to_string(events_.size()) +
                             " changes are to come"};
}

// ---- the clock

void Cluster::schedule(TimePoint time, EventKind kind, int node) {
  events_.push_back({time, kind, node, epochs_[static_cast<size_t>(node)]});
  changed_.notify_all();
}

void Cluster::run_clock() {
  std::unique_lock lock(mutex_);
  while (!stopping_) {
    const TimePoint now = SteadyClock::now();
    TimePoint next = now + std::chrono::hours(1);
    if (rebalancing_) {
      if (next_map_change_ <= now) change_some_maps();
      next = next_map_change_;
    } else {
      const auto due =
          std::min_element(events_.begin(), events_.end(),
                           [](const Event& a, const Event& b) { return a.time < b.time; });
      if (due != events_.end() && due->time <= now) {
        const Event event = *due;
        events_.erase(due);
        handle(event);
        changed_.notify_all();
        continue;
      }
      if (due != events_.end()) next = due->time;
      if (unsettled_ > 0) {
        if (migration_time_ <= now) {
          const bool moved = migrate_one();
          migration_time_ = std::max(migration_time_, now - kMigrationLag) +
                            std::max<Duration>(timing_.migration, kMigrationMin);
          if (!moved) migration_time_ = now + kMigrationLag;
        }
        next = std::min(next, migration_time_);
      }
    }
    if (!rebalancing_ && unsettled_ == 0) changed_.notify_all();
    if (next > SteadyClock::now()) changed_.wait_until(lock, next);
  }
}

void Cluster::handle(const Event& event) {
  const int node = event.node;
  if (event.epoch != epochs_[static_cast<size_t>(node)]) return;
  switch (event.kind) {
    case EventKind::detect:
      return detect(node);
    case EventKind::join:
    case EventKind::rejoin:
      return join(node);
    case EventKind::answer:
      return answer(node);
    case EventKind::recluster:
      if (has(members_, node)) begin_rebalance(members_, 0, 0);
      return;
    case EventKind::peers_again: {
      Peers& peers = records_[static_cast<size_t>(node)].peers;
      ++peers.generation;
      return;
    }
  }
}

// A newcomer begins to serve clients. Where all are newcomers, peers appear one by one: a node has
// those in its list that answer already.
void Cluster::answer(int node) {
  NodeRecord& record = records_[static_cast<size_t>(node)];
  if (state(node).frozen) return;
  record.partition_generation = 0;
  record.changing = false;
  state(node).member = true;
  NodeMask known = record.peers.known;
  for (int other = 0; other < nodes_; ++other) {
    if (other == node || !has(members_, other) || !state(other).member) continue;
    known |= mask_of_node(other);
    NodeRecord& others = records_[static_cast<size_t>(other)];
    if (state(other).frozen || has(others.peers.known, node)) continue;
    set_peers(other, static_cast<NodeMask>(others.peers.known | mask_of_node(node)), 1);
  }
  if (known != record.peers.known) set_peers(node, known, 1);
}

// The others leave a dead or frozen node out, if there are others.
void Cluster::detect(int node) {
  if (!has(members_, node)) return;
  const NodeMask left = without(members_, mask_of_node(node));
  bool anyone = false;
  for (int other = 0; other < nodes_; ++other) anyone |= has(left, other) && takes_part(other);
  if (anyone) return begin_rebalance(left, 0, 0);
  if (!state(node).running && left == 0) {
    members_ = 0;  // nobody is there to agree; the next to start begins alone
    return;
  }
  schedule(SteadyClock::now() + std::max(timing_.detection, milliseconds(10)), EventKind::detect,
           node);
}

void Cluster::join(int node) {
  if (!state(node).running || state(node).frozen) return;
  NodeMask members = members_;
  // Those that died and were not missed yet: found out now.
  for (int other = 0; other < nodes_; ++other) {
    if (has(members, other) && !state(other).part) members = without(members, mask_of_node(other));
  }
  if (state(node).member) {  // only frozen, never dead: it has its data
    members |= mask_of_node(node);
    return begin_rebalance(members, 0, mask_of_node(node));
  }
  const NodeMask joining = mask_of_node(node) | take_joining(SteadyClock::now());
  begin_rebalance(static_cast<NodeMask>(members | joining), joining, 0);
}

// Nodes that start at about the same time come together.
NodeMask Cluster::take_joining(TimePoint now) {
  NodeMask nodes = 0;
  std::erase_if(events_, [&](const Event& event) {
    const bool joins = event.kind == EventKind::join &&
                       event.epoch == epochs_[static_cast<size_t>(event.node)] &&
                       event.time <= now + timing_.join / kJoinWindow && state(event.node).running;
    if (joins) nodes |= mask_of_node(event.node);
    return joins;
  });
  return nodes;
}

// ---- agreement

std::string Cluster::new_key() {
  constexpr std::string_view kDigits = "0123456789ABCDEF";
  std::string key;
  const uint64_t number = random_();
  for (uint32_t shift = 0; shift < 48; shift += 4) key += kDigits[number >> shift & 0xF];
  return key;
}

// The order in which members own a partition: that of the succession, quiesced ones last. Racks
// bring a node forward where the rack of a replica is there already: it changes places with the
// first one behind the replicas whose rack is not.
std::vector<uint8_t> Cluster::order_of(uint32_t partition, NodeMask members) const {
  std::vector<uint8_t> order;
  for (const uint8_t node : succession_[partition]) {
    if (has(members, node)) order.push_back(node);
  }
  const auto serving = std::stable_partition(order.begin(), order.end(),
                                             [&](uint8_t n) { return !has(quiesced_, n); });
  if (racks_.empty()) return order;
  const auto count = static_cast<size_t>(serving - order.begin());
  const auto new_before = [&](size_t at, size_t end) {
    return std::none_of(order.begin(), order.begin() + static_cast<std::ptrdiff_t>(end),
                        [&](uint8_t n) { return racks_[n] == racks_[order[at]]; });
  };
  size_t racks = 0;
  for (size_t i = 0; i < count; ++i) racks += new_before(i, i) ? 1 : 0;
  const size_t wanted = std::min(racks, static_cast<size_t>(replication_));
  size_t next = wanted;
  for (size_t i = 1; i < wanted; ++i) {
    if (new_before(i, i)) continue;
    while (next < count && !new_before(next, i)) ++next;
    if (next == count) break;
    std::swap(order[i], order[next++]);
  }
  return order;
}

// `empty` nodes have no data at all, `stale` ones have what they had when they were left out.
void Cluster::agree(uint32_t partition, NodeMask members, NodeMask empty, NodeMask stale) {
  Partition& p = agreed_[partition];
  NodeMask full =
      without(static_cast<NodeMask>(p.full & members), static_cast<NodeMask>(empty | stale));
  const std::vector<uint8_t> order = order_of(partition, members);
  p.replicas.assign(order.begin(),
                    order.begin() + std::min<std::ptrdiff_t>(
                                        replication_, static_cast<std::ptrdiff_t>(order.size())));
  NodeMask replicas = 0;
  for (const uint8_t node : p.replicas) replicas |= mask_of_node(node);
  p.duplicate = kNobody;
  if (full == 0) {
    // The data are lost, or there never were any: everybody begins with what the first has.
    full = has(stale, order.front()) ? mask_of_node(order.front()) : replicas;
    p.acting = order.front();
  } else {
    p.acting = *std::find_if(order.begin(), order.end(), [&](uint8_t n) { return has(full, n); });
    if (has(stale, order.front())) {
      // The returned owner takes over at once, with its old data; the newer ones follow.
      p.duplicate = p.acting;
      p.acting = order.front();
      full = mask_of_node(p.acting);
    }
  }
  // Who gets no more writes does not stay complete.
  p.full = static_cast<NodeMask>(full & (replicas | mask_of_node(p.acting)));
}

void Cluster::begin_rebalance(NodeMask members, NodeMask empty, NodeMask stale) {
  rebalancing_ = true;
  newcomers_ = static_cast<NodeMask>(empty & members);
  members_ = members;
  key_ = new_key();
  maps_changed_ = 0;
  next_map_change_ = SteadyClock::now();
  for (uint32_t partition = 0; partition < kPartitionCount; ++partition) {
    agree(partition, members, empty, stale);
    // What a returned node holds of partitions that are not its own any more is of no use.
    for (int node = 0; node < nodes_ && stale != 0; ++node) {
      if (!has(stale, node) || agreed_[partition].acting == node) continue;
      for (Namespace& ns : *namespaces_) {
        const std::scoped_lock lock(ns.lock_of(partition));
        ns.clear_partition(node, partition);
      }
    }
  }
  for (int node = 0; node < nodes_; ++node) {
    if (!has(members, node)) continue;
    records_[static_cast<size_t>(node)].changing = true;
    if (has(newcomers_, node)) state(node).part = true;
  }
}

/// Members whose view follows the agreement. One that was restarted before the others noticed is
/// still a member by its former life, and follows nothing until it has joined again.
NodeMask Cluster::updatable() const {
  NodeMask nodes = 0;
  for (int node = 0; node < nodes_; ++node) {
    if (has(members_, node) && takes_part(node)) {
      nodes |= mask_of_node(node);
    }
  }
  return nodes;
}

void Cluster::change_some_maps() {
  const NodeMask nodes = updatable();
  constexpr uint32_t kStep = kPartitionCount / kMapSteps;
  for (uint32_t i = 0; i < kStep; ++i) publish(maps_changed_ + i, nodes);
  maps_changed_ += kStep;
  next_map_change_ += timing_.map_change / kMapSteps;
  if (maps_changed_ >= kPartitionCount) end_rebalance();
}

void Cluster::end_rebalance() {
  rebalancing_ = false;
  unsettled_ = 0;
  for (uint32_t partition = 0; partition < kPartitionCount; ++partition) {
    unsettled_ += is_settled(partition) ? 0 : 1;
  }
  next_migration_ = 0;
  const TimePoint now = SteadyClock::now();
  migration_time_ = now + timing_.migration;
  const milliseconds lag = std::min(kNewcomerLag, timing_.join / 5);
  const NodeMask nodes = updatable();
  // Without an old member they answer one by one, the last first.
  const bool cold = std::popcount(members_) > 1 && newcomers_ == members_;
  const milliseconds step = lag / std::max(1, std::popcount(newcomers_));
  milliseconds answers_after = cold ? milliseconds{0} : lag;
  for (int node = nodes_ - 1; node >= 0; --node) {
    if (!has(nodes, node)) continue;
    NodeRecord& record = records_[static_cast<size_t>(node)];
    ++record.rebalance_generation;
    record.seen_members = members_;
    record.key = key_;
    const NodeMask peers = without(members_, mask_of_node(node));
    if (!state(node).member) {
      if (cold) {
        record.peers.generation = 1;
      } else {
        set_peers(node, peers, std::popcount(peers) + 1);
      }
      schedule(now + answers_after, EventKind::answer, node);
      if (cold) answers_after += step;
      migration_time_ = std::max(migration_time_, now + lag);
      continue;
    }
    ++record.partition_generation;
    record.changing = false;
    set_peers(node, peers, 1);
    if (newcomers_ != 0) schedule(now + lag, EventKind::peers_again, node);
  }
}

// A slot whose replica waits for data is claimed by the acting master.
Cluster::View Cluster::view_for(int node, uint32_t partition) const {
  const Partition& p = agreed_[partition];
  View v;
  v.acting = p.acting;
  v.duplicate = p.duplicate;
  v.full = p.full;
  for (size_t k = 0; k < p.replicas.size(); ++k) {
    v.replicas |= mask_of_node(p.replicas[k]);
    const uint8_t claimer = k > 0 && has(p.full, p.replicas[k]) ? p.replicas[k] : p.acting;
    if (claimer == node) v.claims |= static_cast<uint16_t>(1U << k);
  }
  return v;
}

void Cluster::publish(uint32_t partition, NodeMask nodes) {
  for (int node = 0; node < nodes_; ++node) {
    if (!has(nodes, node)) continue;
    word(node, partition)
        .store(std::bit_cast<uint64_t>(view_for(node, partition)), std::memory_order_release);
  }
}

bool Cluster::is_settled(uint32_t partition) const {
  const Partition& p = agreed_[partition];
  if (p.replicas.empty() || p.duplicate != kNobody) return p.replicas.empty();
  return p.acting == p.replicas.front() &&
         std::all_of(p.replicas.begin(), p.replicas.end(),
                     [&](uint8_t node) { return has(p.full, node); });
}

// ---- peers

void Cluster::set_peers(int node, NodeMask peers, int64_t generations) {
  Peers& p = records_[static_cast<size_t>(node)].peers;
  if (peers == 0 && p.known == 0) return;
  p.generation += generations;
  for (int other = 0; other < nodes_; ++other) {
    if (has(peers, other) == has(p.known, other)) continue;
    p.changes.push_back({p.generation, other, has(peers, other)});
  }
  p.known = peers;
}

int Cluster::principal() const {
  int best = -1;
  for (int node = 0; node < nodes_; ++node) {
    if (!takes_part(node)) continue;
    const auto longer = [](const std::string& a, const std::string& b) {
      return a.size() != b.size() ? a.size() > b.size() : a > b;
    };
    if (best < 0 || longer(id(node), id(best))) best = node;
  }
  return best;
}

}  // namespace aerokv::devserver
