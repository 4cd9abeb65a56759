// SPDX-License-Identifier: Apache-2.0
// What an I/O thread makes of answers that are no success, and of connections that break.
#include <sys/epoll.h>

#include <algorithm>

#include "base/log.h"
#include "client/faults.h"
#include "client/io_loop.h"

namespace aerokv::client {

namespace {

constexpr milliseconds kHoldPause{5};

void note_doubt(Command& command, bool was_sent, const FaultRule& rule, bool& in_doubt) {
  in_doubt |= command.plan.is_write && was_sent && rule.doubt == Doubt::if_sent;
}

}  // namespace

void IoLoop::answered(const NodePtr& node, Command* command, TimePoint now) {
  command->connection_ = nullptr;
  const uint8_t code = command->result_code();
  const FaultKind kind = code == wire::result::kOk ? FaultKind::final_code : fault_of_code(code);
  const FaultRule& rule = rule_of(kind);
  if (rule.blame == Blame::none) {
    if (kind != FaultKind::server_timeout) node->note_answer(command->sent_at_);
  } else {
    node->note_failure(now, rule.blame, wire::status_from_result(code, "request"));
  }
  if (rule.wakes_tend) wake_tend_();
  if (is_final(code)) return finish_answered(command);
  note_doubt(*command, true, rule, command->in_doubt_);
  if (command->plan.node && rule.read != Next::log_in) return finish_answered(command);
  log(LogLevel::info, "retry " + std::to_string(code), [code] {
    return wire::status_from_result(code, "request").message() +
           "; it is sent again until its deadline";
  });
  attempt_failed(command, {kind, wire::status_from_result(code, "request")}, now);
}

/// The command knows its code. Only that an earlier attempt may have done the write it does not:
/// a refusal of the last one is no proof.
void IoLoop::finish_answered(Command* command) {
  const uint8_t code = command->result_code();
  if (!command->in_doubt_ || command->plan.node || code == wire::result::kOk ||
      code == wire::result::kNotFound) {
    return finish(command, {});
  }
  Status status = wire::status_from_result(code, "request");
  status.set_in_doubt(true);
  finish(command, std::move(status));
}

/// Removes a broken connection and gives its commands their next attempt. Only the oldest can be
/// the reason: those behind it have lost nothing but time, and go on without it.
void IoLoop::fail_connection(Pool& pool, Connection* connection, const Fault& fault,
                             TimePoint now) {
  stats_.connection_errors.fetch_add(1, std::memory_order_relaxed);
  const Fault described{fault.kind, fault.status.with_context("node " + pool.node->label())};
  const FaultRule& rule = rule_of(fault.kind);
  const Command* const first = connection->is_ready() ? connection->head() : nullptr;
  const bool has_culprit = connection->is_ready();
  // Behind the one that hangs there may be others: after a silence nobody waits for anybody.
  const bool parts_all = has_culprit && fault.status.code() == Code::timeout;
  const std::vector<Command*> commands = discard(pool, connection);
  // An idle connection that the server closed says nothing about the node.
  if (!commands.empty()) {
    pool.node->note_failure(now, rule.blame, fault.status);
    if (rule.wakes_tend) wake_tend_();
  }
  for (Command* command : commands) {
    end_transfer(*pool.node, *command);
    if (!drop_leg(*command, connection)) continue;
    note_doubt(*command, command->sent_, rule, command->in_doubt_);
    const bool is_bystander =
        has_culprit && command != first && !command->plan.node && now < command->plan.deadline;
    command->plan.alone = parts_all || command == first;
    if (is_bystander) {
      command->last_error_ = described.status;
      route(command, now);
      continue;
    }
    attempt_failed(command, described, now);
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

/// What is to become of a command whose attempt ended without an answer that counts.
void IoLoop::attempt_failed(Command* command, Fault fault, TimePoint now) {
  const FaultRule& rule = rule_of(fault.kind);
  const Next next = command->plan.is_write ? rule.write : rule.read;
  // Waiting for a new login is nobody's failure: only the deadline bounds it.
  const bool awaits_login = next == Next::log_in;
  if (!awaits_login && ++command->attempt_ == 1) command->first_failure_ = now;
  const NodePtr target = command->plan.is_write ? nullptr : next_replica(*command);
  const bool is_over =
      next == Next::give_up || (command->plan.node && !awaits_login) ||
      (!command->plan.is_write && !awaits_login && !may_read_again(*command, fault, now));
  const Duration pause =
      is_over ? Duration::zero() : pause_before(*command, rule, next, target, now);
  if (is_over || now + pause >= command->plan.deadline) {
    fault.status.set_in_doubt(command->in_doubt_);
    return finish(command, std::move(fault.status));
  }
  command->last_error_ = std::move(fault.status);
  if (pause > Duration::zero()) {
    delayed_.push({now + pause, command});
  } else {
    route(command, now);
  }
}

/// The healthy node that is asked next, if it is another than the last; else null.
NodePtr IoLoop::next_replica(const Command& command) const {
  if (!map_ || command.plan.node) return nullptr;
  const Routing routing{options_.replica, options_.rack_id};
  NodePtr node = choose_node(*map_, routing, command.plan.partition, false, command.attempt_,
                             command.spread_, command.last_node_);
  return node && node.get() != command.last_node_ && !node->is_suspect() ? node : nullptr;
}

Duration IoLoop::pause_before(const Command& command, const FaultRule& rule, Next next,
                              const NodePtr& target, TimePoint now) {
  if (next == Next::log_in) return kLoginPause;
  // After many attempts a read waits for a map that names the right node.
  const bool awaits_map = !command.plan.is_write &&
                          command.attempt_ >= static_cast<uint32_t>(options_.read_attempts_max);
  const bool is_at_once = next == Next::elsewhere && target != nullptr && !awaits_map;
  Duration pause = is_at_once ? Duration::zero() : back_off(command.attempt_, random_state_);
  if (awaits_map) pause = std::min<Duration>(pause, kMapPause);
  // What a node that is away was asked for costs it nothing more, and the others only their share.
  const bool is_shift = target != nullptr && is_suspect(command.last_node_);
  if (rule.is_budgeted && !is_shift) {
    const Duration turn = retry_budget_.reserve(now);
    if (now + turn >= command.plan.deadline) retry_budget_.give_back();
    pause = std::max(pause, turn);
  }
  return pause;
}

bool IoLoop::is_suspect(const Node* node) const {
  return map_ && std::any_of(map_->nodes.begin(), map_->nodes.end(), [node](const NodePtr& known) {
           return known.get() == node && known->is_suspect();
         });
}

/// Reads end after some attempts, except where these cost no time and the cluster lives: when the
/// last known replica of a partition has died, the next map names others.
bool IoLoop::may_read_again(const Command& command, const Fault& fault, TimePoint now) const {
  if (command.attempt_ < static_cast<uint32_t>(options_.read_attempts_max)) return true;
  if (fault.status.code() != Code::unavailable || !map_) return false;
  return now - command.first_failure_ < options_.map_patience() &&
         std::any_of(
             map_->nodes.begin(), map_->nodes.end(),
             [](const NodePtr& node) { return node->is_active() && !node->is_suspect(); });
}

/// A write whose node is away: it holds no connection and no bytes until a probe, the tend or a new
/// map says more.
void IoLoop::hold(Command* command, const Node& node, TimePoint now) {
  if (command->last_error_.ok()) {
    command->last_error_ = {Code::unavailable, "node " + node.label() + " is away"};
  }
  delayed_.push({std::min(now + kHoldPause, command->plan.deadline), command});
}

/// Its deadline has passed while it was not on a connection.
void IoLoop::expire(Command* command, const Node* node) {
  Status error = command->last_error_;
  if (error.ok()) {
    error = {Code::timeout, (node == nullptr ? std::string() : "node " + node->label() + ": ") +
                                "the deadline passed before the request could be sent"};
  }
  error.set_in_doubt(command->in_doubt_);
  finish(command, std::move(error));
}

}  // namespace aerokv::client
