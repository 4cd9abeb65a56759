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
  ~InfoChannel() override { close(); }

  enum class Progress : uint8_t { pending, answered, failed };

  /// Connects as `options` say; `tls_name` is that of the endpoint.
  /// Errors: unavailable, invalid (no TLS name). The channel is then closed.
  Status connect(const SocketAddress& address, const ClientOptions& options,
                 const std::string& tls_name);
  /// Queues one request (a complete frame) and awaits its answer of `kind`. Security messages are
  /// wiped when they have been sent, their answers when the next request is queued.
  void request(wire::ReplyKind kind, std::vector<std::byte> frame);
  /// Does what can be done without blocking; call when poll reports the socket.
  Progress advance();

  [[nodiscard]] short poll_events() const;
  [[nodiscard]] int fd() const { return socket_.fd(); }
  [[nodiscard]] bool is_open() const { return socket_.is_open(); }
  [[nodiscard]] const std::vector<std::byte>& answer() const { return answer_; }
  [[nodiscard]] const Status& error() const { return error_; }
  /// What it waits for, for an error message.
  [[nodiscard]] const char* stage() const;
  void close();

 private:
  Status unit(const wire::MessageHeader& header) override;
  Status body(Bytes body) override;
  Progress fail(Status error);
  void wipe_secrets();

  Socket socket_;
  bool connecting_ = false;
  bool is_secret_ = false;  // what is sent and received
  std::vector<std::byte> out_;
  size_t sent_ = 0;
  wire::ReplyDecoder decoder_;
  std::vector<std::byte> answer_;
  Status error_;
};

/// Asks a node one info command over a fresh connection, authenticated with the node's session if
/// `options` ask for a login, and waits for the value until `deadline`.
/// Errors: timeout, unavailable, protocol, denied (the server's own error texts, or TLS).
Result<std::string> ask_info(const Node& node, const ClientOptions& options,
                             std::string_view command, TimePoint deadline);

}  // namespace aerokv::client
