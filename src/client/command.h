// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <cstdint>
#include <vector>

#include "base/clock.h"
#include "client/node.h"
#include "wire/reply_decoder.h"
#include "wire/result.h"

namespace aerokv::client {

/// One request with its answer, as a state machine that the client drives.
///
/// Life: submit() hands it to an I/O thread. There encode() is called for every attempt, the answer
/// of an attempt is decoded into it (it is the ReplySink), and done() is called exactly once, after
/// which the client does not touch it again: done() may delete it. All these calls come from one
/// I/O thread at a time. Buffers that encode() or value_target() hand out must live until done().
class Connection;

class Command : public wire::ReplySink {
 public:
  /// What the client needs to know to route and to retry.
  struct Plan {
    uint32_t partition = 0;
    /// Set: only this node is asked, and only once, or again after a new login. Unset: routed by
    /// partition, with retries.
    NodePtr node;
    wire::ReplyKind kind = wire::ReplyKind::record;
    bool is_write = false;
    TimePoint deadline{};
    /// Payload bytes that this request moves in either direction; counts against the byte budget.
    uint64_t payload_bytes = 0;
    /// Its connection broke before: nothing may wait behind it on the next one.
    bool alone = false;
    /// With `node`: attempts of the caller that went before, which makes this one more patient; and
    /// whether the caller could ask another node, which makes it less so.
    uint32_t earlier_attempts = 0;
    bool has_alternative = false;
    /// It counts against the retry budget, for whose turn it waits.
    bool is_budgeted = false;
  };

  /// A request as it leaves: `head` first, then `payload` from where it lies.
  struct Encoded {
    std::vector<std::byte> head;
    Bytes payload;
  };

  Plan plan;

  /// Fills `request` for one attempt; `timeout_ms` is the server-side limit to put into the
  /// message. Forget what an earlier attempt received. An error ends the command.
  virtual Status encode(uint32_t timeout_ms, Encoded& request) = 0;

  /// The server's code of a complete answer, which decides about a retry; kOk for multi-part ones.
  [[nodiscard]] virtual uint8_t result_code() const = 0;

  /// The end: `status` is ok if an answer with a final code was decoded (of any code: the command
  /// knows it), else why there is none.
  virtual void done(Status status) = 0;

 private:
  friend class Client;
  friend class HedgeLeg;
  friend class IoLoop;
  friend class Connection;
  /// The client has taken it over, perhaps not for the first time.
  void begin(uint32_t spread) {
    spread_ = spread;
    attempt_ = 0;
    last_node_ = nullptr;
    sent_ = in_doubt_ = was_hedged_ = false;
    last_error_ = {};
    connection_ = hedge_ = nullptr;
  }

  const void* owner_ = nullptr;  // the client that submitted it; only compared
  uint32_t attempt_ = 0;
  uint32_t spread_ = 0;
  TimePoint first_failure_{};
  StoreWindow::Ticket store_ticket_;  // of the attempt under way, if it stores a payload
  const Node* last_node_ = nullptr;   // of the attempt before; only compared
  bool sent_ = false;                 // the last attempt had left completely
  bool in_doubt_ = false;             // a write that some attempt may have applied
  bool was_hedged_ = false;
  TimePoint sent_at_{};               // when the attempt under way began
  Connection* connection_ = nullptr;  // of the attempt under way
  Connection* hedge_ = nullptr;       // of its second leg, if there is one
  Status last_error_;
};

}  // namespace aerokv::client
