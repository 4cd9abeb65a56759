// SPDX-License-Identifier: Apache-2.0
// The steps of one contact in a tend round: login, identity, generations, peers, map, racks.
#include "client/tend_contact.h"

#include <algorithm>
#include <charconv>

#include "wire/request.h"
#include "wire/result.h"
#include "wire/security.h"

namespace aerokv::client {
namespace {

// A session is renewed this long before the server ends it.
constexpr std::chrono::seconds kSessionMargin{60};

// "8.1.2.0" >= 8.1: such servers take the user agent.
bool takes_user_agent(std::string_view build) {
  int major = 0;
  int minor = 0;
  const char* const begin = build.data();
  const char* const end = begin + build.size();
  const auto [dot, error] = std::from_chars(begin, end, major);
  if (error != std::errc() || dot == end || *dot != '.') return false;
  if (std::from_chars(dot + 1, end, minor).ec != std::errc()) return false;
  return major > 8 || (major == 8 && minor >= 1);
}

}  // namespace

void Tender::ask(Contact& contact, std::initializer_list<std::string_view> commands) {
  std::vector<std::byte> frame;
  const std::span<const std::string_view> list(commands.begin(), commands.size());
  if (Status status = wire::encode_info(list, frame); !status) return fail(contact, status);
  contact.channel.request(wire::ReplyKind::info, std::move(frame));
}

void Tender::ask_identity(Contact& contact) {
  contact.step = Contact::Step::identity;
  if (options_.cluster_name.empty()) {
    ask(contact, {"node", "partition-generation", "build"});
  } else {
    ask(contact, {"node", "partition-generation", "build", "cluster-name"});
  }
}

void Tender::proceed(Contact& contact) {
  switch (contact.channel.advance()) {
    case InfoChannel::Progress::pending:
      return;
    case InfoChannel::Progress::failed:
      return fail(contact, contact.channel.error());
    case InfoChannel::Progress::answered:
      break;
  }
  switch (contact.step) {
    case Contact::Step::login:
      return on_login(contact);
    case Contact::Step::identity:
      return on_identity(contact);
    case Contact::Step::user_agent:  // an error answer is tolerated
      contact.step = Contact::Step::generations;
      return ask(contact, {"node", "peers-generation", "partition-generation"});
    case Contact::Step::generations:
      return on_generations(contact);
    case Contact::Step::peers:
      return on_peers(contact);
    case Contact::Step::replicas:
      return on_replicas(contact);
    case Contact::Step::racks:
      return on_racks(contact);
    default:
      return;
  }
}

void Tender::on_login(Contact& contact) {
  Result<wire::SecurityAnswer> answer = wire::decode_security_answer(contact.channel.answer());
  if (!answer) return fail(contact, answer.error());
  auto session = std::make_shared<Session>();
  session->expires_at = TimePoint::max();
  if (answer->result_code != wire::result::kSecurityNotEnabled) {
    if (answer->result_code != wire::result::kOk) {
      return fail(contact, wire::status_from_result(answer->result_code, "login"));
    }
    session->token = std::move(answer->token);
    if (answer->session_ttl_seconds > 0) {
      const std::chrono::seconds ttl(answer->session_ttl_seconds);
      // Short sessions (tests, strict sites) are renewed at half their life.
      session->expires_at = SteadyClock::now() + std::max(ttl - kSessionMargin, ttl / 2);
    }
  }
  if (contact.node) contact.node->set_session(session);
  contact.session = std::move(session);
  ask_identity(contact);
}

void Tender::on_identity(Contact& contact) {
  const auto items = wire::parse_info(as_text(contact.channel.answer()));
  Result<std::string_view> name = wire::find_info(items, "node");
  Result<std::string_view> generation = wire::find_info(items, "partition-generation");
  Result<std::string_view> build = wire::find_info(items, "build");
  for (const auto* item : {&name, &generation, &build}) {
    if (!*item) return fail(contact, item->error());
  }
  if (!options_.cluster_name.empty()) {
    Result<std::string_view> cluster = wire::find_info(items, "cluster-name");
    if (!cluster) return fail(contact, cluster.error());
    if (*cluster != options_.cluster_name) {
      return fail(contact, {Code::denied, "cluster name \"" + std::string(*cluster) +
                                              "\", expected \"" + options_.cluster_name + "\""});
    }
  }
  if (*generation == "-1") {
    return fail(contact, {Code::unavailable,
                          "node " + std::string(*name) + " has not joined its cluster yet"});
  }
  if (!adopt(contact, *name)) return;
  if (takes_user_agent(*build)) {
    contact.step = Contact::Step::user_agent;
    return ask(contact, {user_agent_});
  }
  contact.step = Contact::Step::generations;
  ask(contact, {"node", "peers-generation", "partition-generation"});
}

/// Makes the contact a node of this name; false if that ended the contact.
bool Tender::adopt(Contact& contact, std::string_view name) {
  // A peer must be who the others say it is. A node known before may come back under a new name.
  const bool unexpected =
      !contact.node && !contact.expected_node.empty() && contact.expected_node != name;
  if (name.empty() || name.size() > kNodeNameBytesMax || unexpected) {
    fail(contact, {Code::protocol, "node name \"" + std::string(name.substr(0, 64)) +
                                       "\", expected \"" + contact.expected_node + "\""});
    return false;
  }
  if (contact.node && contact.node->name() == name) return true;
  const bool duplicate = std::any_of(contacts_.begin(), contacts_.end(), [&](const auto& other) {
    return other.get() != &contact && !other->removed && other->node &&
           other->node->name() == name && other->step != Contact::Step::failed;
  });
  if (duplicate) {  // two seeds that are one node
    contact.removed = true;
    contact.channel.close();
    contact.step = Contact::Step::done;
    return false;
  }
  if (contact.node) {
    contact.node->deactivate();
    table_.drop(contact.node);
  }
  const wire::Endpoint& endpoint =
      contact.endpoints[contact.endpoint_index % contact.endpoints.size()];
  contact.node = std::make_shared<Node>(std::string(name), endpoint, contact.address);
  contact.node->set_session(contact.session);
  contact.seen_peers_generation.clear();
  contact.seen_partition_generation.clear();
  contact.expected_node = name;
  changed_ = true;
  return true;
}

void Tender::on_generations(Contact& contact) {
  const auto items = wire::parse_info(as_text(contact.channel.answer()));
  Result<std::string_view> name = wire::find_info(items, "node");
  Result<std::string_view> peers = wire::find_info(items, "peers-generation");
  Result<std::string_view> partitions = wire::find_info(items, "partition-generation");
  for (const auto* item : {&name, &peers, &partitions}) {
    if (!*item) return fail(contact, item->error());
  }
  if (*name != contact.node->name()) {
    return fail(contact, {Code::unavailable,
                          "node name changed to \"" + std::string(name->substr(0, 64)) + "\""});
  }
  if (*partitions == "-1") {
    return fail(contact, {Code::unavailable, "node has not joined its cluster yet"});
  }
  contact.answered = true;
  contact.peers_generation = *peers;
  contact.partition_generation = *partitions;
  if (contact.failures > 0) {  // it was away: nothing it said before counts
    contact.seen_peers_generation.clear();
    contact.seen_partition_generation.clear();
    refresh_all_peers_ = true;
  }
  contact.failures = 0;
  contact.node->clear_suspicion(contact.asked_at);
  ask_next(contact);
}

void Tender::ask_next(Contact& contact) {
  if (!contact.peers_read &&
      (refresh_all_peers_ || contact.seen_peers_generation != contact.peers_generation)) {
    contact.step = Contact::Step::peers;
    return ask(contact, {options_.use_alternate_addresses ? "peers-clear-alt" : "peers-clear-std"});
  }
  // An isolated node believes that it owns everything: its map counts only if it has peers, or if
  // nobody else has peers or partitions.
  const bool is_alone =
      contact.peers.empty() &&
      std::any_of(contacts_.begin(), contacts_.end(), [&](const auto& other) {
        return other.get() != &contact && other->answered && !other->removed &&
               (!other->peers.empty() || (other->node && table_.owns_any(other->node)));
      });
  if (!contact.replicas_read && !is_alone &&
      contact.seen_partition_generation != contact.partition_generation) {
    contact.step = Contact::Step::replicas;
    return ask(contact, {"partition-generation", "replicas"});
  }
  if (options_.replica == ReplicaPolicy::prefer_rack &&
      contact.seen_rebalance_generation != contact.partition_generation) {
    contact.step = Contact::Step::racks;
    contact.seen_rebalance_generation = contact.partition_generation;
    return ask(contact, {"rebalance-generation", "rack-ids"});
  }
  contact.step = Contact::Step::done;
}

void Tender::on_peers(Contact& contact) {
  const auto items = wire::parse_info(as_text(contact.channel.answer()));
  Result<std::string_view> text = wire::find_info(
      items, options_.use_alternate_addresses ? "peers-clear-alt" : "peers-clear-std");
  if (!text) return fail(contact, text.error());
  Result<wire::Peers> peers = wire::parse_peers(*text);
  if (!peers) return fail(contact, peers.error());
  contact.peers_read = true;
  contact.peers = std::move(peers->peers);
  contact.seen_peers_generation = std::to_string(peers->generation);
  for (const wire::Peer& peer : contact.peers) {
    if (peer.endpoints.empty()) continue;
    const auto known = std::find_if(contacts_.begin(), contacts_.end(), [&](const auto& other) {
      return !other->removed && (other->expected_node == peer.node ||
                                 (other->node && other->node->name() == peer.node));
    });
    if (known == contacts_.end()) {
      add_contact(peer.endpoints, peer.node, false);
      begin(*contacts_.back());
    }
  }
  ask_next(contact);
}

void Tender::on_replicas(Contact& contact) {
  const auto items = wire::parse_info(as_text(contact.channel.answer()));
  Result<std::string_view> generation = wire::find_info(items, "partition-generation");
  Result<std::string_view> text = wire::find_info(items, "replicas");
  if (!generation) return fail(contact, generation.error());
  if (!text) return fail(contact, text.error());
  Result<std::vector<wire::ReplicaMap>> maps = wire::parse_replicas(*text);
  if (!maps) return fail(contact, maps.error());
  contact.replicas_read = true;
  // The generation read before the map, never a later one: a half-changed map is then read again.
  contact.seen_partition_generation = *generation;
  for (const wire::ReplicaMap& map : *maps) {
    if (map.ns != options_.ns) continue;
    for (const NodePtr& loser : table_.claim(contact.node, map)) {
      for (const auto& other : contacts_) {
        if (other->node == loser) other->seen_partition_generation.clear();
      }
    }
  }
  changed_ = true;
  ask_next(contact);
}

void Tender::on_racks(Contact& contact) {
  const auto items = wire::parse_info(as_text(contact.channel.answer()));
  Result<std::string_view> text = wire::find_info(items, "rack-ids");
  const std::string& name = contact.node->name();
  std::erase_if(racks_, [&](const auto& rack) { return rack.first == name; });
  if (text) {  // editions without racks answer with an error: then all replicas are equally near
    for (std::string_view rest = *text; !rest.empty();) {
      const std::string_view item = rest.substr(0, rest.find(';'));
      rest.remove_prefix(std::min(item.size() + 1, rest.size()));
      const size_t colon = item.find(':');
      if (colon == std::string_view::npos || item.substr(0, colon) != options_.ns) continue;
      Result<int64_t> id = wire::parse_integer(item.substr(colon + 1), "rack id");
      if (id) racks_.emplace_back(name, static_cast<int>(*id));
    }
  }
  changed_ = true;
  ask_next(contact);
}

}  // namespace aerokv::client
