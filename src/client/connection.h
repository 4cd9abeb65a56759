// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <deque>
#include <memory>

#include "client/command.h"
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
    Command* command = nullptr;
    Command::Encoded request;
    size_t sent = 0;
    TimePoint enqueued_at{};
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
    std::vector<Command*> answered;  ///< in order; their answers were decoded
    Status error;                    ///< not ok: the connection is unusable
  };

  /// Sends and receives what the socket allows.
  void drive(bool readable, bool writable, TimePoint now, Outcome& outcome);

  /// Takes all commands off, oldest first, after a failure.
  std::vector<Command*> abandon();

  /// True when the oldest request has had no sign of life for too long.
  [[nodiscard]] bool is_stalled(TimePoint now) const;

  /// True while it serves a command that must have a connection for itself.
  [[nodiscard]] bool is_reserved() const {
    return !flights_.empty() && flights_.front().command->plan.alone;
  }
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
  Status on_connected(TimePoint now);
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
  TimePoint head_since_{};  // since when the oldest request is awaited
  bool head_wait_counted_ = false;
  std::vector<Wait> waits_;
};

}  // namespace aerokv::client
