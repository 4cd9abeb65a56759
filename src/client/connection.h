// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <deque>
#include <memory>

#include "client/command.h"
#include "client/faults.h"
#include "client/hedge.h"
#include "client/node.h"
#include "client/options.h"
#include "client/socket.h"

namespace aerokv::client {

/// One pipelined connection of one I/O thread to one node. Requests leave in order, answers come
/// back in the same order. Owned by its I/O thread.
class Connection final : private wire::ReplySink {
 public:
  /// A command that this connection is busy with.
  struct Flight {
    Command* command = nullptr;  // null: nobody waits for the answer any more
    wire::ReplyKind kind = wire::ReplyKind::record;
    bool is_write = false;
    uint64_t payload_bytes = 0;
    Command::Encoded request;
    size_t sent = 0;
    TimePoint enqueued_at{};
    std::unique_ptr<HedgeLeg> leg;  // takes the answer in place of the command
  };

  /// `owner` is whatever the loop wants to find again by owner().
  Connection(NodePtr node, const ClientOptions& options, void* owner);

  /// Errors: unavailable, denied (no session).
  Status open(TimePoint now);

  /// Takes a command whose request is encoded already.
  void enqueue(Command* command, Command::Encoded request, TimePoint now);

  /// How long an answer took to begin, and for how long the node had sent nothing at all by then.
  struct Wait {
    Duration wait{};
    Duration node_silence{};
  };

  /// What happened while the connection was driven. Finished commands were removed from it.
  struct Outcome {
    std::vector<Command*> answered;        ///< in order; their answers were decoded
    Status error;                          ///< not ok: the connection is unusable
    FaultKind fault = FaultKind::garbage;  ///< what kind of error it is
  };

  /// Sends and receives what the socket allows.
  void drive(bool readable, bool writable, TimePoint now, Outcome& outcome);

  /// Takes all commands off, oldest first, after a failure.
  std::vector<Command*> abandon();

  /// Nobody waits for the answer to `command` any more: it is thrown away when it comes.
  void detach(const Command& command);
  /// The same while its HedgeLeg is being told about the answer.
  void orphan(const Command& command);
  /// The answer to `command` goes through a HedgeLeg that asks `referee`, or directly again. It
  /// must not have begun.
  void make_leg(Command& command, HedgeLeg::Referee& referee);
  void make_single(Command& command);
  /// Calls `visit` for the reads that have been here since before `enqueued`.
  template <typename Visit>
  void late_reads(TimePoint enqueued, Visit visit) const {
    for (const Flight& flight : flights_) {
      if (flight.command != nullptr && !flight.is_write && flight.enqueued_at <= enqueued) {
        visit(*flight.command);
      }
    }
  }
  /// True once the answer to the oldest request has begun.
  [[nodiscard]] bool has_begun() const { return decoder_.is_inside() || decoder_.buffered() > 0; }

  /// The oldest request, null if nobody waits for it any more.
  [[nodiscard]] const Command* head() const {
    return flights_.empty() ? nullptr : flights_.front().command;
  }
  /// What the oldest request asks for.
  [[nodiscard]] const Flight* head_flight() const {
    return flights_.empty() ? nullptr : &flights_.front();
  }
  /// Since when the oldest request is awaited, and what this node has sent by then.
  [[nodiscard]] TimePoint head_since() const { return head_since_; }
  [[nodiscard]] uint64_t node_bytes_since_head() const {
    return node_->bytes_received.load(std::memory_order_relaxed) - head_bytes_;
  }

  /// True while it serves a command that must have a connection for itself.
  [[nodiscard]] bool is_reserved() const { return head() != nullptr && head()->plan.alone; }
  /// False until it could have been answered.
  [[nodiscard]] bool is_ready() const { return state_ == State::ready; }

  /// Whether another request may be lined up when `depth` may be under way. A full pipeline is
  /// topped up only when it is half empty, so that requests leave several at a time.
  [[nodiscard]] bool has_room(size_t depth);
  /// Bytes lined up and not yet sent.
  [[nodiscard]] uint64_t unsent_bytes() const { return unsent_bytes_; }

  [[nodiscard]] bool wants_write() const;
  [[nodiscard]] size_t flights() const { return flights_.size(); }
  /// Whether a command of `owner` is among them.
  [[nodiscard]] bool carries(const void* owner) const;
  [[nodiscard]] uint64_t payload_bytes() const { return payload_bytes_; }
  [[nodiscard]] bool has_writes() const { return write_count_ > 0; }
  [[nodiscard]] int fd() const { return socket_.fd(); }
  [[nodiscard]] const NodePtr& node() const { return node_; }
  [[nodiscard]] void* owner() const { return owner_; }
  /// The server no longer takes this connection's session.
  void reject_session() { node_->reject_session(session_); }
  [[nodiscard]] TimePoint last_progress() const { return last_progress_; }
  /// The earliest deadline of a command on this connection.
  [[nodiscard]] TimePoint earliest_deadline() const;
  /// How long the oldest request has waited for its first byte; zero while bytes flow.
  [[nodiscard]] Duration silence(TimePoint now) const;
  /// The waits for a first byte that were finished since the last call, newest last.
  std::vector<Wait> take_waits() { return std::exchange(waits_, {}); }

  bool registered_for_write = false;  ///< the epoll interest, kept by the loop

 private:
  enum class State : uint8_t { connecting, authenticating, ready };

  Status unit(const wire::MessageHeader& header) override;
  Status body(Bytes body) override;
  /// Notes what kind of error this is.
  Status fail(FaultKind kind, Status status) {
    fault_ = kind;
    return status;
  }
  void expect_head();
  void note_received(size_t bytes, TimePoint now);
  [[nodiscard]] FaultKind closed_fault(FaultKind kind) const;
  Status move(bool readable, bool writable, TimePoint now, Outcome& outcome);
  Flight* find_flight(const Command& command);
  Status on_connected(TimePoint now);
  Status broken(FaultKind kind, const IoResult& result, const char* doing);
  Status send_some(TimePoint now);
  Status receive_some(TimePoint now, Outcome& outcome);
  Status take_answers(wire::ReplyDecoder::Progress progress, TimePoint now, Outcome& outcome);

  const NodePtr node_;
  const ClientOptions& options_;
  void* const owner_;
  Socket socket_;
  State state_ = State::connecting;
  std::shared_ptr<const Session> session_;
  std::vector<std::byte> hello_;  // authentication, sent before the first request
  size_t hello_sent_ = 0;
  wire::ReplyDecoder decoder_;
  std::deque<Flight> flights_;
  size_t fully_sent_ = 0;  // flights_[0..fully_sent_) have left completely
  uint64_t unsent_bytes_ = 0;
  bool draining_ = false;  // the pipeline was full and is not yet half empty
  uint64_t payload_bytes_ = 0;
  size_t write_count_ = 0;
  TimePoint last_progress_{};
  TimePoint head_since_{};   // since when the oldest request is awaited
  uint64_t head_bytes_ = 0;  // what the node had sent by then
  uint64_t received_ = 0;    // bytes that do not count as progress yet
  bool was_idle_ = false;    // for so long that the server may have closed it
  FaultKind fault_ = FaultKind::garbage;
  bool head_wait_counted_ = false;
  std::vector<Wait> waits_;
};

}  // namespace aerokv::client
