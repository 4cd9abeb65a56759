// SPDX-License-Identifier: Apache-2.0
#include <unistd.h>

#include <atomic>
#include <deque>
#include <exception>
#include <mutex>
#include <unordered_map>
#include <utility>

#include "aerokv/serde.h"
#include "base/fd.h"
#include "base/log.h"
#include "serde/worker_pool.h"

namespace aerokv {
namespace {

using serde::PoolTask;
using serde::WorkerPool;

constexpr size_t kWorkersMax = 256;
constexpr size_t kErrorsKept = 64;

enum class Direction : uint8_t { serialize, deserialize };

std::atomic<uint64_t> failure_counts[2];  // by direction; of the process

/// What the tasks share with their processor. Outlives both.
struct Shared {
  Serde serde;
  UniqueFd fds[2];  // by direction; open until no task can end any more

  std::mutex mutex;
  std::deque<SerdeFailure> errors;  // guarded by mutex: the newest

  void report(Direction direction, SerdeTaskId id, size_t index, Status status) noexcept {
    const bool writes = direction == Direction::serialize;
    try {
      if (status.code() != Code::closed) {
        failure_counts[static_cast<size_t>(direction)].fetch_add(1, std::memory_order_relaxed);
        log(LogLevel::warning, writes ? "serialize" : "deserialize", [&] {
          return "serde " + serde.tag + ": an object was not " + (writes ? "stored" : "loaded") +
                 ": " + status.message() +
                 (writes ? "; its layout or the buffer does not fit the serde"
                         : "; readers and writers must have the same serde, parameters and keys");
        });
      }
      const std::scoped_lock lock(mutex);
      if (errors.size() == kErrorsKept) errors.pop_front();
      errors.push_back({id, index, std::move(status)});
    } catch (const std::exception&) {
      return;  // out of memory: the task fails without its reason
    }
  }
};

class Task final : public PoolTask {
 public:
  Task(std::shared_ptr<Shared> shared, SerdeTaskId id, std::vector<SerializeItem> items)
      : PoolTask(items.size()),
        shared_(std::move(shared)),
        id_(id),
        direction_(Direction::serialize),
        sources_(std::move(items)) {
    result_.bytes.resize(sources_.size());
  }
  Task(std::shared_ptr<Shared> shared, SerdeTaskId id, std::vector<DeserializeItem> items)
      : PoolTask(items.size()),
        shared_(std::move(shared)),
        id_(id),
        direction_(Direction::deserialize),
        targets_(std::move(items)) {}

  void run(size_t unit, Parallel& parallel) noexcept override {
    if (failed_.load()) return;  // the task is lost already
    try {
      const Status status = transform(unit, parallel);
      if (!status) fail(unit, status);
    } catch (const std::exception& error) {
      fail_with(unit, Code::internal, error.what());
    } catch (...) {
      fail_with(unit, Code::internal, "an exception of unknown type");
    }
  }

  void cancel(size_t first) noexcept override {
    fail_with(first, Code::closed, "the processor was closed before this object was begun");
  }

  void finish() noexcept override {
    result_.ok = !failed_.load();
    if (!result_.ok) result_.bytes.clear();
    // Keys and layouts are not needed while the result waits to be taken.
    sources_ = {};
    targets_ = {};
    const std::shared_ptr<Shared> shared = std::move(shared_);
    done_.store(true);
    signal_event_fd(shared->fds[static_cast<size_t>(direction_)].get());
  }

  [[nodiscard]] Direction direction() const { return direction_; }
  [[nodiscard]] bool is_done() const { return done_.load(); }
  /// Once, after is_done().
  SerdeResult take_result() { return std::move(result_); }

 private:
  Status transform(size_t unit, Parallel& parallel) {
    return direction_ == Direction::serialize ? serialize(unit, parallel)
                                              : deserialize(unit, parallel);
  }

  Status serialize(size_t unit, Parallel& parallel) {
    const SerializeItem& item = sources_[unit];
    if (item.layout == nullptr) return {Code::invalid, "serialize: no layout"};
    const Result<size_t> written = shared_->serde.serializer->serialize(
        {*item.layout, item.source}, item.target, item.key, parallel);
    if (!written) return written.error();
    if (*written > item.target.size()) {
      return {Code::internal, "serialize: " + std::to_string(*written) + " bytes written to " +
                                  std::to_string(item.target.size())};
    }
    result_.bytes[unit] = *written;
    return {};
  }

  Status deserialize(size_t unit, Parallel& parallel) {
    const DeserializeItem& item = targets_[unit];
    if (item.layout == nullptr) return {Code::invalid, "deserialize: no layout"};
    return shared_->serde.deserializer->deserialize(item.source, {*item.layout, item.target},
                                                    item.key, parallel);
  }

  void fail(size_t unit, const Status& status) {
    failed_.store(true);
    shared_->report(direction_, id_, unit, status);
  }

  void fail_with(size_t unit, Code code, const char* reason) noexcept {
    failed_.store(true);
    try {
      fail(unit, Status(code, std::string("serde: ") + reason));
    } catch (const std::exception&) {
      return;  // out of memory: the task fails without its reason
    }
  }

  std::shared_ptr<Shared> shared_;  // until finish()
  const SerdeTaskId id_;
  const Direction direction_;
  std::vector<SerializeItem> sources_;
  std::vector<DeserializeItem> targets_;
  std::atomic<bool> failed_{false};
  std::atomic<bool> done_{false};
  SerdeResult result_;  // each unit writes its own number; complete once done_
};

class AsyncSerdeProcessor final : public SerdeProcessor {
 public:
  AsyncSerdeProcessor(std::shared_ptr<Shared> shared, std::unique_ptr<WorkerPool> pool)
      : state_(std::make_unique<State>()) {
    for (size_t i = 0; i < 2; ++i) state_->fds[i] = shared->fds[i].get();
    state_->shared = std::move(shared);
    state_->pool = std::move(pool);
  }
  AsyncSerdeProcessor(const AsyncSerdeProcessor&) = delete;
  AsyncSerdeProcessor& operator=(const AsyncSerdeProcessor&) = delete;

  ~AsyncSerdeProcessor() override {
    if (is_forked_child()) {
      // The threads did not survive the fork: nobody could be joined, and locks may be held for
      // ever. The memory stays; it goes with the process.
      new std::unique_ptr<State>(std::move(state_));
      return;
    }
    close_all();
  }

  [[nodiscard]] int serialize_event_fd() const override { return state_->fds[0].load(); }
  [[nodiscard]] int deserialize_event_fd() const override { return state_->fds[1].load(); }

  Result<SerdeTaskId> submit_serialize(std::vector<SerializeItem> items) override {
    return submit(std::move(items));
  }
  Result<SerdeTaskId> submit_deserialize(std::vector<DeserializeItem> items) override {
    return submit(std::move(items));
  }

  std::optional<SerdeResult> query_serialize_result(SerdeTaskId id) override {
    return query(id, Direction::serialize);
  }
  std::optional<SerdeResult> query_deserialize_result(SerdeTaskId id) override {
    return query(id, Direction::deserialize);
  }

  [[nodiscard]] Result<size_t> estimate_serialized_size(const Layout& layout) const override {
    return state_->shared->serde.serializer->estimate_serialized_size(layout);
  }

  [[nodiscard]] std::vector<SerdeFailure> last_errors() const override {
    if (is_forked_child()) return {};
    Shared& shared = *state_->shared;
    const std::scoped_lock lock(shared.mutex);
    return {shared.errors.begin(), shared.errors.end()};
  }

  void close() override {
    if (!is_forked_child()) close_all();
  }

 private:
  struct State {
    const pid_t owner = ::getpid();
    std::shared_ptr<Shared> shared;
    std::unique_ptr<WorkerPool> pool;
    std::atomic<int> fds[2] = {-1, -1};

    std::mutex close_mutex;  // held while closing: whoever comes second waits for the end

    std::mutex mutex;
    std::unordered_map<SerdeTaskId, std::shared_ptr<Task>> tasks;  // guarded by mutex: not taken
    SerdeTaskId next_id = 1;                                       // guarded by mutex
    bool closed = false;                                           // guarded by mutex
  };

  [[nodiscard]] bool is_forked_child() const { return ::getpid() != state_->owner; }

  template <typename Item>
  Result<SerdeTaskId> submit(std::vector<Item> items) {
    if (is_forked_child()) {
      return Status(Code::closed,
                    "submit: the processor was made before a fork; make a new one in this process");
    }
    State& state = *state_;
    const std::scoped_lock lock(state.mutex);
    if (state.closed) return Status(Code::closed, "submit: the processor is closed");
    const SerdeTaskId id = state.next_id++;
    auto task = std::make_shared<Task>(state.shared, id, std::move(items));
    // Known here before it can end: a result is never announced without being there.
    state.tasks.emplace(id, task);
    if (const Status posted = state.pool->post(std::move(task)); !posted) {
      state.tasks.erase(id);
      return posted;
    }
    return id;
  }

  std::optional<SerdeResult> query(SerdeTaskId id, Direction direction) {
    if (is_forked_child()) return std::nullopt;
    std::shared_ptr<Task> task;
    {
      const std::scoped_lock lock(state_->mutex);
      const auto found = state_->tasks.find(id);
      if (found == state_->tasks.end() || found->second->direction() != direction ||
          !found->second->is_done()) {
        return std::nullopt;
      }
      task = std::move(found->second);
      state_->tasks.erase(found);
    }
    return task->take_result();
  }

  void close_all() {
    State& state = *state_;
    const std::scoped_lock closing(state.close_mutex);
    {
      const std::scoped_lock lock(state.mutex);
      if (std::exchange(state.closed, true)) return;
    }
    state.pool->close();
    for (size_t i = 0; i < 2; ++i) {
      state.fds[i].store(-1);
      state.shared->fds[i].reset();
    }
  }

  std::unique_ptr<State> state_;
};

}  // namespace

Result<std::unique_ptr<SerdeProcessor>> make_async_serde_processor(Serde serde, size_t workers) {
  if (serde.serializer == nullptr || serde.deserializer == nullptr) {
    return Status(Code::invalid, "serde processor: no serializer or no deserializer");
  }
  if (workers < 1 || workers > kWorkersMax) {
    return Status(Code::invalid, "serde processor: " + std::to_string(workers) +
                                     " workers, expected 1 to " + std::to_string(kWorkersMax));
  }
  auto shared = std::make_shared<Shared>();
  shared->serde = std::move(serde);
  for (UniqueFd& fd : shared->fds) {
    Result<UniqueFd> made = make_event_fd();
    if (!made) return made.error();
    fd = *std::move(made);
  }
  Result<std::unique_ptr<WorkerPool>> pool = WorkerPool::start(workers);
  if (!pool) return pool.error();
  return std::unique_ptr<SerdeProcessor>(
      std::make_unique<AsyncSerdeProcessor>(std::move(shared), *std::move(pool)));
}

SerdeFailureCounts serde_failure_counts() {
  return {failure_counts[0].load(std::memory_order_relaxed),
          failure_counts[1].load(std::memory_order_relaxed)};
}

}  // namespace aerokv
