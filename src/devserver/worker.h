// SPDX-License-Identifier: Apache-2.0
// A thread that serves connections.
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <queue>
#include <thread>
#include <unordered_map>
#include <vector>

#include "aerokv/status.h"
#include "base/clock.h"
#include "base/fd.h"
#include "devserver/service.h"

namespace aerokv::devserver {

class Connection;

/// Nodes that a fault wants dead or frozen; carried out by another thread.
class NodeControl {
 public:
  virtual ~NodeControl() = default;
  virtual void request_stop(int node) = 0;
  virtual void request_pause(int node) = 0;
};

/// Owns its connections; everything about them happens on its thread. Public methods are
/// thread-safe.
class Worker {
 public:
  static Result<std::unique_ptr<Worker>> create(Service& service, NodeControl& control);
  ~Worker();

  void start();
  /// Closes all connections and joins the thread.
  void stop();

  /// Runs `task` on the thread, soon.
  void post(std::function<void()> task);
  /// The same, and waits until it has run. Must not be called on a worker's thread.
  void post_and_wait(const std::function<void()>& task);

  /// Serves the client behind `socket`, which asked `node`.
  void adopt(UniqueFd socket, int node, bool is_tls);

  /// To be posted: closes the connections of a node, or lets them look again at what they wait for.
  void close_connections(int node);
  void thaw_connections(int node);

  // For connections, on the thread:
  void watch(Connection& connection, uint32_t events);
  void wake_at(Connection& connection, TimePoint time);
  Service& service() { return service_; }
  NodeControl& control() { return control_; }

 private:
  struct Timer {
    TimePoint time;
    uint64_t connection = 0;
    bool operator>(const Timer& other) const { return time > other.time; }
  };

  Worker(Service& service, NodeControl& control);
  void run();
  void run_tasks();
  void run_timers();
  void arm_timer();
  /// Destroys the connection if it has ended.
  void settle(uint64_t id);

  Service& service_;
  NodeControl& control_;
  UniqueFd epoll_;
  UniqueFd wake_;
  UniqueFd timer_;
  std::thread thread_;
  std::atomic<bool> stopping_{false};
  std::mutex tasks_mutex_;
  std::vector<std::function<void()>> tasks_;
  std::unordered_map<uint64_t, std::unique_ptr<Connection>> connections_;
  std::priority_queue<Timer, std::vector<Timer>, std::greater<>> timers_;
  TimePoint armed_{};
  uint64_t last_id_ = 0;
};

}  // namespace aerokv::devserver
