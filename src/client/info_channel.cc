// SPDX-License-Identifier: Apache-2.0
#include "client/info_channel.h"

#include <poll.h>
#include <string.h>  // explicit_bzero

#include <algorithm>

#include "wire/info.h"
#include "wire/request.h"
#include "wire/result.h"
#include "wire/security.h"

namespace aerokv::client {

Status InfoChannel::connect(const SocketAddress& address, const ClientOptions& options,
                            const std::string& tls_name) {
  close();
  decoder_ = wire::ReplyDecoder();
  Result<Socket> socket = Socket::start_connect(address, options, tls_name);
  if (!socket) return socket.error();
  socket_ = *std::move(socket);
  connecting_ = true;
  return {};
}

void InfoChannel::wipe_secrets() {
  if (!is_secret_) return;
  // An empty vector has no address to give.
  if (!out_.empty()) explicit_bzero(out_.data(), out_.size());
  if (!answer_.empty()) explicit_bzero(answer_.data(), answer_.size());
}

void InfoChannel::close() {
  wipe_secrets();
  out_.clear();
  sent_ = 0;
  socket_.close();
}

void InfoChannel::request(wire::ReplyKind kind, std::vector<std::byte> frame) {
  wipe_secrets();
  is_secret_ = kind == wire::ReplyKind::security;
  out_ = std::move(frame);
  sent_ = 0;
  decoder_.expect(kind, *this);
}

short InfoChannel::poll_events() const {
  const short write = sent_ < out_.size() || socket_.wants_write() ? POLLOUT : 0;
  if (connecting_) return socket_.wants_write() ? POLLOUT : POLLIN;
  return static_cast<short>(write == 0 ? POLLIN : write);
}

const char* InfoChannel::stage() const {
  if (!connecting_) return "no answer";
  return socket_.is_in_handshake() && !socket_.wants_write() ? "no end of the TLS handshake"
                                                             : "no connection";
}

InfoChannel::Progress InfoChannel::fail(Status error) {
  error_ = std::move(error);
  close();
  return Progress::failed;
}

InfoChannel::Progress InfoChannel::advance() {
  if (connecting_) {
    const IoResult result = socket_.finish_connect();
    if (result.kind == IoResult::Kind::would_block) return Progress::pending;
    if (result.kind != IoResult::Kind::moved) return fail(socket_.failure(result, "connect"));
    connecting_ = false;
  }
  while (sent_ < out_.size() || socket_.wants_write()) {
    const iovec part{out_.data() + sent_, out_.size() - sent_};
    const IoResult result = socket_.send({&part, part.iov_len > 0 ? size_t{1} : size_t{0}});
    if (result.kind == IoResult::Kind::would_block) return Progress::pending;
    if (result.kind != IoResult::Kind::moved) return fail(socket_.failure(result, "send"));
    sent_ += result.bytes;
    if (is_secret_ && sent_ == out_.size()) explicit_bzero(out_.data(), out_.size());
  }
  while (decoder_.is_expecting()) {
    std::array<MutableBytes, 2> places;
    const size_t count = decoder_.regions(places);
    std::array<iovec, 2> parts{};
    for (size_t i = 0; i < count; ++i) parts[i] = {places[i].data(), places[i].size()};
    const IoResult result = socket_.receive({parts.data(), count});
    if (result.kind == IoResult::Kind::would_block) return Progress::pending;
    if (result.kind != IoResult::Kind::moved) return fail(socket_.failure(result, "receive"));
    Result<wire::ReplyDecoder::Progress> progress = decoder_.received(result.bytes);
    if (!progress) return fail(progress.error());
    if (*progress == wire::ReplyDecoder::Progress::complete) return Progress::answered;
  }
  return Progress::pending;
}

Status InfoChannel::unit(const wire::MessageHeader&) {
  return {Code::protocol, "info connection: unexpected record message"};
}

Status InfoChannel::body(Bytes body) {
  answer_.assign(body.begin(), body.end());
  return {};
}

namespace {

Result<std::vector<std::byte>> exchange(InfoChannel& channel, wire::ReplyKind kind,
                                        std::vector<std::byte> frame, TimePoint deadline) {
  channel.request(kind, std::move(frame));
  while (true) {
    switch (channel.advance()) {
      case InfoChannel::Progress::answered:
        return channel.answer();
      case InfoChannel::Progress::failed:
        return channel.error();
      case InfoChannel::Progress::pending:
        break;
    }
    const auto left = std::chrono::ceil<milliseconds>(deadline - SteadyClock::now()).count();
    if (left <= 0) return Status(Code::timeout, std::string(channel.stage()) + " in time");
    pollfd fd{channel.fd(), channel.poll_events(), 0};
    ::poll(&fd, 1, static_cast<int>(std::min<int64_t>(left, 10000)));
    if (fd.revents == 0) continue;
  }
}

}  // namespace

Result<std::string> ask_info(const Node& node, const ClientOptions& options,
                             std::string_view command, TimePoint deadline) {
  InfoChannel channel;
  AEROKV_TRY(channel.connect(node.address(), options, node.endpoint().tls_name));
  if (options.needs_login()) {
    const std::shared_ptr<const Session> session = node.session();
    if (!session) return Status(Code::unavailable, "no session yet");
    if (!session->token.empty()) {
      std::vector<std::byte> frame;
      AEROKV_TRY(wire::encode_authenticate(options.user, session->token, frame));
      Result<std::vector<std::byte>> body =
          exchange(channel, wire::ReplyKind::security, std::move(frame), deadline);
      if (!body) return body.error();
      Result<wire::SecurityAnswer> answer = wire::decode_security_answer(*body);
      if (!answer) return answer.error();
      AEROKV_TRY(wire::status_from_result(answer->result_code, "authenticate"));
    }
  }
  std::vector<std::byte> frame;
  AEROKV_TRY(wire::encode_info({&command, 1}, frame));
  Result<std::vector<std::byte>> body =
      exchange(channel, wire::ReplyKind::info, std::move(frame), deadline);
  if (!body) return body.error();
  const auto items = wire::parse_info(as_text(*body));
  Result<std::string_view> value = wire::find_info(items, command);
  if (!value) return value.error();
  return std::string(*value);
}

}  // namespace aerokv::client
