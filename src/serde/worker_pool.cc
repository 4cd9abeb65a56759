// SPDX-License-Identifier: Apache-2.0
#include "serde/worker_pool.h"

#include <atomic>
#include <exception>
#include <system_error>
#include <utility>

namespace aerokv::serde {

struct WorkerPool::Parts {
  const std::function<void(size_t)>& part;
  const size_t count;
  std::atomic<size_t> next{0};
  size_t helpers = 0;              // guarded by the pool's mutex
  std::exception_ptr thrown = {};  // guarded by thrown_mutex
  std::mutex thrown_mutex{};
};

Result<std::unique_ptr<WorkerPool>> WorkerPool::start(size_t workers) {
  std::unique_ptr<WorkerPool> pool(new WorkerPool(workers));
  pool->threads_.reserve(workers);
  try {
    while (pool->threads_.size() < workers) {
      pool->threads_.emplace_back([raw = pool.get()] { raw->work(); });
    }
  } catch (const std::system_error& error) {
    const size_t started = pool->threads_.size();
    pool->close();
    return Status(Code::overloaded, "worker pool: thread " + std::to_string(started + 1) + " of " +
                                        std::to_string(workers) + ": " + error.what());
  }
  return pool;
}

WorkerPool::~WorkerPool() {
  close();
}

Status WorkerPool::post(std::shared_ptr<PoolTask> task) {
  {
    const std::scoped_lock lock(mutex_);
    if (closed_) return {Code::closed, "worker pool: closed"};
    tasks_.push_back(std::move(task));
  }
  wake_.notify_one();
  return {};
}

void WorkerPool::close() {
  const std::scoped_lock closing(close_mutex_);
  std::deque<std::shared_ptr<PoolTask>> cancelled;
  std::vector<size_t> begun;
  {
    const std::scoped_lock lock(mutex_);
    closed_ = true;
    begun.reserve(tasks_.size());
    cancelled.swap(tasks_);
    // Nobody claims a unit of these any more; each counts as running until cancel() has returned.
    for (const auto& task : cancelled) {
      begun.push_back(std::exchange(task->begun_, task->units_));
      ++task->running_;
    }
  }
  wake_.notify_all();
  for (size_t i = 0; i < cancelled.size(); ++i) {
    const auto& task = cancelled[i];
    task->cancel(begun[i]);
    std::unique_lock lock(mutex_);
    const bool was_last = --task->running_ == 0;
    lock.unlock();
    if (was_last) task->finish();
  }
  for (std::thread& thread : threads_) thread.join();
  threads_.clear();
}

void WorkerPool::work() {
  std::unique_lock lock(mutex_);
  while (true) {
    if (!open_.empty()) {
      help(lock);
    } else if (!tasks_.empty()) {
      run_unit(lock);
    } else if (closed_) {
      return;
    } else {
      ++idle_;
      wake_.wait(lock);
      --idle_;
    }
  }
}

void WorkerPool::run_unit(std::unique_lock<std::mutex>& lock) {
  const std::shared_ptr<PoolTask> task = tasks_.front();
  const bool has_unit = task->begun_ < task->units_;
  const size_t unit = task->begun_;
  if (has_unit) ++task->begun_;
  ++task->running_;
  if (task->begun_ == task->units_) {
    tasks_.pop_front();
  } else if (idle_ > 0) {
    wake_.notify_one();  // post() woke one thread; each one wakes the next while there is work
  }
  lock.unlock();
  if (has_unit) task->run(unit, *this);
  lock.lock();
  const bool was_last = --task->running_ == 0 && task->begun_ == task->units_;
  if (!was_last) return;
  lock.unlock();
  task->finish();
  lock.lock();
}

void WorkerPool::help(std::unique_lock<std::mutex>& lock) {
  Parts* const parts = open_.front();
  ++parts->helpers;
  lock.unlock();
  claim_parts(*parts);
  lock.lock();
  // No part is left: whoever sees that first closes the entry, so that others go on to other work.
  open_.remove(parts);
  if (--parts->helpers == 0) helped_.notify_all();
}

void WorkerPool::claim_parts(Parts& parts) {
  for (size_t i = parts.next.fetch_add(1); i < parts.count; i = parts.next.fetch_add(1)) {
    try {
      parts.part(i);
    } catch (...) {
      const std::scoped_lock lock(parts.thrown_mutex);
      if (!parts.thrown) parts.thrown = std::current_exception();
    }
  }
}

void WorkerPool::run(size_t count, const std::function<void(size_t)>& part) {
  if (count <= 1 || workers_ == 1) {
    for (size_t i = 0; i < count; ++i) part(i);
    return;
  }
  Parts parts{part, count};
  {
    const std::scoped_lock lock(mutex_);
    open_.push_back(&parts);
  }
  wake_.notify_all();
  claim_parts(parts);
  std::unique_lock lock(mutex_);
  open_.remove(&parts);
  helped_.wait(lock, [&parts] { return parts.helpers == 0; });
  lock.unlock();
  if (parts.thrown) std::rethrow_exception(parts.thrown);
}

}  // namespace aerokv::serde
