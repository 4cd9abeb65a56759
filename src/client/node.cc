// SPDX-License-Identifier: Apache-2.0
#include "client/node.h"

#include <arpa/inet.h>
#include <netdb.h>
#include <netinet/in.h>

#include <algorithm>
#include <cstring>

#include "base/log.h"

namespace aerokv::client {
namespace {

// A node that only stumbled is back at once; one that is away is asked a few times a second, so
// that it is used again within a second of its return.
constexpr milliseconds kProbeAfter{5};
constexpr milliseconds kProbePauseFirst{20};
constexpr milliseconds kProbePauseMax{300};

}  // namespace

bool SocketAddress::is_loopback() const {
  if (storage.ss_family == AF_INET) {
    sockaddr_in v4{};
    std::memcpy(&v4, &storage, sizeof v4);
    return ntohl(v4.sin_addr.s_addr) >> 24 == 127;
  }
  sockaddr_in6 v6{};
  std::memcpy(&v6, &storage, sizeof v6);
  return IN6_IS_ADDR_LOOPBACK(&v6.sin6_addr) != 0;
}

bool SocketAddress::operator==(const SocketAddress& other) const {
  return length == other.length && std::memcmp(&storage, &other.storage, length) == 0;
}

Result<std::vector<SocketAddress>> resolve(const wire::Endpoint& endpoint) {
  addrinfo hints{};
  hints.ai_socktype = SOCK_STREAM;
  hints.ai_flags = AI_NUMERICSERV;
  addrinfo* list = nullptr;
  const std::string port = std::to_string(endpoint.port);
  const int error = ::getaddrinfo(endpoint.host.c_str(), port.c_str(), &hints, &list);
  if (error != 0) {
    return Status(Code::unavailable,
                  "resolve " + endpoint.to_string() + ": " + ::gai_strerror(error));
  }
  std::vector<SocketAddress> addresses;
  for (const addrinfo* item = list; item != nullptr; item = item->ai_next) {
    if (item->ai_addrlen > sizeof(sockaddr_storage)) continue;
    SocketAddress address;
    std::memcpy(&address.storage, item->ai_addr, item->ai_addrlen);
    address.length = item->ai_addrlen;
    addresses.push_back(address);
  }
  ::freeaddrinfo(list);
  if (addresses.empty()) {
    return Status(Code::unavailable, "resolve " + endpoint.to_string() + ": no address");
  }
  return addresses;
}

void Node::suspect(TimePoint now, const Status& why) {
  failures.fetch_add(1, std::memory_order_relaxed);
  // note_answer() looks here first.
  failures_in_a_row_.fetch_add(1, std::memory_order_relaxed);
  if (suspect_since_.exchange(std::max<int64_t>(1, now.time_since_epoch().count())) == 0) {
    probe_pause_.store(Duration(kProbePauseFirst).count());
    int64_t due = probe_due_.load();
    while (due != kProbing &&
           !probe_due_.compare_exchange_weak(due, (now + kProbeAfter).time_since_epoch().count())) {
    }
  }
  log(LogLevel::warning, "node failed:" + label(), [&] {
    return "node " + label() + " failed: " + why.message() +
           "; loads turn to its replicas, if there are any, until it answers again";
  });
}

void Node::note_failure(TimePoint now, Blame blame, const Status& why) {
  if (blame == Blame::none) return;
  if (blame == Blame::at_once || is_suspect() ||
      failures_in_a_row_.load(std::memory_order_relaxed) + 1 >= kFailuresToOpen) {
    return suspect(now, why);
  }
  failures.fetch_add(1, std::memory_order_relaxed);
  failures_in_a_row_.fetch_add(1, std::memory_order_relaxed);
}

bool Node::begin_probe(TimePoint now) {
  int64_t due = probe_due_.load();
  return is_suspect() && now.time_since_epoch().count() >= due &&
         probe_due_.compare_exchange_strong(due, kProbing);
}

void Node::end_probe(TimePoint now) {
  const int64_t pause = probe_pause_.load();
  probe_pause_.store(std::min<int64_t>(2 * pause, Duration(kProbePauseMax).count()));
  probe_due_.store(now.time_since_epoch().count() + pause);
}

void Node::clear_suspicion(TimePoint asked_at) {
  int64_t since = suspect_since_.load();
  // An answer to a question asked before the failure proves nothing about now.
  if (since != 0 && since <= asked_at.time_since_epoch().count()) {
    if (!suspect_since_.compare_exchange_strong(since, 0)) return;
    log(LogLevel::info, "node answers:" + label(), "node " + label() + " answers again");
  }
}

std::shared_ptr<const Session> Node::session() const {
  const std::scoped_lock lock(mutex_);
  return session_;
}

void Node::set_session(std::shared_ptr<const Session> session) {
  const std::scoped_lock lock(mutex_);
  session_ = std::move(session);
}

void Node::reject_session(const std::shared_ptr<const Session>& session) {
  const std::scoped_lock lock(mutex_);
  if (session_ == session) session_ = nullptr;
}

int ClusterMap::rack_of(const std::string& node) const {
  for (const auto& [name, rack] : racks) {
    if (name == node) return rack;
  }
  return -1;
}

namespace {

NodePtr any_node(const ClusterMap& map, uint32_t start) {
  NodePtr suspect;
  for (size_t i = 0; i < map.nodes.size(); ++i) {
    const NodePtr& node = map.nodes[(start + i) % map.nodes.size()];
    if (!node->is_active()) continue;
    if (!node->is_suspect()) return node;
    if (!suspect) suspect = node;
  }
  return suspect;
}

}  // namespace

NodePtr choose_node(const ClusterMap& map, const Routing& routing, uint32_t partition,
                    bool is_write, uint32_t attempt, uint32_t spread, const Node* last) {
  if (map.partitions.empty()) return any_node(map, spread + attempt);
  const Replicas& replicas = map.partitions[partition];
  if (is_write || routing.policy == ReplicaPolicy::master || map.strong_consistency) {
    if (replicas[0] && replicas[0]->is_active()) return replicas[0];
    return any_node(map, spread + attempt);
  }
  std::array<const NodePtr*, kReplicasMax> candidates{};
  size_t count = 0;
  const size_t copies = std::clamp<size_t>(map.replication_factor, 1, kReplicasMax);
  const size_t start = routing.policy == ReplicaPolicy::any ? spread % copies : 0;
  for (size_t i = 0; i < copies; ++i) {
    const NodePtr& node = replicas[(start + i) % copies];
    if (!node || !node->is_active()) continue;
    const bool known = std::any_of(candidates.begin(), candidates.begin() + count,
                                   [&](const NodePtr* c) { return *c == node; });
    if (!known) candidates[count++] = &node;
  }
  if (count == 0) return any_node(map, spread + attempt);
  const auto end = candidates.begin() + count;
  if (routing.policy == ReplicaPolicy::prefer_rack) {
    std::stable_partition(candidates.begin(), end, [&](const NodePtr* node) {
      return map.rack_of((*node)->name()) == routing.rack_id;
    });
  }
  std::stable_partition(candidates.begin(), end,
                        [](const NodePtr* node) { return !(*node)->is_suspect(); });
  // The failure itself may have moved `last` to the end, where the attempt number points now.
  const NodePtr* other = nullptr;
  for (size_t i = 0; last != nullptr && i < count; ++i) {
    const NodePtr* candidate = candidates[(attempt + i) % count];
    if (candidate->get() == last) continue;
    if (!(*candidate)->is_suspect()) return *candidate;
    if (other == nullptr) other = candidate;
  }
  return other != nullptr ? *other : *candidates[attempt % count];
}

std::vector<NodePtr> PartitionTable::claim(const NodePtr& node, const wire::ReplicaMap& claims) {
  std::vector<NodePtr> losers;
  // A node alone reports one copy; the number the namespace is meant to have stays known.
  replication_factor_ = std::max(replication_factor_, claims.replication_factor);
  if (claims.regime > 0) strong_consistency_ = true;
  for (size_t k = 0; k < claims.replicas.size(); ++k) {
    for (uint32_t p = 0; p < kPartitionCount; ++p) {
      if (!claims.replicas[k][p] || claims.regime < regimes_[p]) continue;
      regimes_[p] = claims.regime;
      NodePtr& slot = slots_[p][k];
      if (slot == node) continue;
      if (slot && std::find(losers.begin(), losers.end(), slot) == losers.end()) {
        losers.push_back(slot);
      }
      slot = node;
    }
  }
  return losers;
}

void PartitionTable::replace(const NodePtr& node, const NodePtr& successor) {
  for (Replicas& replicas : slots_) {
    for (NodePtr& slot : replicas) {
      if (slot == node) slot = successor;
    }
  }
}

bool PartitionTable::owns_any(const NodePtr& node) const {
  return std::any_of(slots_.begin(), slots_.end(), [&](const Replicas& replicas) {
    return std::find(replicas.begin(), replicas.end(), node) != replicas.end();
  });
}

}  // namespace aerokv::client
