// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <string>
#include <string_view>
#include <vector>

#include "client/node.h"
#include "client/socket.h"
#include "wire/reply_decoder.h"

namespace aerokv::client {

/// One connection for info and security messages, driven by readiness. One request at a time.
class InfoChannel final : private wire::ReplySink {
 public:
  enum class Progress : uint8_t { pending, answered, failed };

  /// Errors: unavailable. The channel is then closed.
  Status connect(const SocketAddress& address);
  /// Queues one request (a complete frame) and awaits its answer of `kind`.
  void request(wire::ReplyKind kind, std::vector<std::byte> frame);
  /// Does what can be done without blocking; call when poll reports the socket.
  Progress advance();

  [[nodiscard]] short poll_events() const;
  [[nodiscard]] int fd() const { return socket_.fd(); }
  [[nodiscard]] bool is_open() const { return socket_.is_open(); }
  [[nodiscard]] const std::vector<std::byte>& answer() const { return answer_; }
  [[nodiscard]] const Status& error() const { return error_; }
  void close() { socket_.close(); }

 private:
  Status unit(const wire::MessageHeader& header) override;
  Status body(Bytes body) override;
  Progress fail(Status error);

  Socket socket_;
  bool connecting_ = false;
  std::vector<std::byte> out_;
  size_t sent_ = 0;
  wire::ReplyDecoder decoder_;
  std::vector<std::byte> answer_;
  Status error_;
};

/// Asks a node one info command over a fresh connection, authenticated with the node's session
/// when `user` is not empty, and waits for the value until `deadline`.
/// Errors: timeout, unavailable, protocol, denied (the server's own error texts).
Result<std::string> ask_info(const Node& node, const std::string& user, std::string_view command,
                             TimePoint deadline);

}  // namespace aerokv::client
