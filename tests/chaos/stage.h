// SPDX-License-Identifier: Apache-2.0
// The cluster that the events happen to, and the weather that follows from them.
#pragma once

#include <atomic>
#include <chrono>
#include <functional>
#include <future>
#include <map>
#include <memory>
#include <mutex>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "aerokv/store.h"
#include "base/certificates_testing.h"
#include "devserver/devserver.h"
#include "tests/chaos/model.h"
#include "tests/chaos/problems.h"
#include "tests/chaos/schedule.h"

namespace aerokv::chaos {

/// Owns the server. Events come from one thread; the rest is thread-safe.
class Stage {
 public:
  Stage(const Recipe& recipe, Problems& problems);

  devserver::DevServer& server() { return *server_; }
  /// How a store reaches the cluster of this recipe: addresses, login, timeouts.
  [[nodiscard]] StoreOptions options() const;

  /// Called when every node is dead.
  void on_loss(std::function<void()> lost) { lost_.push_back(std::move(lost)); }

  /// Calm: all nodes are up and hold their data, no fault is active, all clients trust all nodes,
  /// and what was given up before has been executed or not. 0 otherwise.
  [[nodiscard]] Calm calm() const { return calm_.load(std::memory_order_acquire); }
  [[nodiscard]] uint64_t calms() const { return calms_; }
  /// True from the first event that a node died or froze in.
  [[nodiscard]] bool was_hurt() const { return was_hurt_.load(std::memory_order_acquire); }

  /// Stores that take part, while they are open.
  void join(std::shared_ptr<Store> store);
  void leave(const Store* store);
  [[nodiscard]] std::vector<std::shared_ptr<Store>> stores() const;

  void apply(const Event& event);
  /// Brings all nodes back and ends all faults.
  void restore();
  /// Waits until `end`, or until a problem; declares the weather calm as soon as it is.
  void wait_until(std::chrono::steady_clock::time_point end);
  /// Waits until it is calm. A problem if that takes longer than `limit`.
  void await_calm(std::chrono::milliseconds limit);

 private:
  [[nodiscard]] bool is_whole() const;
  [[nodiscard]] std::string unrest() const;
  [[nodiscard]] int nodes_now() const { return nodes_ + (spare_is_up_ ? 1 : 0); }
  void look_at_weather();
  void check_bounds();
  Status change_node(const Event& event);
  Status change_service(const Event& event);
  void set_limit(uint64_t bytes);
  void check_loss();
  void rotate();
  void collect_removal();

  const Recipe recipe_;
  Problems& problems_;
  testing::CertificateSet certificates_;
  std::unique_ptr<devserver::DevServer> server_;
  const int nodes_;
  const int spare_;  // index of the spare node
  bool spare_is_up_ = false;
  std::future<Status> removal_;
  std::vector<std::function<void()>> lost_;
  std::set<int> stopped_, frozen_;
  std::map<uint64_t, uint64_t> faults_;            // tag to id
  std::set<std::pair<Event::Kind, int>> changed_;  // what is not as it was at the start
  std::chrono::steady_clock::time_point writes_again_{};
  uint64_t limit_ = kRecordLimit;
  bool limit_is_set_ = true;
  std::chrono::steady_clock::time_point settled_since_{};
  Calm calms_ = 0;
  std::atomic<Calm> calm_{0};
  std::atomic<bool> was_hurt_{false};
  mutable std::mutex mutex_;
  std::vector<std::shared_ptr<Store>> stores_;  // guarded by mutex_
};

/// Of each store of a run: little, so that it is reached.
inline constexpr uint64_t kBytesInFlightMax = 4 << 20;

}  // namespace aerokv::chaos
