// SPDX-License-Identifier: Apache-2.0
#include "devserver/connection.h"

#include <sys/epoll.h>
#include <sys/socket.h>

#include <algorithm>
#include <cerrno>
#include <cstring>

#include "devserver/worker.h"
#include "wire/result.h"

namespace aerokv::devserver {
namespace {

namespace result = wire::result;

constexpr size_t kInputBytes = 64 << 10;
// A body over this is received into a buffer of its own, from which the record can keep it.
constexpr size_t kLargeMin = 16 << 10;
// How much may be read beyond a large body: its successor's head, which then has to be copied.
constexpr size_t kHeadBytes = 2048;
// No further request is served while so much waits to be sent.
constexpr uint64_t kOutputMax = 1 << 20;
constexpr size_t kHeldMax = 4096;
constexpr int kReceiveRounds = 16;
constexpr size_t kAnswerAfterBytes = 256 << 10;
constexpr size_t kSendParts = 64;

bool is_put(Bytes body) {
  return body.size() >= 3 && (std::to_integer<uint8_t>(body[2]) & wire::info2::kWrite) != 0;
}

}  // namespace

Connection::Connection(Worker& worker, uint64_t id, UniqueFd socket, TlsStream tls, int node)
    : worker_(worker),
      service_(worker.service()),
      id_(id),
      socket_(std::move(socket)),
      tls_(std::move(tls)),
      input_(kInputBytes),
      interest_(EPOLLIN) {
  client_.node = node;
  NodeCounters& counters = service_.counters[static_cast<size_t>(node)];
  counters.connections_opened.fetch_add(1, std::memory_order_relaxed);
  counters.connections_now.fetch_add(1, std::memory_order_relaxed);
}

Connection::~Connection() {
  end_turn(link_in(), turn_in_, 0);
  end_turn(link_out(), turn_out_, 0);
  service_.counters[static_cast<size_t>(node())].connections_now.fetch_sub(
      1, std::memory_order_relaxed);
}

bool Connection::is_frozen() const {
  return service_.cluster.is_frozen(node());
}

void Connection::on_events(uint32_t events) {
  if ((events & (EPOLLERR | EPOLLHUP)) != 0 && (events & EPOLLIN) == 0) return end();
  if (is_frozen() || !is_ready()) return update_interest();
  if ((events & EPOLLOUT) != 0) on_ready();
  if ((events & EPOLLIN) == 0) return;
  receive_all();
  update_interest();
}

// False as long as the other side has not passed the checks of TLS.
bool Connection::is_ready() {
  if (!tls_.is_open() || tls_.is_established()) return true;
  const IoResult result = tls_.handshake();
  if (result.kind == IoResult::Kind::failed || result.kind == IoResult::Kind::closed) end();
  if (!tls_.is_established()) return false;
  client_.certificate_name = tls_.peer_common_name();
  return true;
}

void Connection::receive_all() {
  // Answers to small requests that are there together leave together; each system call saved here
  // also saves the client a wake-up. Large requests are answered as they come.
  size_t received = 0;
  int round = 0;
  for (; round < kReceiveRounds && !ended_; ++round) {
    if (!is_receiving() || !await_turn(link_in(), turn_in_)) break;
    const size_t bytes = receive();
    end_turn(link_in(), turn_in_, bytes);
    if (bytes == 0) break;
    serve();
    received += bytes;
    if (link_in().is_limited() && !tls_.is_open()) break;  // it asks again when more is there
    if (received < kAnswerAfterBytes || ended_) continue;
    flush();
    received = 0;
  }
  if (ended_) return;
  flush();
  // What TLS has decrypted is not seen in the socket: others have their turn, then we come back.
  if (round == kReceiveRounds && tls_.is_open()) worker_.wake_at(*this, SteadyClock::now());
}

void Connection::on_ready() {
  link_is_busy_ = false;
  if (is_frozen() || ended_ || !is_ready()) return update_interest();
  release_held(SteadyClock::now());
  flush();
  resume();
  serve();
  if (!ended_) flush();
  if (!ended_ && tls_.is_open()) receive_all();
  update_interest();
}

void Connection::on_change() {
  // Turns were given out at the old speed.
  end_turn(link_in(), turn_in_, 0);
  end_turn(link_out(), turn_out_, 0);
  on_ready();
}

bool Connection::is_receiving() const {
  return mute_ || (continuation_ == nullptr && !have_message_ && !close_after_flush_ &&
                   out_.unsent() < kOutputMax && held_.size() < kHeldMax);
}

// ---- receiving

// Bytes received, 0 if there is nothing more for now.
size_t Connection::receive() {
  if (mute_) begin_ = end_ = 0;
  if (begin_ == end_) begin_ = end_ = 0;
  std::array<iovec, 2> parts;
  size_t count = 0;
  size_t wanted = 0;
  const auto add = [&](std::byte* at, size_t bytes) {
    parts[count++] = {at, bytes};
    wanted += bytes;
  };
  const size_t large_left = link_in().turn(large_ ? large_bytes_ - large_filled_ : 0);
  if (large_left > 0) add(large_.data() + large_filled_, large_left);
  if (large_left == 0 && begin_ > 0 && input_.size() - end_ < kLargeMin) {
    std::memmove(input_.data(), input_.data() + begin_, end_ - begin_);
    end_ -= begin_;
    begin_ = 0;
  }
  const size_t room = input_.size() - end_;
  // Nothing may be read behind a large body that is not complete.
  const bool is_turn = large_ && large_filled_ + large_left < large_bytes_;
  if (!is_turn) {
    add(input_.data() + end_, large_left > 0 || expects_large_ ? std::min(room, kHeadBytes) : room);
  }

  const IoResult result = receive_into(std::span(parts).first(count));
  if (result.kind == IoResult::Kind::would_block) return 0;
  if (result.kind != IoResult::Kind::moved) {
    end();
    return 0;
  }
  const size_t bytes = result.bytes;
  service_.counters[static_cast<size_t>(node())].bytes_in.fetch_add(bytes,
                                                                    std::memory_order_relaxed);
  const size_t to_large = std::min(bytes, large_left);
  large_filled_ += to_large;
  end_ += bytes - to_large;
  return bytes;
}

IoResult Connection::receive_into(std::span<iovec> parts) {
  if (tls_.is_open()) return tls_.receive(parts);
  msghdr message{};
  message.msg_iov = parts.data();
  message.msg_iovlen = parts.size();
  const ssize_t got = ::recvmsg(fd(), &message, MSG_DONTWAIT);
  if (got > 0) return {IoResult::Kind::moved, static_cast<size_t>(got), 0};
  if (got == 0) return {IoResult::Kind::closed, 0, 0};
  if (errno == EAGAIN || errno == EWOULDBLOCK || errno == EINTR) {
    return {IoResult::Kind::would_block, 0, 0};
  }
  return {IoResult::Kind::failed, 0, errno};
}

// Finds out whether a whole message is there, and points message_ to it.
Connection::Input Connection::next_message() {
  if (large_) {
    if (large_filled_ < large_bytes_) return Input::waiting;
    message_ = {large_type_, Bytes(large_.data(), large_bytes_), large_};
    return Input::complete;
  }
  if (end_ - begin_ < wire::kFrameHeaderBytes) return Input::waiting;
  const std::byte* at = input_.data() + begin_;
  const auto word = load_be<uint64_t>(at);
  const auto version = static_cast<uint8_t>(word >> 56);
  const auto type = static_cast<uint8_t>(word >> 48);
  const uint64_t size = word & 0xFFFFFFFFFFFFULL;
  // The real server takes version 0 for security messages.
  const bool good_version = version == wire::kProtocolVersion || (version == 0 && type == 2);
  if (!good_version || type < 1 || type > 4 || size > kMessageBytesMax) return Input::broken;
  const size_t body_bytes = static_cast<size_t>(size);
  const size_t there = end_ - begin_ - wire::kFrameHeaderBytes;
  if (there >= body_bytes) {
    message_ = {type, Bytes(at + wire::kFrameHeaderBytes, body_bytes), {}};
    return Input::complete;
  }
  if (body_bytes <= kLargeMin) return Input::waiting;
  large_ = service_.pool.allocate(body_bytes);
  if (!large_) return Input::broken;
  large_type_ = type;
  large_bytes_ = body_bytes;
  large_filled_ = there;
  std::memcpy(large_.data(), at + wire::kFrameHeaderBytes, there);
  begin_ = end_ = 0;
  return Input::waiting;
}

void Connection::end_message() {
  if (large_) {
    expects_large_ = large_type_ == 3 && is_put(message_.body);
    large_ = BufferRef();
  } else {
    begin_ += wire::kFrameHeaderBytes + message_.body.size();
    expects_large_ = false;
  }
  message_ = {};
  have_message_ = false;
  request_.clear();
  fault_ = nullptr;
  fault_decided_ = false;
  delayed_until_ = {};
}

// ---- serving

void Connection::serve() {
  if (out_.mark() > kInputBytes) out_.compact();
  while (!ended_ && !mute_ && !close_after_flush_ && continuation_ == nullptr) {
    if (out_.unsent() >= kOutputMax) flush();
    if (out_.unsent() >= kOutputMax || held_.size() >= kHeldMax) break;
    if (!have_message_) {
      const Input input = next_message();
      if (input == Input::broken) {
        flush();
        end();
      }
      if (input != Input::complete) break;
      have_message_ = true;
    }
    if (!serve_message()) break;
  }
}

// False if the message has to wait.
bool Connection::serve_message() {
  if (delayed_until_ != TimePoint{} && SteadyClock::now() < delayed_until_) return false;
  Answer early;
  const bool malformed = message_.type == 3 && !parse_request(message_.body, request_);
  FaultSubject subject{node(), RequestKind::other, nullptr};
  switch (static_cast<wire::MessageType>(message_.type)) {
    case wire::MessageType::info:
      subject.kind = RequestKind::info;
      break;
    case wire::MessageType::security:
      subject.kind = security_kind();
      break;
    case wire::MessageType::record:
      if (!malformed) subject = {node(), record_kind(), &request_};
      break;
    case wire::MessageType::compressed:
      break;
  }
  if (!fault_decided_) {
    fault_decided_ = true;
    service_.counters[static_cast<size_t>(node())]
        .requests[static_cast<size_t>(subject.kind)]
        .fetch_add(1, std::memory_order_relaxed);
    fault_ = service_.faults.match(subject);
    if (fault_ != nullptr && !begin_fault()) return false;
  }
  latency_ = service_.latencies[static_cast<size_t>(node())].load(std::memory_order_relaxed);
  collects_ = fault_ != nullptr || latency_.count() != 0 || !held_.empty();
  Answer& out = output();
  if (fault_ != nullptr && fault_->action == FaultAction::result_code) {
    answer_with_code(fault_->code, out);
  } else {
    switch (static_cast<wire::MessageType>(message_.type)) {
      case wire::MessageType::info:
        service_.info(client_, message_.body, out);
        break;
      case wire::MessageType::security:
        service_.users.handle(message_.body, client_.certificate_name, client_.session, out);
        break;
      case wire::MessageType::compressed:
        out.header_only(result::kEnterpriseOnly);
        break;
      case wire::MessageType::record:
        if (malformed) {
          out.header_only(result::kParameter);
          break;
        }
        request_.buffer = message_.buffer;
        continuation_ = service_.record(client_, request_, out);
        break;
    }
  }
  if (continuation_ != nullptr) {
    resume();
    return continuation_ == nullptr;
  }
  finish_message();
  return true;
}

// Goes on with a request that could not be answered in one go.
void Connection::resume() {
  while (continuation_ != nullptr && !ended_) {
    Answer& out = output();
    if (&out == &out_ && out_.unsent() >= kOutputMax) flush();
    if (&out == &out_ && out_.unsent() >= kOutputMax) return;  // on_events comes back
    const TimePoint now = SteadyClock::now();
    if (continuation_->wake_at() > now) return worker_.wake_at(*this, continuation_->wake_at());
    const Continuation::Step step = continuation_->step(out, now);
    if (step == Continuation::Step::done) {
      continuation_ = nullptr;
      finish_message();
    }
  }
}

RequestKind Connection::security_kind() const {
  if (message_.body.size() < 3) return RequestKind::other;
  const auto command = std::to_integer<uint8_t>(message_.body[2]);
  if (command == 20) return RequestKind::login;
  return command == 0 ? RequestKind::authenticate : RequestKind::other;
}

RequestKind Connection::record_kind() const {
  if ((request_.header.info1 & wire::info1::kBatch) != 0) return RequestKind::batch;
  return request_.digest ? kind_of(request_) : RequestKind::query;
}

Answer& Connection::output() {
  return collects_ ? collected_ : out_;
}

// ---- faults

// What happens before the request is executed. False if it must not be executed now.
bool Connection::begin_fault() {
  switch (fault_->action) {
    case FaultAction::delay:
      delayed_until_ = SteadyClock::now() + std::chrono::duration_cast<Duration>(fault_->delay);
      fault_ = nullptr;
      worker_.wake_at(*this, delayed_until_);
      return false;
    case FaultAction::drop:
      mute_ = true;
      return false;
    case FaultAction::close:
      flush();
      end();
      return false;
    case FaultAction::freeze_node:
      fault_ = nullptr;
      worker_.control().request_pause(node());
      return false;
    case FaultAction::stop_node:
      worker_.control().request_stop(node());
      end();
      return false;
    default:
      return true;
  }
}

void Connection::answer_with_code(uint8_t code, Answer& out) const {
  const size_t at = out.begin_frame();
  wire::UnitWriter writer = out.writer();
  if (message_.type == 1) {
    writer.bytes(as_bytes("ERROR:" + std::to_string(code) + ":injected fault\n"));
    return out.end_frame(at, wire::MessageType::info);
  }
  if (message_.type == 2) {
    std::array<std::byte, wire::kSecurityHeaderBytes> header{};
    header[1] = std::byte{code};
    writer.bytes(header);
    return out.end_frame(at, wire::MessageType::security);
  }
  wire::MessageHeader header;
  header.result_code = code;
  if ((request_.header.info1 & wire::info1::kBatch) != 0) header.info3 = wire::info3::kLast;
  writer.header(header);
  out.end_frame(at, wire::MessageType::record);
}

// The answer is complete: brings it on its way, as the fault wants it.
void Connection::finish_message() {
  const std::shared_ptr<const Fault> fault = std::move(fault_);
  TimePoint release{};
  if (latency_.count() != 0) release = SteadyClock::now() + Duration(latency_);
  if (fault != nullptr) {
    switch (fault->action) {
      case FaultAction::latency:
        release = SteadyClock::now() + Duration(fault->delay + latency_);
        break;
      case FaultAction::drop_answer:
        collected_.clear();
        mute_ = true;
        break;
      case FaultAction::close_after_bytes: {
        std::vector<std::byte> bytes = collected_.flat();
        bytes.resize(std::min<size_t>(bytes.size(), fault->bytes));
        collected_.clear();
        collected_.append(Bytes(bytes));
        close_after_flush_ = true;
        break;
      }
      case FaultAction::result_after_execute:
        collected_.clear();
        answer_with_code(fault->code, collected_);
        break;
      case FaultAction::damage: {
        const std::vector<std::byte> bytes = damaged(collected_.flat(), *fault);
        collected_.clear();
        collected_.append(Bytes(bytes));
        break;
      }
      default:
        break;
    }
  }
  if (release != TimePoint{} || !held_.empty()) {
    held_.push_back({std::move(collected_), release});
    collected_.clear();
    if (held_.size() == 1) worker_.wake_at(*this, release);
  } else if (collected_.size() > 0) {
    out_.append(std::move(collected_));
    collected_.clear();
  }
  end_message();
}

// ---- links of limited speed

/// Asks for a turn if there is none. False if it has not come yet; a timer will call on_ready().
bool Connection::await_turn(Link& link, std::optional<TimePoint>& turn) {
  if (!link.is_limited()) {
    turn.reset();
    return true;
  }
  if (!turn) turn = link.reserve();
  if (*turn <= SteadyClock::now()) return true;
  if (!link_is_busy_) worker_.wake_at(*this, *turn);
  link_is_busy_ = true;
  return false;
}

void Connection::end_turn(Link& link, std::optional<TimePoint>& turn, size_t bytes) {
  if (!turn) return;
  link.carry(bytes);
  turn.reset();
}

// ---- sending

void Connection::release_held(TimePoint now) {
  while (!held_.empty() && held_.front().release <= now) {
    out_.append(std::move(held_.front().answer));
    held_.pop_front();
  }
  if (!held_.empty()) worker_.wake_at(*this, held_.front().release);
}

void Connection::flush() {
  while (has_unsent()) {
    if (!await_turn(link_out(), turn_out_)) return;
    std::array<iovec, kSendParts> parts;
    size_t count = out_.next_parts(parts.data(), parts.size());
    if (link_out().is_limited() && count > 0) {  // the first part alone
      count = 1;
      parts[0].iov_len = link_out().turn(parts[0].iov_len);
    }
    const IoResult result = send_from(std::span(parts).first(count));
    end_turn(link_out(), turn_out_, result.kind == IoResult::Kind::moved ? result.bytes : 0);
    if (result.kind == IoResult::Kind::would_block) return;
    if (result.kind != IoResult::Kind::moved) return end();
    out_.mark_sent(result.bytes);
    service_.counters[static_cast<size_t>(node())].bytes_out.fetch_add(result.bytes,
                                                                       std::memory_order_relaxed);
  }
  if (close_after_flush_ && held_.empty() && !mute_) {
    // Not closed at once: with unread input that would reset the connection, and the client would
    // lose the bytes that it is meant to get.
    ::shutdown(fd(), SHUT_WR);
    mute_ = true;
  }
}

// Without parts it moves what TLS has encrypted.
IoResult Connection::send_from(std::span<iovec> parts) {
  if (tls_.is_open()) return tls_.send(parts);
  msghdr message{};
  message.msg_iov = parts.data();
  message.msg_iovlen = parts.size();
  ssize_t sent = -1;
  do {
    sent = ::sendmsg(fd(), &message, MSG_NOSIGNAL | MSG_DONTWAIT);
  } while (sent < 0 && errno == EINTR);
  if (sent >= 0) return {IoResult::Kind::moved, static_cast<size_t>(sent), 0};
  if (errno == EAGAIN || errno == EWOULDBLOCK) return {IoResult::Kind::would_block, 0, 0};
  return {IoResult::Kind::failed, 0, errno};
}

void Connection::update_interest() {
  if (ended_) return;
  uint32_t wanted = 0;
  if (!is_frozen() && !link_is_busy_) {
    if (is_receiving()) wanted |= EPOLLIN;
    if (has_unsent()) wanted |= EPOLLOUT;
  }
  if (wanted == interest_) return;
  interest_ = wanted;
  worker_.watch(*this, wanted);
}

}  // namespace aerokv::devserver
