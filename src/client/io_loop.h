// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <sys/epoll.h>

#include <atomic>
#include <deque>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <optional>
#include <queue>
#include <span>
#include <thread>
#include <vector>

#include "base/fd.h"
#include "client/command.h"
#include "client/connection.h"
#include "client/faults.h"
#include "client/hedge.h"
#include "client/options.h"
#include "client/pool.h"

namespace aerokv::client {

/// What is left until `deadline`, at least one.
inline milliseconds remaining_ms(TimePoint deadline, TimePoint now) {
  return std::max(milliseconds(1), std::chrono::ceil<milliseconds>(deadline - now));
}

/// Counters of all I/O threads; relaxed.
struct ClientStats {
  std::atomic<uint64_t> attempts{0};
  std::atomic<uint64_t> retries{0};
  std::atomic<uint64_t> stalls{0};
  std::atomic<uint64_t> hedges{0};      // second requests for reads that were late
  std::atomic<uint64_t> hedges_won{0};  // those whose answer came first
  std::atomic<uint64_t> probes{0};
  std::atomic<uint64_t> connection_errors{0};
  std::atomic<uint64_t> payload_bytes_sent{0};
  std::atomic<uint64_t> payload_bytes_received{0};
  std::atomic<uint64_t> bytes_in_flight{0};
  std::atomic<uint64_t> bytes_in_flight_peak{0};
};

/// One I/O thread: an epoll loop over its own connections to all nodes. Commands come in through
/// submit() and stay on this thread until they are done; no locks are held while they run.
class IoLoop final : private HedgeLeg::Referee {
 public:
  /// `wake_tend` is called (on this thread) when a failure hints at a changed cluster.
  IoLoop(const ClientOptions& options, ClientStats& stats, std::function<void()> wake_tend);
  ~IoLoop() override;

  Status start();
  /// Ends the thread; commands still here are done with Code::closed. Idempotent. Not to be called
  /// from the thread itself.
  void stop();

  /// Thread-safe; never blocks on I/O. After stop() the commands are done at once, with closed.
  void submit(std::span<Command* const> commands);

  /// Runs `task` on this thread soon, or at `due`; it must not block. Thread-safe. stop() runs what
  /// is left; after it a task runs at once on the caller's thread.
  void post(const void* owner, std::function<void()> task, TimePoint due = {});

  /// Ends the commands of `owner` with Code::closed, runs its tasks, and waits for that; see
  /// Engine::release(). Thread-safe; not to be called from the thread itself.
  void release(const void* owner);

  /// Thread-safe.
  void set_map(std::shared_ptr<const ClusterMap> map);

 private:
  struct Task {
    const void* owner = nullptr;
    std::function<void()> run;
  };
  struct Delayed {
    TimePoint due;
    Command* command = nullptr;
    bool operator>(const Delayed& other) const { return due > other.due; }
  };

  void run();
  void run_tasks(TimePoint now);
  void take_inbox(TimePoint now);
  void release_here(const void* owner);
  void run_tasks_of(const void* owner);
  [[nodiscard]] std::vector<Command*> take_commands_of(const void* owner, TimePoint now);
  void route(Command* command, TimePoint now);
  void drive_events(std::span<epoll_event> events, TimePoint now);
  void pump_all(TimePoint now);
  void pump(Pool& pool, TimePoint now);
  [[nodiscard]] bool has_budget(const Pool& pool, const Command& command, TimePoint now) const;
  Connection* find_room(Pool& pool, const Command& command, TimePoint now);
  Connection* open_connection(Pool& pool, TimePoint now);
  void dispatch(Pool& pool, Connection& connection, Command* command, TimePoint now);
  void drive(Pool& pool, Connection* connection, uint32_t events, TimePoint now);
  void answered(const NodePtr& node, Command* command, TimePoint now);
  void finish_answered(Command* command);
  void fail_connection(Pool& pool, Connection* connection, const Fault& fault, TimePoint now);
  std::vector<Command*> discard(Pool& pool, Connection* connection);
  void attempt_failed(Command* command, Fault fault, TimePoint now);
  [[nodiscard]] NodePtr next_replica(const Command& command) const;
  Duration pause_before(const Command& command, const FaultRule& rule, Next next,
                        const NodePtr& target, TimePoint now);
  [[nodiscard]] bool is_suspect(const Node* node) const;
  [[nodiscard]] bool may_read_again(const Command& command, const Fault& fault,
                                    TimePoint now) const;
  void hold(Command* command, const Node& node, TimePoint now);
  void expire(Command* command, const Node* node);
  bool may_answer(Connection& connection, Command& command, uint8_t code) override;
  bool drop_leg(Command& command, const Connection* connection);
  void hedge_late_reads(TimePoint now);
  bool hedge(Connection& first, Command& command, TimePoint now);
  void finish(Command* command, Status status);
  void update_interest(Connection& connection);
  void check_time(TimePoint now);
  void check_connections(TimePoint now);
  [[nodiscard]] std::optional<Fault> fault_of_time(Pool& pool, const Connection& connection,
                                                   TimePoint now) const;
  [[nodiscard]] Duration silence_limit(Pool& pool, const Connection& connection,
                                       TimePoint now) const;
  [[nodiscard]] bool has_alternative(const Command& command, const NodePtr& node) const;
  void expire_all(TimePoint now);
  void leave_suspects(TimePoint now);
  void probe(const NodePtr& node, TimePoint now);
  void expire_waiting(Pool& pool, TimePoint now);
  void trim_idle(Pool& pool, TimePoint now);
  void drop_inactive_pools(TimePoint now);
  [[nodiscard]] int wait_ms(TimePoint now) const;
  Pool& pool_of(const NodePtr& node, Lane lane);
  void close_everything();
  void begin_transfer(Pool& pool, Command& command, TimePoint now);
  void end_transfer(Node& node, const Command& command);
  void note_store_answer(Node& node, const Command& command, TimePoint now);

  const ClientOptions& options_;
  ClientStats& stats_;
  const std::function<void()> wake_tend_;
  const uint64_t bytes_budget_;  // this thread's share of the whole

  UniqueFd epoll_;
  UniqueFd wake_fd_;
  std::thread thread_;

  std::mutex mutex_;
  std::vector<Command*> inbox_;                 // guarded by mutex_
  std::multimap<TimePoint, Task> tasks_;        // guarded by mutex_; by due time
  std::shared_ptr<const ClusterMap> next_map_;  // guarded by mutex_
  bool stopping_ = false;                       // guarded by mutex_

  // Owned by the thread.
  std::shared_ptr<const ClusterMap> map_;
  std::map<std::pair<Node*, Lane>, Pool> pools_;
  std::priority_queue<Delayed, std::vector<Delayed>, std::greater<>> delayed_;
  uint64_t load_bytes_ = 0;    // payload bytes under way
  uint64_t store_bytes_ = 0;   // the same of stores
  bool turn_was_cut_ = false;  // some store has room and waits for its turn
  uint32_t spread_ = 0;
  TimePoint turned_at_{};
  TimePoint lagged_at_{};     // we had not looked for some milliseconds
  TimePoint overslept_at_{};  // for longer than we wanted
  TimePoint checked_at_{};
  TimePoint next_check_{};
  TimePoint next_deadline_ = TimePoint::max();  // nothing here has an earlier one
  bool any_suspect_ = false;
  RetryBudget retry_budget_{RetryBudget::Limits{}};
  RetryBudget hedge_budget_{kHedgeLimits};
  uint64_t random_state_;
  TimePoint next_trim_{};
  TimePoint next_task_ = TimePoint::max();
  size_t command_count_ = 0;
};

}  // namespace aerokv::client
