// SPDX-License-Identifier: Apache-2.0
// The turn of one contact in a tend round: connecting, login, identity, generations, peers, map,
// racks.
#include "client/tend_contact.h"

#include <algorithm>
#include <charconv>

#include "base/log.h"
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

void Tender::begin(Contact& contact) {
  contact.asked_at = SteadyClock::now();
  contact.identified = contact.peers_read = contact.replicas_read = false;
  if (contact.node && options_.needs_login()) {
    const std::shared_ptr<const Session> session = contact.node->session();
    // A rejected or ageing session is replaced on a fresh connection, where the login comes first.
    if (!session || session->expires_at <= contact.asked_at) contact.channel.close();
  }
  if (!contact.node || !contact.channel.is_open()) return reconnect(contact);
  contact.is_reused = true;
  contact.step = Contact::Step::generations;
  ask(contact, {"node", "peers-generation", "partition-generation"});
}

void Tender::reconnect(Contact& contact) {
  contact.is_reused = false;
  contact.step = Contact::Step::connecting;
  {
    const std::scoped_lock lock(mutex_);
    if (!ready_)
      seed_errors_.try_emplace(contact.address_text(), Code::unavailable, "no answer yet");
  }
  Status status = find_addresses(contact);
  connect_next(contact, std::move(status));
}

/// Lists the addresses to try: where it answered last, then all that its names stand for. The
/// resolver is asked only if the first is not known or did not work, since it may block.
Status Tender::find_addresses(Contact& contact) {
  contact.candidates.clear();
  contact.next = 0;
  if (contact.node)
    contact.candidates.push_back({contact.node->endpoint(), contact.node->address()});
  if (contact.node && contact.failures == 0) return {};
  Status error;
  for (const wire::Endpoint& endpoint : contact.endpoints) {
    Result<std::vector<SocketAddress>> addresses = resolve(endpoint);
    if (!addresses) {
      error = addresses.error();
      continue;
    }
    for (const SocketAddress& address : *addresses) {
      const bool known = std::any_of(contact.candidates.begin(), contact.candidates.end(),
                                     [&](const auto& item) { return item.address == address; });
      if (!known) contact.candidates.push_back({endpoint, address});
    }
  }
  return error;
}

/// Tries the next address; without one the turn has failed.
void Tender::connect_next(Contact& contact, Status why_not) {
  while (contact.next < contact.candidates.size()) {
    contact.current = contact.candidates[contact.next++];
    contact.asked_at = SteadyClock::now();
    why_not = contact.channel.connect(contact.current.address, options_,
                                      contact.current.endpoint.tls_name);
    if (why_not.ok()) return connected(contact);
  }
  if (why_not.ok()) why_not = {Code::unavailable, "no address"};
  fail(contact, why_not);
}

void Tender::connected(Contact& contact) {
  if (!options_.needs_login()) return ask_identity(contact);
  std::vector<std::byte> frame;
  if (Status status = encode_login(frame); !status) return fail(contact, status);
  contact.step = Contact::Step::login;
  contact.channel.request(wire::ReplyKind::security, std::move(frame));
}

Status Tender::encode_login(std::vector<std::byte>& frame) const {
  switch (options_.auth_mode) {
    case AuthMode::internal:
      return wire::encode_login(options_.user, credential_.view(), frame);
    case AuthMode::external:
      return wire::encode_external_login(options_.user, credential_.view(),
                                         options_.password.view(), frame);
    case AuthMode::pki:
      wire::encode_certificate_login(frame);
      return {};
  }
  return {Code::internal, "auth_mode"};
}

/// The info command that lists the other nodes, with the addresses that this client connects to.
std::string_view Tender::peers_command() const {
  if (options_.tls.enable) {
    return options_.use_alternate_addresses ? "peers-tls-alt" : "peers-tls-std";
  }
  return options_.use_alternate_addresses ? "peers-clear-alt" : "peers-clear-std";
}

/// Ends the contact's turn, unless there is another way to reach it.
void Tender::fail(Contact& contact, const Status& error) {
  contact.channel.close();
  // The server may have closed it long ago: that says nothing about the node.
  if (contact.is_reused && error.code() == Code::unavailable) return reconnect(contact);
  if (contact.is_connecting() && contact.next < contact.candidates.size()) {
    return connect_next(contact, error);
  }
  contact.step = Contact::Step::failed;
  ++contact.failures;
  contact.peers_known = false;
  refresh_all_peers_ = true;
  const std::string label = contact.label();
  if (contact.node) {
    contact.node->suspect(SteadyClock::now(), error);
  } else {
    log(LogLevel::warning, "seed:" + label, "no node at " + label + ": " + error.message());
  }
  const std::scoped_lock lock(mutex_);
  if (!ready_) seed_errors_[contact.address_text()] = error;
}

void Tender::ask(Contact& contact, std::initializer_list<std::string_view> commands) {
  std::vector<std::byte> frame;
  const std::span<const std::string_view> list(commands.begin(), commands.size());
  if (Status status = wire::encode_info(list, frame); !status) return fail(contact, status);
  contact.asked_at = SteadyClock::now();
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
      contact.is_reused = false;
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
  contact.identified = true;
  if (takes_user_agent(*build)) {
    contact.step = Contact::Step::user_agent;
    return ask(contact, {user_agent_});
  }
  contact.step = Contact::Step::generations;
  ask(contact, {"node", "peers-generation", "partition-generation"});
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
    if (contact.identified) {
      return fail(contact,
                  {Code::protocol, "two names in one connection: \"" + contact.node->name() +
                                       "\", then \"" + std::string(name->substr(0, 64)) + "\""});
    }
    contact.channel.close();  // another node at its address: who, and may it be?
    return reconnect(contact);
  }
  if (*partitions == "-1") {
    return fail(contact, {Code::unavailable, "node has not joined its cluster yet"});
  }
  contact.peers_generation = *peers;
  contact.partition_generation = *partitions;
  if (contact.failures > 0) {  // it was away: nothing it said before counts
    contact.seen_peers_generation.clear();
    contact.seen_partition_generation.clear();
    contact.seen_rebalance_generation.clear();
    refresh_all_peers_ = true;
    contact.failures = 0;
    const std::scoped_lock lock(mutex_);
    seed_errors_.clear();
  }
  contact.node->clear_suspicion(contact.asked_at);
  ask_next(contact);
}

void Tender::ask_next(Contact& contact) {
  if (!contact.peers_read &&
      (refresh_all_peers_ || contact.seen_peers_generation != contact.peers_generation)) {
    contact.step = Contact::Step::peers;
    return ask(contact, {peers_command()});
  }
  if (wants_map(contact)) {
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

/// Once a turn, if its map has changed and is that of the cluster.
bool Tender::wants_map(const Contact& contact) const {
  return !contact.replicas_read && contact.node && !contact.removed &&
         contact.seen_partition_generation != contact.partition_generation && counts(contact);
}

void Tender::on_peers(Contact& contact) {
  const auto items = wire::parse_info(as_text(contact.channel.answer()));
  Result<std::string_view> text = wire::find_info(items, peers_command());
  if (!text) return fail(contact, text.error());
  Result<wire::Peers> peers = wire::parse_peers(*text);
  if (!peers) return fail(contact, peers.error());
  contact.peers_read = contact.peers_known = true;
  contact.peers = std::move(peers->peers);
  contact.seen_peers_generation = std::to_string(peers->generation);
  // A stranger's friends are not ours.
  if (contact.is_seed || counts(contact)) take_peers(contact);
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
      masters_changed_ = true;
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
