// SPDX-License-Identifier: Apache-2.0
// Who belongs to the cluster: what the nodes say of each other, who is taken in and who is dropped.
#include <algorithm>

#include "base/limits.h"
#include "base/log.h"
#include "client/tend_contact.h"

namespace aerokv::client {
namespace {

// Addresses of former nodes that are kept, to find a cluster again whose seeds are all gone.
constexpr size_t kFormerMax = 64;
// Addresses of one node, those included that it had before.
constexpr size_t kEndpointsMax = 16;

template <typename List, typename Value>
bool contains(const List& list, const Value& value) {
  return std::find(list.begin(), list.end(), value) != list.end();
}

}  // namespace

bool Tender::any_healthy() const {
  return std::any_of(contacts_.begin(), contacts_.end(),
                     [](const auto& contact) { return contact->is_healthy(); });
}

/// True if another healthy node names it as its peer.
bool Tender::is_listed(const Contact& contact, const std::string& name) const {
  return std::any_of(contacts_.begin(), contacts_.end(), [&](const auto& other) {
    return other.get() != &contact && other->is_healthy() &&
           std::any_of(other->peers.begin(), other->peers.end(),
                       [&](const wire::Peer& peer) { return peer.node == name; });
  });
}

/// Whether what a node says of the map is what the cluster says. A node that is cut off believes
/// that it owns everything; one that goes on after a freeze believes in its old map. The others
/// do not list such a node, or it does not list them. Alone it speaks for itself.
bool Tender::counts(const Contact& contact) const {
  const bool has_others = std::any_of(contacts_.begin(), contacts_.end(), [&](const auto& other) {
    return other.get() != &contact && other->is_healthy() &&
           (!other->peers.empty() || table_.owns_any(other->node));
  });
  if (!has_others) return true;
  return !contact.peers.empty() && is_listed(contact, contact.node->name());
}

/// Nobody answers: back to where the cluster was found, and to where its nodes have been.
void Tender::reseed() {
  std::vector<wire::Endpoint> all = options_.seeds;
  all.insert(all.end(), former_.begin(), former_.end());
  for (const wire::Endpoint& seed : all) {
    const bool known = std::any_of(contacts_.begin(), contacts_.end(), [&](const auto& contact) {
      return contains(contact->endpoints, seed);
    });
    if (!known) add_contact({seed}, "", true);
  }
}

void Tender::add_contact(std::vector<wire::Endpoint> endpoints, std::string expected_node,
                         bool is_seed) {
  auto contact = std::make_unique<Contact>();
  contact->endpoints = std::move(endpoints);
  contact->expected_node = std::move(expected_node);
  contact->is_seed = is_seed;
  contacts_.push_back(std::move(contact));
}

/// Takes in whom a node names. A peer that is known and fails may be at another address now.
void Tender::take_peers(const Contact& contact) {
  const std::vector<wire::Peer> peers = contact.peers;  // contacts_ grows meanwhile
  for (const wire::Peer& peer : peers) {
    if (peer.endpoints.empty()) continue;
    const auto known = std::find_if(contacts_.begin(), contacts_.end(), [&](const auto& other) {
      return !other->removed && other->expected_node == peer.node;
    });
    if (known == contacts_.end()) {
      add_contact(peer.endpoints, peer.node, false);
      begin(*contacts_.back());
      continue;
    }
    Contact& other = **known;
    if (other.failures == 0) continue;
    std::vector<wire::Endpoint> endpoints = peer.endpoints;
    for (const wire::Endpoint& endpoint : other.endpoints) {
      if (!contains(endpoints, endpoint)) endpoints.push_back(endpoint);
    }
    endpoints.resize(std::min(endpoints.size(), kEndpointsMax));
    other.endpoints = std::move(endpoints);
  }
}

/// Makes the contact a node of this name; false if that ended the contact's turn.
bool Tender::adopt(Contact& contact, std::string_view name) {
  // A peer must be who the others say it is. A node known before may come back under a new name.
  const bool unexpected =
      !contact.node && !contact.expected_node.empty() && contact.expected_node != name;
  if (name.empty() || name.size() > kNodeNameBytesMax || unexpected) {
    fail(contact, {Code::protocol, "node name \"" + std::string(name.substr(0, 64)) +
                                       "\", expected \"" + contact.expected_node + "\""});
    return false;
  }
  if (contact.node && contact.node->name() == name &&
      contact.node->address() == contact.current.address) {
    return true;
  }
  for (const auto& other : contacts_) {
    const bool is_same =
        other.get() != &contact && !other->removed && other->node && other->node->name() == name;
    if (!is_same) continue;
    if (other->failures == 0) {  // two seeds that are one node
      contact.removed = true;
      contact.channel.close();
      contact.step = Contact::Step::done;
      return false;
    }
    other->removed = true;  // it answers here, not there
    other->channel.close();
    other->step = Contact::Step::done;
    if (!contact.node) contact.node = std::exchange(other->node, nullptr);
  }
  auto node =
      std::make_shared<Node>(std::string(name), contact.current.endpoint, contact.current.address);
  node->set_session(contact.session);
  replace_node(contact, std::move(node));
  return true;
}

void Tender::replace_node(Contact& contact, NodePtr node) {
  if (contact.node) {
    const bool has_moved = contact.node->name() == node->name();
    contact.node->deactivate();
    table_.replace(contact.node, has_moved ? node : nullptr);
    if (!has_moved) contact.is_seed = false;  // who is this?
  }
  contact.expected_node = node->name();
  contact.node = std::move(node);
  contact.seen_peers_generation.clear();
  contact.seen_partition_generation.clear();
  contact.peers.clear();
  contact.peers_known = false;
  changed_ = true;
}

bool Tender::has_left(const Contact& contact) const {
  if (contact.removed) return false;  // it is another contact now
  const bool failed = contact.failures > 0;
  if (!contact.node && contact.is_seed) return failed;
  if (is_listed(contact, contact.expected_node)) return false;
  if (failed) return true;
  // It answers, but belongs to nobody and has nothing.
  return contact.is_healthy() && !contact.is_busy() && contacts_.size() > 1 &&
         (contact.peers.empty() || !contact.is_seed) && !table_.owns_any(contact.node);
}

void Tender::drop_departed() {
  for (const auto& contact : contacts_) {
    const bool has_judge = std::any_of(contacts_.begin(), contacts_.end(), [&](const auto& other) {
      return other != contact && other->is_healthy();
    });
    // Nobody to ask: keep what is known, it may all come back.
    if (!has_judge || !has_left(*contact)) continue;
    contact->removed = true;
    if (!contact->node) continue;
    contact->node->deactivate();
    table_.drop(contact->node);
    changed_ = true;
    if (!contains(options_.seeds, contact->node->endpoint())) {
      std::erase(former_, contact->node->endpoint());
      former_.push_back(contact->node->endpoint());
      if (former_.size() > kFormerMax) former_.erase(former_.begin());
    }
    log(LogLevel::warning, "tend:dropped",
        "node " + contact->node->label() + " has left the cluster");
  }
  std::erase_if(contacts_, [](const auto& contact) { return contact->removed; });
}

}  // namespace aerokv::client
