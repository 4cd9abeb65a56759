// SPDX-License-Identifier: Apache-2.0
// Threads that share out the units of tasks, and the parts of units that are large.
#pragma once

#include <condition_variable>
#include <cstddef>
#include <deque>
#include <functional>
#include <list>
#include <memory>
#include <mutex>
#include <thread>
#include <vector>

#include "aerokv/serde.h"

namespace aerokv::serde {

/// Work of several units that may run at the same time on different threads.
class PoolTask {
 public:
  explicit PoolTask(size_t units) : units_(units) {}
  PoolTask(const PoolTask&) = delete;
  PoolTask& operator=(const PoolTask&) = delete;
  virtual ~PoolTask() = default;

  /// Does one unit. `parallel` may be used until it returns.
  virtual void run(size_t unit, Parallel& parallel) noexcept = 0;
  /// Called at most once, when the pool closes: units from `first` on never run.
  virtual void cancel(size_t first) noexcept = 0;
  /// Called exactly once, after everything else, with what other threads did before in sight.
  virtual void finish() noexcept = 0;

 private:
  friend class WorkerPool;
  const size_t units_;
  size_t begun_ = 0;    // guarded by the pool's mutex
  size_t running_ = 0;  // guarded by the pool's mutex
};

/// A fixed number of threads. Tasks begin in the order in which they were posted; idle threads help
/// with large units before they begin others. Thread-safe.
class WorkerPool final : private Parallel {
 public:
  /// Errors: overloaded (no thread to be had).
  static Result<std::unique_ptr<WorkerPool>> start(size_t workers);
  /// close() must have been called, unless start() failed.
  ~WorkerPool() override;
  WorkerPool(const WorkerPool&) = delete;
  WorkerPool& operator=(const WorkerPool&) = delete;

  /// Queues a task; one of no units is finished by a thread too. Errors: closed.
  Status post(std::shared_ptr<PoolTask> task);

  /// Cancels what has not begun, waits for the units under way, ends the threads. When it returns
  /// every task was finished. Idempotent; concurrent callers all wait. Not from within a task.
  void close();

 private:
  /// One call of run(): its parts are claimed one by one, by the caller and by whoever has time.
  struct Parts;

  explicit WorkerPool(size_t workers) : workers_(workers) {}

  void run(size_t count, const std::function<void(size_t)>& part) override;
  void work();
  void run_unit(std::unique_lock<std::mutex>& lock);
  void help(std::unique_lock<std::mutex>& lock);
  static void claim_parts(Parts& parts);

  const size_t workers_;
  std::mutex close_mutex_;
  std::vector<std::thread> threads_;  // guarded by close_mutex_ once started

  std::mutex mutex_;
  std::condition_variable wake_;
  std::condition_variable helped_;
  std::deque<std::shared_ptr<PoolTask>> tasks_;  // guarded by mutex_: with units not begun
  std::list<Parts*> open_;                       // guarded by mutex_: may have parts unclaimed
  size_t idle_ = 0;                              // guarded by mutex_
  bool closed_ = false;                          // guarded by mutex_
};

}  // namespace aerokv::serde
