// SPDX-License-Identifier: Apache-2.0
#include "client/info_channel.h"

#include <poll.h>

#include <algorithm>

#include "wire/info.h"
#include "wire/request.h"
#include "wire/result.h"
#include "wire/security.h"

namespace aerokv::client {

Status InfoChannel::connect(const SocketAddress& address) {
  decoder_ = wire::ReplyDecoder();
  out_.clear();
  sent_ = 0;
  Result<Socket> socket = Socket::start_connect(address);
  if (!socket) {
    socket_.close();
    return socket.error();
  }
  socket_ = *std::move(socket);
  connecting_ = true;
  return {};
}

void InfoChannel::request(wire::ReplyKind kind, std::vector<std::byte> frame) {
  out_ = std::move(frame);
  sent_ = 0;
  decoder_.expect(kind, *this);
}

short InfoChannel::poll_events() const {
  return connecting_ || sent_ < out_.size() ? POLLOUT : POLLIN;
}

InfoChannel::Progress InfoChannel::fail(Status error) {
  error_ = std::move(error);
  close();
  return Progress::failed;
}

InfoChannel::Progress InfoChannel::advance() {
  if (connecting_) {
    if (Status status = socket_.connect_result(); !status) return fail(status);
    connecting_ = false;
  }
  while (sent_ < out_.size()) {
    const iovec part{out_.data() + sent_, out_.size() - sent_};
    const IoResult result = socket_.send({&part, 1});
    if (result.kind == IoResult::Kind::would_block) return Progress::pending;
    if (result.kind == IoResult::Kind::failed) {
      return fail(status_from_errno(result.error, "send"));
    }
    sent_ += result.bytes;
  }
  while (decoder_.is_expecting()) {
    std::array<MutableBytes, 2> places;
    const size_t count = decoder_.regions(places);
    std::array<iovec, 2> parts{};
    for (size_t i = 0; i < count; ++i) parts[i] = {places[i].data(), places[i].size()};
    const IoResult result = socket_.receive({parts.data(), count});
    if (result.kind == IoResult::Kind::would_block) return Progress::pending;
    if (result.kind == IoResult::Kind::closed) {
      return fail({Code::unavailable, "receive: closed by the server"});
    }
    if (result.kind == IoResult::Kind::failed) {
      return fail(status_from_errno(result.error, "receive"));
    }
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
    if (left <= 0) return Status(Code::timeout, "no answer in time");
    pollfd fd{channel.fd(), channel.poll_events(), 0};
    ::poll(&fd, 1, static_cast<int>(std::min<int64_t>(left, 10000)));
    if (fd.revents == 0) continue;
  }
}

}  // namespace

Result<std::string> ask_info(const Node& node, const std::string& user, std::string_view command,
                             TimePoint deadline) {
  InfoChannel channel;
  AEROKV_TRY(channel.connect(node.address()));
  if (!user.empty()) {
    const std::shared_ptr<const Session> session = node.session();
    if (!session) return Status(Code::unavailable, "no session yet");
    if (!session->token.empty()) {
      std::vector<std::byte> frame;
      AEROKV_TRY(wire::encode_authenticate(user, session->token, frame));
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
