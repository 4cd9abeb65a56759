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
constexpr milliseconds kRemovalTime{4000};
// One load and one store of each I/O thread are let through in any case.
constexpr uint64_t kInFlightSlack = 4 * kRecordLimit;

constexpr const char* kUser = "chaos";
constexpr const char* kPassword = "a password";

// What a client needs to be let in again after it was refused: probes come once a second.
constexpr milliseconds kWritesAgainTime{2500};
constexpr const char* kTlsName = "cluster.test";

devserver::UserOptions user() {
  devserver::UserOptions user;
  user.name = kUser;
  user.password = kPassword;
  user.roles = static_cast<devserver::RoleMask>(mask_of(devserver::Role::read_write) |
                                                mask_of(devserver::Role::sys_admin));
  return user;
}

devserver::Options server_options(const Recipe& recipe,
                                  const testing::CertificateSet& certificates) {
  devserver::Options options;
  options.nodes = static_cast<int>(recipe.nodes);
  options.spare_nodes = 1;
  options.replication = recipe.replication();
  options.threads = 2;
  options.namespaces[0].size_bytes = 512ULL << 20;
  options.namespaces[0].max_record_bytes = static_cast<uint32_t>(kRecordLimit);
  options.timing.detection = milliseconds(300);
  options.timing.join = milliseconds(300);
  options.timing.resume = milliseconds(200);
  options.timing.migration = std::chrono::microseconds(50);
  if (recipe.has_users()) {
    options.users.push_back(user());
    options.session_ttl = std::chrono::seconds(3);  // tokens run out all the time
  }
  for (int i = 0; recipe.has_racks() && i < options.all_nodes(); ++i) {
    options.racks.push_back(i % 2);
  }
  if (recipe.has_tls()) {
    options.clear_port = false;
    options.tls.name = kTlsName;
    options.tls.options.enable = true;
    options.tls.options.ca_file = certificates.ca_file();
    options.tls.options.cert_file = certificates.server_cert();
    options.tls.options.key_file = certificates.server_key();
    options.tls.client_certificates = TlsClientCertificate::required;
  }
  return options;
}

}  // namespace

Stage::Stage(const Recipe& recipe, Problems& problems)
    : recipe_(recipe),
      problems_(problems),
      certificates_({kTlsName}, kUser),
      nodes_(static_cast<int>(recipe.nodes)),
      spare_(nodes_) {
  Result<std::unique_ptr<DevServer>> server =
      DevServer::start(server_options(recipe, certificates_));
  if (!server) {
    problems_.add("server: " + server.error().message());
    std::abort();
  }
  server_ = *std::move(server);
}

StoreOptions Stage::options() const {
  StoreOptions options;
  options.hosts = testing::hosts_of(*server_);
  if (recipe_.has_users()) {
    options.username = kUser;
    options.password = kPassword;
  }
  if (recipe_.has_tls()) {
    options.tls.enable = true;
    options.tls.ca_file = certificates_.ca_file();
    options.tls.cert_file = certificates_.client_cert();
    options.tls.key_file = certificates_.client_key();
    options.tls_name = kTlsName;
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
  const bool is_of_node = event.kind <= Event::Kind::remove;
  const Status status = is_of_node ? change_node(event) : change_service(event);
  if (!status) problems_.add("event " + text_of(event) + ": " + status.message());
}

Status Stage::change_node(const Event& event) {
  const int node = event.node;
  const bool is_spare = node == spare_;
  collect_removal();
  switch (event.kind) {
    case Event::Kind::stop:
      was_hurt_.store(true, std::memory_order_release);
      frozen_.erase(node);
      AEROKV_TRY(server_->stop_node(node));
      if (is_spare) {
        spare_is_up_ = false;
      } else {
        stopped_.insert(node);
      }
      check_loss();
      return {};
    case Event::Kind::start:
      limit_is_set_ = false;
      if (is_spare) spare_is_up_ = true;
      return is_spare || stopped_.erase(node) == 1 ? server_->start_node(node) : Status();
    case Event::Kind::pause:
      if (stopped_.contains(node)) return {};
      was_hurt_.store(true, std::memory_order_release);
      frozen_.insert(node);
      return server_->pause_node(node);
    case Event::Kind::resume:
      return frozen_.erase(node) == 1 ? server_->resume_node(node) : Status();
    default:
      // It takes as long as the data need; nothing of it concerns the other events.
      removal_ = std::async(std::launch::async,
                            [this, node] { return server_->remove_node(node, kRemovalTime); });
      return {};
  }
}

/// Waits until the spare node is gone. What did not let it hand over, such as a frozen node, ends.
void Stage::collect_removal() {
  if (!removal_.valid()) return;
  if (const Status status = removal_.get(); !status) {
    if (const Status stopped = server_->stop_node(spare_); !stopped) {
      problems_.add("remove the spare node: " + stopped.message());
    }
  }
  spare_is_up_ = false;
}

Status Stage::change_service(const Event& event) {
  const auto note = [&](bool is_changed) {
    const auto what = std::make_pair(event.kind, event.node);
    if (is_changed) {
      changed_.insert(what);
    } else {
      changed_.erase(what);
    }
  };
  switch (event.kind) {
    case Event::Kind::fault:
      faults_[event.tag] = server_->add_fault(event.fault);
      return {};
    case Event::Kind::unfault:
      if (const auto found = faults_.find(event.tag); found != faults_.end()) {
        server_->remove_fault(found->second);
        faults_.erase(found);
      }
      return {};
    case Event::Kind::limit:
      set_limit(event.value);
      return {};
    case Event::Kind::link:
      note(event.value != 0);
      return server_->set_link(event.node, event.value);
    case Event::Kind::latency:
      note(event.value != 0);
      return server_->set_latency(event.node, std::chrono::microseconds(event.value));
    case Event::Kind::stop_writes:
      note(event.value != 0);
      writes_again_ = steady_clock::now() + kWritesAgainTime;
      return server_->set_stop_writes(event.node, event.value != 0);
    case Event::Kind::expire:
      server_->expire_sessions();
      return {};
    case Event::Kind::user:
      note(event.value == 0);
      return event.value == 0 ? server_->drop_user(kUser) : server_->set_user(user());
    case Event::Kind::rack:
      return server_->set_rack(event.node, static_cast<int>(event.value));
    default:
      rotate();
      return {};
  }
}

/// As tools that renew certificates do it: each file at once, one after the other.
void Stage::rotate() {
  using testing::Certificate;
  const Certificate server =
      Certificate::make({.common_name = kTlsName, .dns_names = {kTlsName}}, &certificates_.ca);
  const Certificate client = Certificate::make({.common_name = kUser}, &certificates_.ca);
  const testing::CertificateFolder& folder = certificates_.folder;
  folder.write("server.key", server.key_pem());
  folder.write("server.pem", server.certificate_pem());
  folder.write("client.key", client.key_pem());
  folder.write("client.pem", client.certificate_pem());
}

void Stage::check_loss() {
  if (static_cast<int>(stopped_.size()) < nodes_ || spare_is_up_) return;
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
  limit_is_set_ = answers && static_cast<int>(answers->size()) == nodes_now() &&
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
  collect_removal();
  for (const auto& [kind, node] : std::set<std::pair<Event::Kind, int>>(changed_)) {
    Event back;
    back.kind = kind;
    back.node = node;
    back.value = kind == Event::Kind::user ? 1 : 0;
    apply(back);
  }
  set_limit(kRecordLimit);
}

bool Stage::is_whole() const {
  return stopped_.empty() && frozen_.empty() && faults_.empty() && changed_.empty() &&
         limit_ == kRecordLimit;
}

/// Why it is not calm although all nodes are up; empty if nothing is left.
std::string Stage::unrest() const {
  if (!limit_is_set_) return "the record limit could not be set on all nodes";
  if (const Status status = server_->await_settled(milliseconds(0)); !status) {
    return status.message();
  }
  for (const std::shared_ptr<Store>& store : stores()) {
    const std::vector<StoreStats::NodeStats> nodes = store->stats().nodes;
    if (static_cast<int>(nodes.size()) != nodes_now()) {
      return "a client has " + std::to_string(nodes.size()) + " nodes of " +
             std::to_string(nodes_now());
    }
    for (const StoreStats::NodeStats& node : nodes) {
      if (node.suspect) return "a client takes node " + node.name + " for dead";
    }
  }
  return {};
}

void Stage::look_at_weather() {
  if (removal_.valid() && removal_.wait_for(milliseconds(0)) == std::future_status::ready) {
    collect_removal();
  }
  if (calm() != 0 || !is_whole() || removal_.valid()) return;
  if (!limit_is_set_) set_limit(kRecordLimit);
  const auto now = steady_clock::now();
  if (now < writes_again_ || !unrest().empty()) {
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
