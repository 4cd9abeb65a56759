// SPDX-License-Identifier: Apache-2.0
// What the nodes do with a complete message: everything but sockets and threads.
#pragma once

#include <array>
#include <atomic>
#include <condition_variable>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "base/clock.h"
#include "devserver/answer.h"
#include "devserver/cluster.h"
#include "devserver/execute.h"
#include "devserver/fault_plan.h"
#include "devserver/link.h"
#include "devserver/request.h"
#include "devserver/security.h"
#include "devserver/storage.h"

namespace aerokv::devserver {

/// A request that is not answered in one go: it waits for a node, or its answer is long.
/// Belongs to one connection; called by its thread only.
class Continuation {
 public:
  enum class Step : uint8_t {
    done,   ///< the answer is complete
    again,  ///< call again when what was appended has been sent
    wait,   ///< call again at wake_at()
  };
  virtual ~Continuation() = default;
  virtual Step step(Answer& out, TimePoint now) = 0;
  [[nodiscard]] TimePoint wake_at() const { return wake_at_; }
  void retry_after(TimePoint at) { wake_at_ = at; }

 protected:
  TimePoint wake_at_{};
};

/// Counters of a node that the service and the connections keep.
struct NodeCounters {
  std::array<std::atomic<uint64_t>, kRequestKinds> requests{};
  std::atomic<uint64_t> bytes_in{0}, bytes_out{0};
  std::atomic<uint64_t> connections_opened{0};
  std::atomic<int64_t> connections_now{0};
};

/// What the service knows about the connection of a request.
struct Client {
  int node = 0;
  Session session;
  bool user_agent_set = false;
  /// Common name of the certificate that was shown and verified; empty = none.
  std::string certificate_name;
};

class BatchRun;

class Service {
 public:
  Service(Options options, std::vector<NodeAddresses> addresses);

  /// Null if there is no port for TLS.
  std::shared_ptr<TlsContext> tls;

  /// The answer to one record message. Returns a continuation if it is not complete.
  /// `request` must stay as it is until the continuation is done.
  std::unique_ptr<Continuation> record(Client& client, Request& request, Answer& out);

  void info(Client& client, Bytes body, Answer& out);

  /// The code for a well-formed message that must not be executed yet; 0 = go on.
  [[nodiscard]] uint8_t permission(const Client& client, RequestKind kind) const;

  /// Removes what has expired or was truncated since the last call, if it is time for it.
  void housekeeping();
  /// Lets housekeeping() be called soon.
  void wake_housekeeping();
  /// Waits for wake_housekeeping() or `time`.
  void await_housekeeping(std::chrono::milliseconds time);

  [[nodiscard]] uint64_t uptime_seconds() const;

  [[nodiscard]] Namespace* find_namespace(std::string_view name);

  Options options;
  BufferPool pool;
  std::deque<Namespace> namespaces;
  Cluster cluster;
  Security users;
  FaultPlan faults;
  std::deque<NodeCounters> counters;
  std::deque<Link> links_in, links_out;  ///< of each node
  /// How much later the answers of each node leave.
  std::deque<std::atomic<std::chrono::microseconds>> latencies;

 private:
  friend class SingleRun;
  friend class BatchRun;
  friend class QueryRun;
  friend class InfoText;

  std::unique_ptr<Continuation> single(Client& client, Request& request, Answer& out);
  std::unique_ptr<Continuation> batch(Client& client, Request& request, Answer& out);
  bool batch_rows(Client& client, Request& request, Answer& out, uint32_t count, BatchRun& later);
  std::unique_ptr<Continuation> query(Client& client, Request& request, Answer& out);
  bool claim_task(int node, uint64_t task_id);

  const TimePoint started_ = SteadyClock::now();
  std::mutex housekeeping_mutex_;
  std::condition_variable housekeeping_wanted_;
  bool housekeeping_due_ = false;
  std::vector<std::vector<TimePoint>> last_nsup_;  // of each namespace and node
  std::mutex tasks_mutex_;
  std::vector<std::deque<uint64_t>> recent_tasks_;  // of each node
};

}  // namespace aerokv::devserver
