// SPDX-License-Identifier: Apache-2.0
// One client connection: receives messages, has them served one at a time in order, sends answers.
#pragma once

#include <deque>
#include <memory>
#include <optional>
#include <vector>

#include "base/clock.h"
#include "base/fd.h"
#include "base/tls.h"
#include "devserver/service.h"

namespace aerokv::devserver {

class Worker;

/// Used on its worker's thread only.
class Connection {
 public:
  /// Speaks TLS if `tls` is open.
  Connection(Worker& worker, uint64_t id, UniqueFd socket, TlsStream tls, int node);
  ~Connection();
  Connection(const Connection&) = delete;
  Connection& operator=(const Connection&) = delete;

  [[nodiscard]] uint64_t id() const { return id_; }
  [[nodiscard]] int fd() const { return socket_.get(); }
  [[nodiscard]] int node() const { return client_.node; }
  [[nodiscard]] bool has_ended() const { return ended_; }

  void on_events(uint32_t events);
  /// Time has passed.
  void on_ready();
  /// The node goes on after a freeze, or its links have another speed.
  void on_change();

 private:
  /// A complete message in front of the input.
  struct Message {
    uint8_t type = 0;
    Bytes body;
    BufferRef buffer;  ///< holds the body, if it has a buffer of its own
  };
  /// An answer that must not leave before its time.
  struct Held {
    Answer answer;
    TimePoint release{};
  };
  enum class Input : uint8_t { waiting, complete, broken };

  // Receiving.
  [[nodiscard]] bool is_ready();
  [[nodiscard]] bool is_receiving() const;
  void receive_all();
  size_t receive();
  IoResult receive_into(std::span<iovec> parts);
  Input next_message();
  void end_message();

  // Serving.
  void serve();
  bool serve_message();
  void resume();
  void finish_message();
  [[nodiscard]] RequestKind security_kind() const;
  [[nodiscard]] RequestKind record_kind() const;

  // Faults.
  bool begin_fault();
  void answer_with_code(uint8_t code, Answer& out) const;

  // Links of limited speed.
  [[nodiscard]] Link& link_in() const { return service_.links_in[static_cast<size_t>(node())]; }
  [[nodiscard]] Link& link_out() const { return service_.links_out[static_cast<size_t>(node())]; }
  bool await_turn(Link& link, std::optional<TimePoint>& turn);
  static void end_turn(Link& link, std::optional<TimePoint>& turn, size_t bytes);

  // Sending.
  [[nodiscard]] Answer& output();
  void flush();
  IoResult send_from(std::span<iovec> parts);
  [[nodiscard]] bool has_unsent() const {
    return !out_.empty() || (tls_.is_open() && tls_.wants_write());
  }
  void release_held(TimePoint now);
  void update_interest();
  void end() { ended_ = true; }

  [[nodiscard]] bool is_frozen() const;

  Worker& worker_;
  Service& service_;
  const uint64_t id_;
  UniqueFd socket_;
  TlsStream tls_;  // not open: clear text
  Client client_;

  std::vector<std::byte> input_;  // received and not yet taken: [begin_, end_)
  size_t begin_ = 0;
  size_t end_ = 0;
  BufferRef large_;  // body of a large message under reception
  size_t large_bytes_ = 0;
  size_t large_filled_ = 0;
  uint8_t large_type_ = 0;
  bool expects_large_ = false;  // the last message was large: the next probably is

  Message message_;  // being served
  Request request_;
  std::unique_ptr<Continuation> continuation_;
  Answer collected_;  // the answer of the message, if it is not sent as it grows
  std::shared_ptr<const Fault> fault_;
  TimePoint delayed_until_{};
  std::chrono::microseconds latency_{0};  // of the node, for this message

  Answer out_;
  std::deque<Held> held_;
  bool have_message_ = false;   // message_ is being served
  bool collects_ = false;       // its answer goes to collected_
  bool fault_decided_ = false;  // for it
  bool mute_ = false;           // reads on, answers nothing more
  bool close_after_flush_ = false;
  bool ended_ = false;
  bool link_is_busy_ = false;          // a timer tells when the turn has come
  std::optional<TimePoint> turn_in_;   // when this connection may use the link
  std::optional<TimePoint> turn_out_;  // the same of the other direction
  uint32_t interest_ = 0;
};

}  // namespace aerokv::devserver
