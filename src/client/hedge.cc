// SPDX-License-Identifier: Apache-2.0
#include "client/hedge.h"

#include <algorithm>

#include "client/io_loop.h"

namespace aerokv::client {

Status HedgeLeg::unit(const wire::MessageHeader& header) {
  answers_ = referee_.may_answer(connection_, command_, header.result_code);
  return answers_ ? command_.unit(header) : Status();
}

Status HedgeLeg::field(const wire::Field& field) {
  return answers_ ? command_.field(field) : Status();
}

wire::ValueTarget HedgeLeg::value_target(std::string_view bin, uint8_t particle, uint64_t bytes) {
  return answers_ ? command_.value_target(bin, particle, bytes) : wire::ValueTarget::skip();
}

Status HedgeLeg::value(std::string_view bin, uint8_t particle, Bytes value) {
  return answers_ ? command_.value(bin, particle, value) : Status();
}

Status HedgeLeg::unit_end() {
  return answers_ ? command_.unit_end() : Status();
}

bool IoLoop::may_answer(Connection& connection, Command& command, uint8_t code) {
  if (command.hedge_ == nullptr) return true;
  const bool is_second = command.hedge_ == &connection;
  Connection& other = *(is_second ? command.connection_ : command.hedge_);
  command.hedge_ = nullptr;
  if (is_final(code)) {
    command.connection_ = &connection;
    command.last_node_ = connection.node().get();
    if (is_second) stats_.hedges_won.fetch_add(1, std::memory_order_relaxed);
    other.detach(command);
    end_transfer(*other.node(), command);
    return true;
  }
  command.connection_ = &other;
  command.last_node_ = other.node().get();
  connection.orphan(command);
  end_transfer(*connection.node(), command);
  other.make_single(command);
  const FaultRule& rule = rule_of(fault_of_code(code));
  if (rule.wakes_tend) wake_tend_();
  connection.node()->note_failure(turned_at_, rule.blame,
                                  wire::status_from_result(code, "request"));
  return false;
}

/// `connection` is lost for `command`. True if that was its last leg.
bool IoLoop::drop_leg(Command& command, const Connection* connection) {
  Connection* const other = command.hedge_ == connection ? command.connection_ : command.hedge_;
  command.hedge_ = nullptr;
  command.connection_ = other;
  if (other == nullptr) return true;
  command.last_node_ = other->node().get();
  other->make_single(command);
  return false;
}

/// Asks second replicas for what is later than most answers of its node.
void IoLoop::hedge_late_reads(TimePoint now) {
  if (overslept_at_ == now || !map_) return;  // late ourselves
  std::vector<std::pair<Connection*, Command*>> late;
  for (auto& [key, pool] : pools_) {
    if (!is_read_lane(pool.lane)) continue;
    const Duration known = pool.latency.p99();
    const Duration limit = known == Duration::zero() ? Duration(kHedgeAfterFirst)
                                                     : std::max<Duration>(known, kHedgeAfterMin);
    for (const auto& connection : pool.connections) {
      if (connection->silence(now) < limit || connection->has_begun()) continue;
      connection->late_reads(now - limit, [&](Command& command) {
        if (!command.was_hedged_ && !command.plan.node)
          late.emplace_back(connection.get(), &command);
      });
    }
  }
  for (const auto& [connection, command] : late) {
    // Opening a connection for one of them may have ended another.
    if (command->connection_ == connection && !hedge(*connection, *command, now)) return;
  }
}

/// False if no further hedge may be sent now.
bool IoLoop::hedge(Connection& first, Command& command, TimePoint now) {
  const Routing routing{options_.replica, options_.rack_id};
  const NodePtr node = choose_node(*map_, routing, command.plan.partition, false,
                                   command.attempt_ + 1, command.spread_, first.node().get());
  if (!node || node == first.node() || node->is_suspect()) return true;
  if (!hedge_budget_.try_take(now)) return false;
  Pool& pool = pool_of(node, lane_of(command.plan));
  const bool may_go = pool.waiting.empty() && has_budget(pool, command, now);
  Connection* second = may_go ? find_room(pool, command, now) : nullptr;
  if (second == nullptr) {  // what waits there, or for bytes, is older
    hedge_budget_.give_back();
    return true;
  }
  const milliseconds timeout =
      std::min(options_.read_attempt_timeout * 2 / 3, remaining_ms(command.plan.deadline, now));
  Command::Encoded request;
  if (!command.encode(static_cast<uint32_t>(timeout.count()), request)) return true;
  command.was_hedged_ = true;
  command.hedge_ = second;
  stats_.attempts.fetch_add(1, std::memory_order_relaxed);
  stats_.hedges.fetch_add(1, std::memory_order_relaxed);
  node->requests.fetch_add(1, std::memory_order_relaxed);
  begin_transfer(pool, command, now);
  first.make_leg(command, *this);
  second->enqueue(&command, std::move(request), now);
  second->make_leg(command, *this);
  update_interest(*second);  // it leaves in the next turn
  return true;
}

}  // namespace aerokv::client
