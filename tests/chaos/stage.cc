// SPDX-License-Identifier: Apache-2.0
#include "tests/chaos/stage.h"

#include <algorithm>
#include <thread>

#include "tests/fault/world.h"

namespace aerokv::chaos {
namespace {

using devserver::DevServer;
using std::chrono::milliseconds;
using std::chrono::steady_clock;
using testing::kSlowness;

// What clients have given up is executed by then, or never: longer than any injected delay.
constexpr milliseconds kDrainTime{450 + 150 * kSlowness};
constexpr milliseconds kStep{20};
// Requests that are larger than what is left go alone.
constexpr uint64_t kInFlightSlack = 1 << 20;

constexpr const char* kUser = "chaos";
constexpr const char* kPassword = "a password";

devserver::Options server_options(const Recipe& recipe) {
  devserver::Options options;
  options.nodes = static_cast<int>(recipe.nodes);
  options.replication = recipe.seed % 7 == 3 ? 1 : 2;
  options.threads = 2;
  options.namespaces[0].size_bytes = 512ULL << 20;
  options.namespaces[0].max_record_bytes = static_cast<uint32_t>(kRecordLimit);
  options.timing.detection = milliseconds(300);
  options.timing.join = milliseconds(300);
  options.timing.resume = milliseconds(200);
  options.timing.migration = std::chrono::microseconds(50);
  if (recipe.seed % 3 == 1) {
    devserver::UserOptions user;
    user.name = kUser;
    user.password = kPassword;
    options.users.push_back(user);
    options.session_ttl = std::chrono::seconds(3);  // tokens run out all the time
  }
  return options;
}

}  // namespace

Stage::Stage(const Recipe& recipe, Problems& problems) : problems_(problems) {
  devserver::Options options = server_options(recipe);
  has_users_ = !options.users.empty();
  nodes_ = options.nodes;
  Result<std::unique_ptr<DevServer>> server = DevServer::start(std::move(options));
  if (!server) {
    problems_.add("server: " + server.error().message());
    std::abort();
  }
  server_ = *std::move(server);
}

StoreOptions Stage::options() const {
  StoreOptions options;
  options.hosts = testing::hosts_of(*server_);
  if (has_users_) {
    options.username = kUser;
    options.password = kPassword;
  }
  options.default_ttl_seconds = 3600;
  options.max_bytes_in_flight = kBytesInFlightMax;
  options.request_timeout = milliseconds(100 * kSlowness);
  options.write_request_timeout = milliseconds(400 * kSlowness);
  options.read_timeout = milliseconds(1500 * kSlowness);
  options.write_timeout = milliseconds(1500 * kSlowness);
  options.connect_timeout = milliseconds(500 * kSlowness);
  options.tend_interval = milliseconds(100);
  return options;
}

void Stage::join(std::shared_ptr<Store> store) {
  const std::scoped_lock lock(mutex_);
  stores_.push_back(std::move(store));
}

void Stage::leave(const Store* store) {
  const std::scoped_lock lock(mutex_);
  std::erase_if(stores_, [store](const auto& entry) { return entry.get() == store; });
}

std::vector<std::shared_ptr<Store>> Stage::stores() const {
  const std::scoped_lock lock(mutex_);
  return stores_;
}

void Stage::apply(const Event& event) {
  calm_.store(0, std::memory_order_release);
  settled_since_ = {};
  Status status;
  switch (event.kind) {
    case Event::Kind::stop:
      was_hurt_.store(true, std::memory_order_release);
      status = server_->stop_node(event.node);
      frozen_.erase(event.node);
      stopped_.insert(event.node);
      check_loss();
      break;
    case Event::Kind::start:
      if (stopped_.erase(event.node) == 1) status = server_->start_node(event.node);
      limit_is_set_ = limit_ == kRecordLimit;
      break;
    case Event::Kind::pause:
      if (stopped_.contains(event.node)) break;
      was_hurt_.store(true, std::memory_order_release);
      status = server_->pause_node(event.node);
      frozen_.insert(event.node);
      break;
    case Event::Kind::resume:
      if (frozen_.erase(event.node) == 1) status = server_->resume_node(event.node);
      break;
    case Event::Kind::fault:
      faults_[event.tag] = server_->add_fault(event.fault);
      break;
    case Event::Kind::unfault:
      if (const auto found = faults_.find(event.tag); found != faults_.end()) {
        server_->remove_fault(found->second);
        faults_.erase(found);
      }
      break;
    case Event::Kind::limit:
      set_limit(event.value);
      break;
  }
  if (!status) problems_.add("event " + text_of(event) + ": " + status.message());
}

void Stage::check_loss() {
  if (static_cast<int>(stopped_.size()) < nodes_) return;
  for (const auto& lost : lost_) lost();
}

/// On all nodes that can be told. Those that cannot are told before it is calm again.
void Stage::set_limit(uint64_t bytes) {
  limit_ = bytes;
  limit_is_set_ = false;
  const std::vector<std::shared_ptr<Store>> open = stores();
  if (open.empty()) return;
  const auto answers = open.front()->info(
      "set-config:context=namespace;namespace=lmcache;max-record-size=" + std::to_string(bytes));
  limit_is_set_ = answers && static_cast<int>(answers->size()) == nodes_ &&
                  std::all_of(answers->begin(), answers->end(), [](const NodeAnswer& answer) {
                    return answer.status.ok() && answer.text == "ok";
                  });
}

void Stage::restore() {
  calm_.store(0, std::memory_order_release);
  settled_since_ = {};
  server_->clear_faults();
  faults_.clear();
  for (const int node : std::set<int>(frozen_)) {
    if (const Status status = server_->resume_node(node); !status) problems_.add(status.message());
  }
  for (const int node : std::set<int>(stopped_)) {
    if (const Status status = server_->start_node(node); !status) problems_.add(status.message());
  }
  frozen_.clear();
  stopped_.clear();
  set_limit(kRecordLimit);
}

bool Stage::is_whole() const {
  return stopped_.empty() && frozen_.empty() && faults_.empty() && limit_ == kRecordLimit;
}

/// Why it is not calm although all nodes are up; empty if nothing is left.
std::string Stage::unrest() const {
  if (const Status status = server_->await_settled(milliseconds(0)); !status) {
    return status.message();
  }
  for (const std::shared_ptr<Store>& store : stores()) {
    const std::vector<StoreStats::NodeStats> nodes = store->stats().nodes;
    if (static_cast<int>(nodes.size()) != nodes_) {
      return "a client has " + std::to_string(nodes.size()) + " nodes of " + std::to_string(nodes_);
    }
    for (const StoreStats::NodeStats& node : nodes) {
      if (node.suspect) return "a client takes node " + node.name + " for dead";
    }
  }
  return {};
}

void Stage::look_at_weather() {
  if (calm() != 0 || !is_whole()) return;
  if (!limit_is_set_) set_limit(kRecordLimit);
  const auto now = steady_clock::now();
  if (!limit_is_set_ || !unrest().empty()) {
    settled_since_ = {};
  } else if (settled_since_ == steady_clock::time_point{}) {
    settled_since_ = now;
  } else if (now - settled_since_ >= kDrainTime) {
    calm_.store(++calms_, std::memory_order_release);
  }
}

void Stage::check_bounds() {
  for (const std::shared_ptr<Store>& store : stores()) {
    const uint64_t bytes = store->stats().bytes_in_flight;
    if (bytes > kBytesInFlightMax + kInFlightSlack) {
      problems_.add(std::to_string(bytes) + " bytes in flight, limit " +
                    std::to_string(kBytesInFlightMax));
    }
  }
}

void Stage::wait_until(steady_clock::time_point end) {
  while (!problems_.any()) {
    look_at_weather();
    check_bounds();
    const auto now = steady_clock::now();
    if (now >= end) return;
    std::this_thread::sleep_for(std::min<steady_clock::duration>(end - now, kStep));
  }
}

void Stage::await_calm(milliseconds limit) {
  const auto end = steady_clock::now() + limit;
  while (calm() == 0 && !problems_.any()) {
    if (steady_clock::now() >= end) {
      problems_.add("not calm after " + std::to_string(limit.count()) + " ms: " + unrest());
      return;
    }
    wait_until(steady_clock::now() + kStep);
  }
}

}  // namespace aerokv::chaos
