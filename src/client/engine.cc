// SPDX-License-Identifier: Apache-2.0
#include "client/engine.h"

#include <poll.h>

#include <algorithm>

#include "wire/request.h"
#include "wire/security.h"

namespace aerokv::client {
namespace {

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
  return {};
}

}  // namespace

namespace {

uint64_t next_engine_id() {
  static std::atomic<uint64_t> last{0};
  return ++last;
}

}  // namespace

Engine::Engine(ClientOptions options) : id_(next_engine_id()), options_(std::move(options)) {}

Result<std::unique_ptr<Engine>> Engine::start(ClientOptions options) {
  AEROKV_TRY(check(options));
  std::unique_ptr<Engine> engine(new Engine(std::move(options)));
  if (!engine->options_.user.empty()) {
    Result<std::string> credential = wire::hash_password(engine->options_.password);
    if (!credential) return credential.error();
    engine->credential_ = *std::move(credential);
    engine->options_.password.clear();
  }
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
    Result<std::string> value =
        ask_info(*node, options_.user, command, SteadyClock::now() + timeout);
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
