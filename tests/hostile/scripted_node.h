// SPDX-License-Identifier: Apache-2.0
// A TCP server that looks like a node of a cluster and answers what a test tells it to.
#pragma once

#include <atomic>
#include <functional>
#include <list>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <vector>

#include "aerokv/store.h"
#include "base/fd.h"
#include "wire/message.h"

namespace aerokv::testing {

using ByteVector = std::vector<std::byte>;

/// A listening socket on the loopback interface.
class Listener {
 public:
  Listener();
  [[nodiscard]] uint16_t port() const { return port_; }
  [[nodiscard]] std::string host() const { return "127.0.0.1:" + std::to_string(port_); }
  /// Waits for a connection; not open after shut_down().
  UniqueFd accept();
  void shut_down();

 private:
  UniqueFd fd_;
  uint16_t port_ = 0;
};

/// A connection to a port of the loopback interface; not open if nobody listens.
UniqueFd connect_to(uint16_t port);
/// Receives exactly `bytes.size()` bytes; false at the end of the connection.
bool receive_all(int fd, MutableBytes bytes);
/// False if the other side has gone.
bool send_all(int fd, Bytes bytes);
/// Receives one whole frame.
bool receive_frame(int fd, ByteVector& frame);

/// What is sent for one request.
struct Reply {
  ByteVector bytes{};
  bool closes = false;   ///< close behind the bytes
  bool endless = false;  ///< send `bytes` once, and then `again` for ever
  ByteVector again{};
  std::chrono::milliseconds drip{0};  ///< > 0: one byte at a time, with this pause
};

using ReplyPtr = std::shared_ptr<const Reply>;

/// A reply that lives longer than the node; large ones are not copied for each request.
inline ReplyPtr borrowed(const Reply& reply) {
  return {std::shared_ptr<void>(), &reply};
}

class ScriptedNode {
 public:
  /// Answers a record message (its body, behind the frame header).
  using RecordHandler = std::function<ReplyPtr(Bytes body)>;
  /// Answers an info message as a whole; an empty optional falls back to the values.
  using InfoHandler = std::function<std::optional<Reply>(const std::string& commands)>;

  ScriptedNode();
  ~ScriptedNode();

  [[nodiscard]] std::string host() const { return listener_.host(); }

  /// Info values; a healthy node that owns everything unless changed. Before the first connection.
  std::map<std::string, std::string> info;
  InfoHandler on_info;
  RecordHandler on_record;
  ByteVector greeting;  ///< sent to everyone who connects

 private:
  void serve(int fd);
  ReplyPtr answer(Bytes frame);
  bool send_reply(int fd, const Reply& reply);

  Listener listener_;
  std::mutex mutex_;
  std::list<UniqueFd> sockets_;     // guarded by mutex_
  std::list<std::thread> threads_;  // guarded by mutex_
  std::atomic<bool> stopping_{false};
  std::thread acceptor_;
};

/// A frame of this type around `body`.
ByteVector frame_of(wire::MessageType type, Bytes body);
ByteVector info_frame(std::string_view text);
/// A record answer without bins.
ByteVector header_frame(uint8_t code, uint8_t info3 = 0);
/// Base64 of a bitmap of all partitions.
std::string all_partitions();

/// Options for a store on scripted nodes.
StoreOptions hostile_options(const std::string& hosts);

}  // namespace aerokv::testing
