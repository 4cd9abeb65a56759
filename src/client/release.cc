// SPDX-License-Identifier: Apache-2.0
// The end of one client of a shared engine: what an I/O thread has of it, and nothing else, ends.
#include <algorithm>
#include <condition_variable>

#include "client/io_loop.h"

namespace aerokv::client {

void IoLoop::release(const void* owner) {
  std::mutex mutex;
  std::condition_variable condition;
  bool done = false;
  post(nullptr, [&] {
    release_here(owner);
    const std::scoped_lock lock(mutex);
    done = true;
    condition.notify_all();
  });
  std::unique_lock lock(mutex);
  condition.wait(lock, [&] { return done; });
}

void IoLoop::release_here(const void* owner) {
  run_tasks_of(owner);
  for (Command* command : take_commands_of(owner, SteadyClock::now())) {
    Status closed(Code::closed, "the client was closed");
    closed.set_in_doubt(command->plan.is_write && (command->sent_ || command->in_doubt_));
    finish(command, std::move(closed));
  }
}

/// Runs them now, as stop() does: the owner refuses what they start.
void IoLoop::run_tasks_of(const void* owner) {
  std::vector<std::function<void()>> tasks;
  {
    const std::scoped_lock lock(mutex_);
    for (auto it = tasks_.begin(); it != tasks_.end();) {
      if (it->second.owner != owner) {
        ++it;
        continue;
      }
      tasks.push_back(std::move(it->second.run));
      it = tasks_.erase(it);
    }
  }
  for (const std::function<void()>& task : tasks) task();
}

/// Takes its commands out of the inbox, the queues and the connections. A connection that carries
/// one of them is given up, since an answer may be half received into a buffer that is about to be
/// freed; the commands of others on it start anew.
std::vector<Command*> IoLoop::take_commands_of(const void* owner, TimePoint now) {
  std::vector<Command*> taken;
  const auto take_from = [&](auto& commands) {
    const auto mine = std::stable_partition(commands.begin(), commands.end(),
                                            [&](Command* c) { return c->owner_ != owner; });
    taken.insert(taken.end(), mine, commands.end());
    commands.erase(mine, commands.end());
  };
  {
    const std::scoped_lock lock(mutex_);
    take_from(inbox_);
  }
  command_count_ += taken.size();  // take_inbox() would have counted them
  std::vector<Delayed> kept;
  for (; !delayed_.empty(); delayed_.pop()) {
    if (delayed_.top().command->owner_ == owner) {
      taken.push_back(delayed_.top().command);
    } else {
      kept.push_back(delayed_.top());
    }
  }
  for (const Delayed& delayed : kept) delayed_.push(delayed);

  std::vector<Command*> bystanders;
  for (auto& [key, pool] : pools_) {
    take_from(pool.waiting);
    for (size_t i = pool.connections.size(); i-- > 0;) {
      Connection& connection = *pool.connections[i];
      if (!connection.carries(owner)) continue;
      for (Command* command : discard(pool, &connection)) {
        end_transfer(*pool.node, *command);
        if (!drop_leg(*command, &connection)) continue;  // the other one may go on
        (command->owner_ == owner ? taken : bystanders).push_back(command);
      }
    }
  }
  const Fault given_up{FaultKind::given_up, {Code::unavailable, "the connection was given up"}};
  for (Command* command : bystanders) {
    if (now < command->plan.deadline) {
      command->in_doubt_ |= command->plan.is_write && command->sent_;
      route(command, now);
    } else {
      attempt_failed(command, given_up, now);
    }
  }
  return taken;
}

}  // namespace aerokv::client
