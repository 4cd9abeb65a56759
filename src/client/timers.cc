// SPDX-License-Identifier: Apache-2.0
// What an I/O thread does because time has passed: deadlines, silence, idle connections.
#include <algorithm>
#include <optional>

#include "client/io_loop.h"

namespace aerokv::client {
namespace {

constexpr milliseconds kCheckInterval{1};
constexpr std::chrono::seconds kTrimInterval{1};
constexpr std::chrono::seconds kExtraConnectionTtl{2};
constexpr int kTickMs = 5;
// However late we are ourselves, after this time silence counts.
constexpr milliseconds kUncheckedMax{50};
constexpr int kProbeTickMs = 20;

// A connection to a node that answers on others may be silent this many times as long.
constexpr int kPatienceWithBusyNode = 4;
// Silence of this many times the longest wait of late is more than a busy moment.
constexpr int kPatienceOverPeak = 3;
// Slower than this is too slow, if a node sends to nobody else: a fifth of what deadlines expect.
constexpr uint64_t kSlowestBytesPerMs = 10'000;

Duration time_for(uint64_t bytes) {
  return std::chrono::microseconds(static_cast<int64_t>(bytes * 1000 / kSlowestBytesPerMs));
}

}  // namespace

void IoLoop::check_time(TimePoint now) {
  while (!delayed_.empty() && delayed_.top().due <= now) {
    Command* command = delayed_.top().command;
    delayed_.pop();
    if (now >= command->plan.deadline) {
      expire(command, nullptr);
    } else {
      route(command, now);
    }
  }
  if (now >= next_deadline_) expire_all(now);
  if (now < next_check_) return;
  next_check_ = now + kCheckInterval;
  // Silence proves nothing while we have not looked ourselves.
  if (overslept_at_ != now || now - checked_at_ > kUncheckedMax) {
    checked_at_ = now;
    check_connections(now);
  }
  if (options_.hedge_reads && command_count_ > 0) hedge_late_reads(now);
  leave_suspects(now);
  if (now >= next_trim_) {
    next_trim_ = now + kTrimInterval;
    for (auto& [key, pool] : pools_) trim_idle(pool, now);
    drop_inactive_pools(now);
  }
}

void IoLoop::check_connections(TimePoint now) {
  for (auto& [key, pool] : pools_) {
    for (size_t i = 0; i < pool.connections.size();) {
      Connection* connection = pool.connections[i].get();
      const std::optional<Fault> fault = fault_of_time(pool, *connection, now);
      if (!fault) {
        ++i;
        continue;
      }
      stats_.stalls.fetch_add(1, std::memory_order_relaxed);
      fail_connection(pool, connection, *fault, now);
    }
  }
}

/// What time says against a connection, if anything.
std::optional<Fault> IoLoop::fault_of_time(Pool& pool, const Connection& connection,
                                           TimePoint now) const {
  const Duration silent = now - connection.last_progress();
  if (!connection.is_ready()) {
    const Duration limit = std::min<Duration>(
        options_.connect_timeout, options_.read_attempt_timeout * (options_.tls.enable ? 2 : 1));
    if (silent <= limit) return std::nullopt;
    return Fault{FaultKind::connect_timeout, {Code::timeout, "no connection in time"}};
  }
  if (connection.flights() == 0) return std::nullopt;
  const Duration waited = now - connection.head_since();
  const Duration floor = options_.read_attempt_timeout / 2;
  if (silent <= floor && waited <= floor) return std::nullopt;
  const Duration limit = silence_limit(pool, connection, now);
  // A node that answers others is busy, not frozen: giving up on it would only make it busier. But
  // one request that it has lost must not wait for ever.
  const bool is_dead = pool.node->silence(now) > limit;
  const Duration busy_limit =
      connection.has_writes()
          ? kPatienceWithBusyNode * limit
          : std::clamp<Duration>(kPatienceWithBusyNode * pool.latency.peak(now),
                                 std::max<Duration>(limit, options_.read_attempt_timeout),
                                 kPatienceWithBusyNode * limit);
  if (silent > (is_dead ? limit : busy_limit)) {
    pool.latency.add_given_up(silent, now);
    return Fault{is_dead ? FaultKind::node_silence : FaultKind::silence,
                 {Code::timeout, "no byte for too long"}};
  }
  const Connection::Flight& head = *connection.head_flight();
  if (connection.has_writes() || head.kind == wire::ReplyKind::query) return std::nullopt;
  // Bytes that the node sends to others are no proof against it: they share the link.
  const Duration whole = 2 * limit + time_for(head.payload_bytes);
  const Duration shared = std::min(time_for(connection.node_bytes_since_head()), 3 * whole);
  if (waited <= whole + shared) return std::nullopt;
  return Fault{FaultKind::too_slow, {Code::timeout, "too few bytes for too long"}};
}

/// How long a connection may be silent. A read that can turn to another replica is as patient as
/// the node has been quick of late.
Duration IoLoop::silence_limit(Pool& pool, const Connection& connection, TimePoint now) const {
  // The server may lawfully be silent while it waits for replicas. We wait longer than it does, so
  // that a server that gives up is heard.
  if (connection.has_writes()) return options_.write_attempt_timeout * 3 / 2;
  const Duration longest = options_.read_attempt_timeout;
  const Command* const head = connection.head();
  const uint32_t attempts = head == nullptr ? 0 : head->attempt_ + head->plan.earlier_attempts;
  Duration limit = longest;
  const Duration peak = pool.latency.peak(now);
  if (peak > Duration::zero() && (head == nullptr || has_alternative(*head, pool.node))) {
    limit = std::clamp<Duration>(kPatienceOverPeak * peak, longest / 2, longest);
  }
  // Who is silent on several connections is busy rather than broken, and often there is no other
  // replica: each attempt waits twice as long.
  return limit * (1 << std::min(attempts, 4U));
}

bool IoLoop::has_alternative(const Command& command, const NodePtr& node) const {
  if (command.plan.node) return command.plan.has_alternative;
  if (!map_) return false;
  const Routing routing{options_.replica, options_.rack_id};
  const NodePtr other = choose_node(*map_, routing, command.plan.partition, false,
                                    command.attempt_ + 1, command.spread_, node.get());
  return other && other != node && !other->is_suspect();
}

/// Ends what has passed its deadline, wherever it is, and finds out when that is next.
void IoLoop::expire_all(TimePoint now) {
  next_deadline_ = TimePoint::max();
  std::vector<std::pair<Pool*, Connection*>> expired;
  for (auto& [key, pool] : pools_) {
    expire_waiting(pool, now);
    for (const auto& connection : pool.connections) {
      const TimePoint earliest = connection->earliest_deadline();
      if (earliest <= now) expired.emplace_back(&pool, connection.get());
    }
  }
  const Fault fault{FaultKind::deadline, {Code::timeout, "the deadline of a request passed"}};
  for (const auto& [pool, connection] : expired) fail_connection(*pool, connection, fault, now);
  std::vector<Delayed> kept;
  for (; !delayed_.empty(); delayed_.pop()) {
    const Delayed& delayed = delayed_.top();
    if (delayed.command->plan.deadline <= now) {
      expire(delayed.command, nullptr);
    } else {
      kept.push_back(delayed);
    }
  }
  for (const Delayed& delayed : kept) {
    next_deadline_ = std::min(next_deadline_, delayed.command->plan.deadline);
    delayed_.push(delayed);
  }
  for (auto& [key, pool] : pools_) {
    for (const Command* command : pool.waiting) {
      next_deadline_ = std::min(next_deadline_, command->plan.deadline);
    }
    for (const auto& connection : pool.connections) {
      next_deadline_ = std::min(next_deadline_, connection->earliest_deadline());
    }
  }
}

void IoLoop::expire_waiting(Pool& pool, TimePoint now) {
  if (pool.waiting.empty()) return;
  std::deque<Command*> kept;
  for (Command* command : pool.waiting) {
    if (command->plan.deadline > now) {
      kept.push_back(command);
    } else {
      expire(command, pool.node.get());
    }
  }
  pool.waiting.swap(kept);
}

/// Reads that wait for a node that has become a suspect turn to another replica, writes wait
/// elsewhere; and suspects are asked whether they work again.
void IoLoop::leave_suspects(TimePoint now) {
  any_suspect_ = false;
  for (auto& [key, pool] : pools_) {
    const bool is_suspect = pool.node->is_suspect();
    any_suspect_ |= is_suspect;
    const bool was_suspect = std::exchange(pool.was_suspect, is_suspect);
    if (!is_suspect || was_suspect || pool.waiting.empty()) continue;
    std::deque<Command*> waiting = std::exchange(pool.waiting, {});
    for (Command* command : waiting) {
      if (command->plan.node) {
        pool.waiting.push_back(command);
      } else {
        route(command, now);
      }
    }
  }
  if (!map_) return;
  for (const NodePtr& node : map_->nodes) {
    if (node->is_suspect() && node->is_active() && node->begin_probe(now)) probe(node, now);
  }
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
      attempt_failed(
          command, {FaultKind::other_node, {Code::unavailable, "the node left the cluster"}}, now);
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
    limit = options_.hedge_reads ? 1 : kTickMs;
  } else if (any_suspect_) {
    limit = kProbeTickMs;
  }
  TimePoint next = next_task_;
  if (!delayed_.empty()) next = std::min(next, delayed_.top().due);
  if (command_count_ > 0) next = std::min(next, next_deadline_);
  if (next >= now + milliseconds(limit)) return limit;
  return static_cast<int>(
      std::max<int64_t>(0, std::chrono::ceil<milliseconds>(next - now).count()));
}

}  // namespace aerokv::client
