// SPDX-License-Identifier: Apache-2.0
#include "client/tend.h"

#include <poll.h>

#include <algorithm>
#include <cerrno>

#include "aerokv/version.h"
#include "base/log.h"
#include "client/tend_contact.h"
#include "wire/request.h"
#include "wire/result.h"
#include "wire/security.h"

namespace aerokv::client {
namespace {

constexpr int kFailuresUntilReseed = 1;

std::string base64(std::string_view text) {
  constexpr std::string_view kAlphabet =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string out;
  for (size_t i = 0; i < text.size(); i += 3) {
    const size_t count = std::min<size_t>(3, text.size() - i);
    uint32_t bits = 0;
    for (size_t j = 0; j < 3; ++j) {
      bits = bits << 8 | (j < count ? static_cast<uint8_t>(text[i + j]) : 0U);
    }
    for (size_t j = 0; j < 4; ++j) {
      out += j <= count ? kAlphabet[bits >> (18 - 6 * j) & 63] : '=';
    }
  }
  return out;
}

}  // namespace

Tender::Tender(const ClientOptions& options, std::string credential, MapListener on_map)
    : options_(options),
      credential_(std::move(credential)),
      on_map_(std::move(on_map)),
      user_agent_("user-agent-set:value=" +
                  base64("1,aerokv-" + std::string(kVersion) + ",lmcache-aerospike")) {}

Tender::~Tender() {
  stop();
}

Status Tender::start() {
  Result<UniqueFd> fd = make_event_fd();
  if (!fd) return fd.error();
  wake_fd_ = *std::move(fd);
  thread_ = std::thread([this] { run(); });
  std::unique_lock lock(mutex_);
  // Two rounds: nodes that are just starting may be taken in by the second. Wrong credentials stay
  // wrong: no second round is needed to say so.
  condition_.wait(lock, [this] {
    return ready_ || rounds_ >= 2 || (rounds_ == 1 && seed_denials_ == seed_failures_);
  });
  if (ready_) return {};
  // A node that answers and refuses tells more than those that are away.
  const Status error(seed_denials_ > 0 ? Code::denied : Code::unavailable,
                     "no node of the cluster could be used: " + seed_errors_);
  lock.unlock();
  stop();
  return error;
}

void Tender::stop() {
  {
    const std::scoped_lock lock(mutex_);
    stopping_ = true;
  }
  condition_.notify_all();
  if (wake_fd_.is_open()) signal_event_fd(wake_fd_.get());
  if (thread_.joinable()) thread_.join();
  contacts_.clear();  // and with them their connections
}

void Tender::wake() {
  const std::scoped_lock lock(mutex_);
  wake_ = true;
  condition_.notify_all();
}

void Tender::run() {
  // At most this often, however many requests ask for a fresh map.
  const Duration pace = std::min<Duration>(options_.tend_interval, milliseconds(100));
  TimePoint earliest = SteadyClock::now();
  while (true) {
    {
      std::unique_lock lock(mutex_);
      const TimePoint due = earliest - pace + Duration(options_.tend_interval);
      condition_.wait_until(lock, due, [this] { return stopping_ || wake_ || rounds_ == 0; });
      if (!stopping_) condition_.wait_until(lock, earliest, [this] { return stopping_; });
      if (stopping_) return;
      wake_ = false;
    }
    round();
    earliest = SteadyClock::now() + pace;
  }
}

void Tender::round() {
  const bool any_healthy = std::any_of(contacts_.begin(), contacts_.end(), [](const auto& contact) {
    return contact->node && contact->failures < kFailuresUntilReseed;
  });
  for (auto& contact : contacts_) {
    contact->answered = contact->peers_read = contact->replicas_read = false;
    contact->step = Contact::Step::idle;
  }
  if (!any_healthy) reseed();
  for (size_t i = 0; i < contacts_.size(); ++i) {
    if (contacts_[i]->step == Contact::Step::idle) begin(*contacts_[i]);
  }
  poll_contacts();
  finish_round();
}

void Tender::reseed() {
  for (const wire::Endpoint& seed : options_.seeds) {
    const bool known = std::any_of(contacts_.begin(), contacts_.end(), [&](const auto& contact) {
      return contact->endpoints.size() == 1 && contact->endpoints[0] == seed;
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

void Tender::poll_contacts() {
  std::vector<pollfd> fds;
  std::vector<Contact*> owners;
  while (true) {
    fds.clear();
    owners.clear();
    for (const auto& contact : contacts_) {
      if (!contact->is_busy()) continue;
      fds.push_back({contact->channel.fd(), contact->channel.poll_events(), 0});
      owners.push_back(contact.get());
    }
    if (fds.empty()) return;
    fds.push_back({wake_fd_.get(), POLLIN, 0});
    TimePoint deadline = TimePoint::max();
    for (const Contact* contact : owners) {
      deadline = std::min(deadline, contact->asked_at + patience(*contact));
    }
    const auto left = std::chrono::ceil<milliseconds>(deadline - SteadyClock::now()).count();
    const int wait_ms = static_cast<int>(std::clamp<int64_t>(left, 0, 10000));
    const int count = ::poll(fds.data(), fds.size(), wait_ms);
    if (count < 0 && errno != EINTR) return;
    if (fds.back().revents != 0) return;  // stop() was called
    const TimePoint now = SteadyClock::now();
    for (size_t i = 0; i < owners.size(); ++i) {
      if (fds[i].revents != 0) {
        proceed(*owners[i]);
      } else if (now >= owners[i]->asked_at + patience(*owners[i])) {
        fail(*owners[i], {Code::timeout, "no answer within " +
                                             std::to_string(patience(*owners[i]).count()) + " ms"});
      }
    }
    publish_early();
  }
}

/// A node that failed before gets less time: it must not hold up what the others have to say.
milliseconds Tender::patience(const Contact& contact) const {
  constexpr milliseconds kSecondChance{250};
  return contact.failures > 0 ? std::min(options_.connect_timeout, kSecondChance)
                              : options_.connect_timeout;
}

/// A start does not wait for seeds that do not answer, once a cluster was found and asked that has
/// the namespace.
void Tender::publish_early() {
  if (version_ > 0) return;
  bool any_done = false;
  for (const auto& contact : contacts_) {
    any_done = any_done || (contact->answered && !contact->is_busy() && contact->node &&
                            table_.owns_any(contact->node));
    if (contact->is_busy() && (contact->node || !contact->is_seed)) return;
  }
  if (!any_done) return;
  publish_if_changed();
  condition_.notify_all();
}

void Tender::begin(Contact& contact) {
  contact.asked_at = SteadyClock::now();
  if (contact.node && !options_.user.empty()) {
    const std::shared_ptr<const Session> session = contact.node->session();
    // A rejected or ageing session is replaced on a fresh connection, where the login comes first.
    if (!session || session->expires_at <= contact.asked_at) contact.channel.close();
  }
  if (contact.node && contact.channel.is_open()) {
    contact.step = Contact::Step::generations;
    ask(contact, {"node", "peers-generation", "partition-generation"});
    return;
  }
  const wire::Endpoint& endpoint =
      contact.endpoints[contact.endpoint_index % contact.endpoints.size()];
  Result<std::vector<SocketAddress>> addresses = resolve(endpoint);
  if (!addresses) return fail(contact, addresses.error());
  // Names with several addresses are tried one per round.
  contact.address = (*addresses)[static_cast<size_t>(contact.failures) % addresses->size()];
  if (Status status = contact.channel.connect(contact.address); !status) {
    return fail(contact, status);
  }
  connected(contact);
}

void Tender::connected(Contact& contact) {
  if (options_.user.empty()) return ask_identity(contact);
  std::vector<std::byte> frame;
  if (Status status = wire::encode_login(options_.user, credential_, frame); !status) {
    return fail(contact, status);
  }
  contact.step = Contact::Step::login;
  contact.channel.request(wire::ReplyKind::security, std::move(frame));
}

void Tender::fail(Contact& contact, const Status& error) {
  contact.step = Contact::Step::failed;
  contact.channel.close();
  ++contact.failures;
  ++contact.endpoint_index;
  refresh_all_peers_ = true;
  const std::string label =
      contact.node ? contact.node->label() : contact.endpoints.front().to_string();
  if (contact.node) {
    contact.node->suspect(SteadyClock::now(), error);
  } else {
    log(LogLevel::warning, "seed:" + label, "no node at " + label + ": " + error.message());
  }
  const std::scoped_lock lock(mutex_);
  if (ready_) return;
  seed_errors_ += (seed_errors_.empty() ? "" : "; ") + label + ": " + error.message();
  if (seed_errors_.size() > 2000) seed_errors_.resize(2000);
  ++seed_failures_;
  if (error.code() == Code::denied) ++seed_denials_;
}

void Tender::drop_departed() {
  const bool any_answered = std::any_of(contacts_.begin(), contacts_.end(),
                                        [](const auto& contact) { return contact->answered; });
  if (!any_answered) return;  // nobody to ask: keep what is known, it may all come back
  for (const auto& contact : contacts_) {
    if (contact->removed) continue;
    const bool is_listed = std::any_of(contacts_.begin(), contacts_.end(), [&](const auto& other) {
      return other->answered && !other->removed &&
             std::any_of(other->peers.begin(), other->peers.end(), [&](const wire::Peer& peer) {
               return peer.node == contact->expected_node;
             });
    });
    const bool failed = contact->step == Contact::Step::failed;
    const bool is_spare_seed = failed && !contact->node && contact->is_seed;
    const bool has_no_part = contact->answered && contacts_.size() > 1 && !is_listed &&
                             contact->peers.empty() &&
                             (!contact->node || !table_.owns_any(contact->node));
    if (is_spare_seed || (failed && !is_listed) || (failed && !contact->node) || has_no_part) {
      contact->removed = true;
    }
  }
}

void Tender::finish_round() {
  drop_departed();
  for (const auto& contact : contacts_) {
    if (!contact->removed || !contact->node) continue;
    const bool adopted_elsewhere = std::any_of(
        contacts_.begin(), contacts_.end(),
        [&](const auto& other) { return !other->removed && other->node == contact->node; });
    if (!adopted_elsewhere) {
      contact->node->deactivate();
      table_.drop(contact->node);
      changed_ = true;
      log(LogLevel::warning, "tend:dropped",
          "node " + contact->node->label() + " has left the cluster");
    }
  }
  std::erase_if(contacts_, [](const auto& contact) { return contact->removed; });
  const bool any_failed = std::any_of(contacts_.begin(), contacts_.end(), [](const auto& contact) {
    return contact->step == Contact::Step::failed;
  });
  refresh_all_peers_ = any_failed;
  publish_if_changed();
  const std::scoped_lock lock(mutex_);
  ++rounds_;
  condition_.notify_all();
}

void Tender::publish_if_changed() {
  if (!changed_) return;
  changed_ = false;
  auto map = std::make_shared<ClusterMap>();
  map->version = ++version_;
  for (const auto& contact : contacts_) {
    if (contact->node) map->nodes.push_back(contact->node);
  }
  if (map->nodes.empty()) return;
  if (table_.replication_factor() > 0) map->partitions = table_.slots();
  map->replication_factor = table_.replication_factor();
  map->strong_consistency = table_.strong_consistency();
  map->racks = racks_;
  const bool answered = std::any_of(contacts_.begin(), contacts_.end(),
                                    [](const auto& contact) { return contact->answered; });
  on_map_(std::move(map));
  const std::scoped_lock lock(mutex_);
  if (answered) ready_ = true;
}

}  // namespace aerokv::client
