// SPDX-License-Identifier: Apache-2.0
#include "client/engine.h"

#include <poll.h>

#include <algorithm>

#include "wire/request.h"
#include "wire/security.h"

namespace aerokv::client {
namespace {

Status check_trust(const ClientOptions& options) {
  if (!options.tls.enable) {
    if (!options.tls_name.empty()) {
      return {Code::invalid, "tls_name: given without tls_enable, expected both or neither"};
    }
    for (const wire::Endpoint& seed : options.seeds) {
      if (seed.tls_name.empty()) continue;
      return {Code::invalid, "hosts: " + seed.to_string() +
                                 " has a TLS name without tls_enable, expected both or neither"};
    }
    if (options.auth_mode != AuthMode::internal) {
      return {Code::invalid, std::string("auth_mode: ") +
                                 (options.auth_mode == AuthMode::pki ? "pki" : "external") +
                                 " without tls_enable: the password or the certificate needs TLS"};
    }
    return {};
  }
  if (!options.tls_name.empty() && !wire::is_tls_name(options.tls_name)) {
    return {Code::invalid, "tls_name: expected a name as certificates have it"};
  }
  for (const wire::Endpoint& seed : options.seeds) {
    if (!options.tls_name.empty() || !seed.tls_name.empty()) continue;
    return {Code::invalid, "tls_name: not given, and hosts has none for " + seed.to_string() +
                               ": expected the name that its certificate must have"};
  }
  if (options.auth_mode == AuthMode::pki) {
    if (options.tls.cert_file.empty()) {
      return {Code::invalid, "auth_mode: pki without tls_cert_file, which says who logs in"};
    }
    if (!options.user.empty()) {
      return {Code::invalid, "auth_mode: pki with a username, which the certificate has to give"};
    }
  }
  if (options.auth_mode == AuthMode::external && options.user.empty()) {
    return {Code::invalid, "auth_mode: external without a username"};
  }
  return {};
}

Status check(const ClientOptions& options) {
  if (options.seeds.empty()) return {Code::invalid, "hosts: none given"};
  if (options.ns.empty() || options.ns.size() > kNamespaceBytesMax) {
    return {Code::invalid, "namespace \"" + options.ns.substr(0, 64) + "\": expected 1 to " +
                               std::to_string(kNamespaceBytesMax) + " bytes"};
  }
  if (options.io_threads < 1 || options.io_threads > 64) {
    return {Code::invalid,
            "num_io_threads " + std::to_string(options.io_threads) + ": expected 1 to 64"};
  }
  if (options.user.size() > kUserBytesMax) {
    return {Code::invalid, "username: longer than " + std::to_string(kUserBytesMax) + " bytes"};
  }
  return check_trust(options);
}

uint64_t next_engine_id() {
  static std::atomic<uint64_t> last{0};
  return ++last;
}

}  // namespace

Engine::Engine(ClientOptions options) : id_(next_engine_id()), options_(std::move(options)) {}

Result<std::unique_ptr<Engine>> Engine::start(ClientOptions options) {
  AEROKV_TRY(check(options));
  std::unique_ptr<Engine> engine(new Engine(std::move(options)));
  AEROKV_TRY(engine->prepare_trust());
  Engine* self = engine.get();
  engine->tender_ = std::make_unique<Tender>(
      engine->options_, engine->credential_,
      [self](const std::shared_ptr<const ClusterMap>& map) { self->publish(map); });
  for (int i = 0; i < engine->options_.io_threads; ++i) {
    engine->loops_.push_back(std::make_unique<IoLoop>(engine->options_, engine->stats_,
                                                      [self] { self->tender_->wake(); }));
    AEROKV_TRY(engine->loops_.back()->start());
  }
  AEROKV_TRY(engine->tender_->start());
  return engine;
}

/// Makes of the options what proves the user to the cluster, and the cluster to the user.
Status Engine::prepare_trust() {
  if (options_.tls.enable) {
    Result<std::shared_ptr<TlsContext>> context = TlsContext::client(options_.tls);
    if (!context) return context.error();
    options_.tls_context = *std::move(context);
    wipe(options_.tls.key_password);
  }
  if (options_.user.empty()) return {};
  Result<std::string> credential = wire::hash_password(options_.password.view());
  if (!credential) return credential.error();
  credential_ = Secret::take(*credential);
  // Only a login by way of another system needs the password itself again.
  if (options_.auth_mode != AuthMode::external) options_.password = Secret();
  return {};
}

Engine::~Engine() {
  close();
}

void Engine::close() {
  const std::scoped_lock lock(close_mutex_);
  if (closed_) return;
  closed_ = true;
  // The tend first: it hands maps to the loops.
  if (tender_) tender_->stop();
  for (const auto& loop : loops_) loop->stop();
}

void Engine::publish(const std::shared_ptr<const ClusterMap>& map) {
  {
    const std::scoped_lock lock(map_mutex_);
    map_ = map;
  }
  for (const auto& loop : loops_) loop->set_map(map);
}

std::shared_ptr<const ClusterMap> Engine::map() const {
  const std::scoped_lock lock(map_mutex_);
  return map_;
}

void Engine::submit(std::span<Command* const> commands) {
  const size_t count = loops_.size();
  const uint32_t first =
      next_loop_.fetch_add(static_cast<uint32_t>(commands.size()), std::memory_order_relaxed);
  if (commands.size() == 1 || count == 1) return loops_[first % count]->submit(commands);
  // Neighbours go to different threads: the segments of one object then use all of them.
  std::vector<Command*> share;
  share.reserve(commands.size() / count + 1);
  for (size_t i = 0; i < std::min(count, commands.size()); ++i) {
    share.clear();
    for (size_t j = i; j < commands.size(); j += count) share.push_back(commands[j]);
    loops_[(first + i) % count]->submit(share);
  }
}

void Engine::post(const void* owner, std::function<void()> task, TimePoint due) {
  const uint32_t index = next_loop_.fetch_add(1, std::memory_order_relaxed);
  loops_[index % loops_.size()]->post(owner, std::move(task), due);
}

void Engine::release(const void* owner) {
  for (const auto& loop : loops_) loop->release(owner);
}

bool Engine::has_healthy_node() const {
  const std::shared_ptr<const ClusterMap> current = map();
  return std::any_of(current->nodes.begin(), current->nodes.end(),
                     [](const NodePtr& node) { return node->is_active() && !node->is_suspect(); });
}

NodePtr Engine::node_for(const ClusterMap& map, uint32_t partition, bool is_write, uint32_t attempt,
                         const Node* last) const {
  const uint32_t spread = options_.replica == ReplicaPolicy::any ? partition : 0;
  return choose_node(map, {options_.replica, options_.rack_id}, partition, is_write, attempt,
                     spread, last);
}

std::vector<NodeInfo> Engine::info_all(std::string_view command, milliseconds timeout,
                                       const std::function<bool()>& is_over) const {
  const std::shared_ptr<const ClusterMap> current = map();
  std::vector<NodeInfo> results;
  for (const NodePtr& node : current->nodes) {
    if (is_over()) break;
    NodeInfo info{node->name(), {}, {}};
    Result<std::string> value = ask_info(*node, options_, command, SteadyClock::now() + timeout);
    if (value) {
      info.value = *std::move(value);
    } else {
      info.status = value.error().with_context("node " + node->label());
    }
    results.push_back(std::move(info));
  }
  return results;
}

}  // namespace aerokv::client
