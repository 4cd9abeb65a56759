// SPDX-License-Identifier: Apache-2.0
#include "aerokv/connector.h"

#include <unistd.h>

#include <atomic>
#include <condition_variable>
#include <deque>
#include <mutex>

#include "base/fd.h"

namespace aerokv {

/// Shared with the batches under way: a batch may end after its connector was destroyed.
struct Connector::State {
  UniqueFd event_fd;
  pid_t owner = ::getpid();

  std::mutex mutex;
  std::condition_variable idle;
  std::deque<Completion> completions;  // guarded by mutex
  uint64_t next_id = 1;                // guarded by mutex
  uint64_t running = 0;                // guarded by mutex: batches in the store
  uint64_t drained = 0;                // guarded by mutex
  bool closed = false;                 // guarded by mutex

  void complete(Completion completion) {
    const std::scoped_lock lock(mutex);
    completions.push_back(std::move(completion));
    // Under the lock that drain() clears it under, so that no wake-up outlives its completion.
    signal_event_fd(event_fd.get());
    if (--running == 0) idle.notify_all();
  }
};

namespace {

constexpr size_t kErrorBytesMax = 500;

Completion completion_of(Operation operation, uint64_t id, std::vector<ItemResult> results) {
  Completion completion;
  completion.id = id;
  completion.bits.reserve(results.size());
  size_t errors = 0;
  const Status* first = nullptr;
  for (const ItemResult& result : results) {
    completion.bits.push_back(result.outcome == Outcome::hit ? 1 : 0);
    if (result.outcome != Outcome::error) continue;
    if (errors++ == 0) first = &result.status;
  }
  const bool tolerates_errors = operation == Operation::exists;
  completion.ok = errors == 0 || (tolerates_errors && errors < results.size());
  if (!completion.ok && first != nullptr) {
    completion.error = std::to_string(errors) + " of " + std::to_string(results.size()) +
                       " keys failed: " + std::string(code_name(first->code())) + ": " +
                       first->message();
    if (completion.error.size() > kErrorBytesMax) completion.error.resize(kErrorBytesMax);
  }
  completion.results = std::move(results);
  return completion;
}

}  // namespace

Connector::Connector(std::shared_ptr<Store> store, std::shared_ptr<State> state)
    : store_(std::move(store)), state_(std::move(state)) {}

Result<std::unique_ptr<Connector>> Connector::create(std::shared_ptr<Store> store) {
  auto state = std::make_shared<State>();
  Result<UniqueFd> fd = make_event_fd();
  if (!fd) return fd.error();
  state->event_fd = *std::move(fd);
  return std::unique_ptr<Connector>(new Connector(std::move(store), std::move(state)));
}

Connector::~Connector() {
  if (::getpid() != state_->owner) {
    // The threads of the store did not survive the fork: nobody could be joined or told.
    new std::shared_ptr<State>(std::move(state_));
    new std::shared_ptr<Store>(std::move(store_));
    return;
  }
  close();
}

int Connector::event_fd() const {
  return state_->event_fd.get();
}

Result<uint64_t> Connector::submit(Operation operation, std::vector<Item> items) {
  if (items.empty()) return Status(Code::invalid, "submit: no keys");
  if (::getpid() != state_->owner) {
    return Status(Code::closed,
                  "submit: the connector was made before a fork; make a new one in "
                  "this process");
  }
  uint64_t id = 0;
  {
    const std::scoped_lock lock(state_->mutex);
    if (state_->closed) return Status(Code::closed, "submit: the connector is closed");
    id = state_->next_id++;
    ++state_->running;
  }
  store_->submit(operation, std::move(items),
                 [state = state_, operation, id](std::vector<ItemResult> results) {
                   state->complete(completion_of(operation, id, std::move(results)));
                 });
  return id;
}

std::vector<Completion> Connector::drain() {
  const std::scoped_lock lock(state_->mutex);
  clear_event_fd(state_->event_fd.get());
  std::vector<Completion> drained(std::make_move_iterator(state_->completions.begin()),
                                  std::make_move_iterator(state_->completions.end()));
  state_->completions.clear();
  state_->drained += drained.size();
  return drained;
}

void Connector::close() {
  if (::getpid() != state_->owner) return;
  {
    const std::scoped_lock lock(state_->mutex);
    state_->closed = true;
  }
  // The last user ends the store and with it all batches at once; others wait for their own
  // batches, which end by their deadlines.
  if (store_.use_count() == 1) store_->close();
  std::unique_lock lock(state_->mutex);
  state_->idle.wait(lock, [this] { return state_->running == 0; });
}

uint64_t Connector::pending() const {
  const std::scoped_lock lock(state_->mutex);
  return state_->next_id - 1 - state_->drained;
}

const std::shared_ptr<Store>& Connector::store() const {
  return store_;
}

}  // namespace aerokv
