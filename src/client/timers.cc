// SPDX-License-Identifier: Apache-2.0
// What an I/O thread does because time has passed: deadlines, silence, idle connections.
#include <algorithm>

#include "client/io_loop.h"

namespace aerokv::client {
namespace {

constexpr milliseconds kCheckInterval{1};
constexpr milliseconds kExpiryInterval{20};
constexpr std::chrono::seconds kTrimInterval{1};
constexpr std::chrono::seconds kExtraConnectionTtl{2};
constexpr int kTickMs = 5;

}  // namespace

void IoLoop::check_time(TimePoint now) {
  while (!delayed_.empty() && delayed_.top().due <= now) {
    Command* command = delayed_.top().command;
    delayed_.pop();
    route(command);
  }
  if (now < next_check_) return;
  next_check_ = now + kCheckInterval;
  const bool expire = now >= next_expiry_;
  if (expire) next_expiry_ = now + kExpiryInterval;
  for (auto& [key, pool] : pools_) {
    if (expire && !pool.waiting.empty()) expire_waiting(pool, now);
    for (size_t i = 0; i < pool.connections.size();) {
      Connection* connection = pool.connections[i].get();
      Status error;
      if (connection->is_stalled(now)) {
        stats_.stalls.fetch_add(1, std::memory_order_relaxed);
        error = {Code::timeout, "no byte for too long"};
      } else if (connection->earliest_deadline() <= now) {
        error = {Code::timeout, "the deadline of a request passed"};
      }
      if (error.ok()) {
        ++i;
      } else {
        fail_connection(pool, connection, error, now);
      }
    }
  }
  if (now >= next_trim_) {
    next_trim_ = now + kTrimInterval;
    for (auto& [key, pool] : pools_) trim_idle(pool, now);
    drop_inactive_pools(now);
  }
}

void IoLoop::expire_waiting(Pool& pool, TimePoint now) {
  std::deque<Command*> kept;
  for (Command* command : pool.waiting) {
    if (command->plan.deadline > now) {
      kept.push_back(command);
      continue;
    }
    Status error = command->last_error_.ok()
                       ? Status(Code::timeout, "node " + pool.node->label() +
                                                   ": the deadline passed before the request "
                                                   "could be sent")
                       : command->last_error_;
    error.set_in_doubt(command->plan.is_write && command->sent_);
    finish(command, std::move(error));
  }
  pool.waiting.swap(kept);
}

void IoLoop::trim_idle(Pool& pool, TimePoint now) {
  for (size_t i = pool.connections.size(); i-- > 0;) {
    Connection& connection = *pool.connections[i];
    if (connection.flights() > 0) continue;
    // The first connection is kept while it is used at all; more are opened quickly when needed.
    const Duration ttl =
        i == 0 ? Duration(options_.idle_connection_ttl)
               : std::min<Duration>(options_.idle_connection_ttl, kExtraConnectionTtl);
    if (now - connection.last_progress() < ttl) continue;
    discard(pool, &connection);
  }
}

void IoLoop::drop_inactive_pools(TimePoint now) {
  for (auto it = pools_.begin(); it != pools_.end();) {
    Pool& pool = it->second;
    if (pool.node->is_active()) {
      ++it;
      continue;
    }
    // Its work goes on elsewhere; what is under way may still be answered.
    std::deque<Command*> waiting = std::exchange(pool.waiting, {});
    for (Command* command : waiting) {
      attempt_failed(command, {Code::unavailable, "the node left the cluster"}, true, now);
    }
    if (pool.connections.empty() && pool.waiting.empty()) {
      it = pools_.erase(it);
    } else {
      ++it;
    }
  }
}

int IoLoop::wait_ms(TimePoint now) const {
  if (turn_was_cut_) return 0;
  int limit = 1000;
  if (command_count_ > 0) {
    const bool any_waiting = std::any_of(pools_.begin(), pools_.end(), [](const auto& item) {
      return !item.second.waiting.empty();
    });
    if (any_waiting) return 1;
    limit = kTickMs;
  }
  TimePoint next = next_task_;
  if (!delayed_.empty()) next = std::min(next, delayed_.top().due);
  if (next >= now + milliseconds(limit)) return limit;
  return static_cast<int>(
      std::max<int64_t>(0, std::chrono::ceil<milliseconds>(next - now).count()));
}

}  // namespace aerokv::client
