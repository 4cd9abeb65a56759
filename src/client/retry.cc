// SPDX-License-Identifier: Apache-2.0
// What an I/O thread makes of answers that are no success, and of connections that break.
#include <sys/epoll.h>

#include <algorithm>

#include "base/log.h"
#include "client/faults.h"
#include "client/io_loop.h"

namespace aerokv::client {

void IoLoop::answered(Command* command, TimePoint now) {
  const uint8_t code = command->result_code();
  const wire::Retry retry = wire::result_retry(code);
  command->sent_ = true;
  if (code == wire::result::kUnavailable || code == wire::result::kClusterKeyMismatch) wake_tend_();
  const bool awaits_login = retry == wire::Retry::log_in;
  if (retry == wire::Retry::never || (command->plan.node && !awaits_login)) {
    return finish(command, {});
  }
  // Full stays full for longer than a request lives; waiting would only hold its buffers.
  if (code == wire::result::kOutOfSpace) return finish(command, {});
  log(LogLevel::info, "retry " + std::to_string(code), [code] {
    return wire::status_from_result(code, "request").message() +
           "; it is sent again until its deadline";
  });
  attempt_failed(command, wire::status_from_result(code, "request"),
                 retry == wire::Retry::back_off || command->plan.is_write, now);
}

/// Removes a broken connection and gives its commands their next attempt. Only the oldest can be
/// the reason: those behind it have lost nothing but time, and go on without it.
void IoLoop::fail_connection(Pool& pool, Connection* connection, const Status& error,
                             TimePoint now) {
  stats_.connection_errors.fetch_add(1, std::memory_order_relaxed);
  const Status described = error.with_context("node " + pool.node->label());
  const bool blames_first = connection->is_ready();
  // Behind the one that hangs there may be others: after a silence nobody waits for anybody.
  const bool parts_all = blames_first && error.code() == Code::timeout;
  const std::vector<Command*> commands = discard(pool, connection);
  // An idle connection that the server closed says nothing about the node, nor does a login.
  if (!commands.empty() && error.code() != Code::denied) {
    pool.node->suspect(now, error);
    wake_tend_();
  }
  for (Command* command : commands) {
    end_transfer(*pool.node, *command);
    const bool is_bystander = blames_first && command != commands.front() && !command->plan.node &&
                              now < command->plan.deadline;
    command->plan.alone = parts_all || (blames_first && command == commands.front());
    if (is_bystander) {
      command->last_error_ = described;
      route(command);
      continue;
    }
    attempt_failed(command, described, pool.connections.empty(), now);
  }
}

std::vector<Command*> IoLoop::discard(Pool& pool, Connection* connection) {
  // Closing would not do: while a child that was forked has not called exec() the socket lives on
  // in it, and epoll would go on to name a connection that is gone.
  ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, connection->fd(), nullptr);
  std::vector<Command*> commands = connection->abandon();
  pool.node->connections_open.fetch_sub(1, std::memory_order_relaxed);
  std::erase_if(pool.connections, [&](const auto& item) { return item.get() == connection; });
  return commands;
}

void IoLoop::attempt_failed(Command* command, Status error, bool back_off, TimePoint now) {
  // Waiting for a new login is nobody's failure: only the deadline bounds it.
  const bool awaits_login = error.code() == Code::denied;
  const uint32_t attempt = awaits_login ? command->attempt_ : ++command->attempt_;
  if (attempt == 1) command->first_failure_ = now;
  const bool exhausted = (command->plan.node != nullptr && !awaits_login) ||
                         (!command->plan.is_write && !may_read_again(*command, error, now));
  // A map that names the right node is on its way.
  back_off |= attempt >= static_cast<uint32_t>(options_.read_attempts_max);
  milliseconds pause{0};
  if (awaits_login) {
    pause = kLoginPause;
  } else if (back_off && attempt > 1) {
    pause = std::min(kBackOffMax, kBackOffFirst * (1 << std::min<uint32_t>(attempt - 1, 10)));
  } else if (back_off) {
    pause = kBackOffFirst;
  }
  if (exhausted || now + pause >= command->plan.deadline) {
    error.set_in_doubt(command->plan.is_write && command->sent_);
    return finish(command, std::move(error));
  }
  command->last_error_ = std::move(error);
  if (pause > milliseconds(0)) {
    delayed_.push({now + pause, command});
  } else {
    route(command);
  }
}

/// Reads end after some attempts, except where these cost no time and the cluster lives: when the
/// last known replica of a partition has died, the next map names others.
bool IoLoop::may_read_again(const Command& command, const Status& error, TimePoint now) const {
  if (command.attempt_ < static_cast<uint32_t>(options_.read_attempts_max)) return true;
  if (error.code() != Code::unavailable || !map_) return false;
  return now - command.first_failure_ <
             options_.read_attempts_max * options_.read_attempt_timeout &&
         std::any_of(
             map_->nodes.begin(), map_->nodes.end(),
             [](const NodePtr& node) { return node->is_active() && !node->is_suspect(); });
}

}  // namespace aerokv::client
