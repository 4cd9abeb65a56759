// SPDX-License-Identifier: Apache-2.0
#include "client/connection.h"

#include <algorithm>
#include <cerrno>

#include "wire/security.h"

namespace aerokv::client {
namespace {

// Parts of one sendmsg: head and payload of several requests.
constexpr size_t kSendPartsMax = 32;

// A connection to a node that answers on others may be silent this many times as long.
constexpr int kPatienceWithBusyNode = 4;

// After this many bytes the loop turns to its other connections. Loads are waited for; a store
// that waits a little longer harms nobody.
constexpr size_t kReceiveTurnBytes = 4 << 20;
constexpr size_t kSendTurnBytes = 1 << 20;

}  // namespace

Connection::Connection(NodePtr node, const ClientOptions& options, void* owner)
    : node_(std::move(node)), options_(options), owner_(owner) {}

Status Connection::open(TimePoint now) {
  if (!options_.user.empty()) {
    session_ = node_->session();
    if (!session_) return {Code::denied, "node " + node_->label() + ": no session yet"};
    if (!session_->token.empty()) {
      AEROKV_TRY(wire::encode_authenticate(options_.user, session_->token, hello_));
    }
  }
  Result<Socket> socket = Socket::start_connect(node_->address());
  if (!socket) return socket.error().with_context("node " + node_->label());
  socket_ = *std::move(socket);
  last_progress_ = head_since_ = now;
  return {};
}

void Connection::enqueue(Command* command, Command::Encoded request, TimePoint now) {
  if (flights_.empty()) {
    last_progress_ = head_since_ = now;
    head_wait_counted_ = false;
    if (state_ == State::ready) decoder_.expect(command->plan.kind, *command);
  }
  payload_bytes_ += command->plan.payload_bytes;
  unsent_bytes_ += request.head.size() + request.payload.size();
  write_count_ += command->plan.is_write ? 1 : 0;
  flights_.push_back({command, std::move(request), 0, now});
}

bool Connection::has_room(size_t depth) {
  if (flights_.size() >= depth) {
    draining_ = true;
  } else if (flights_.size() <= depth / 2) {
    draining_ = false;
  }
  return !draining_;
}

bool Connection::carries(const void* owner) const {
  return std::any_of(flights_.begin(), flights_.end(),
                     [owner](const Flight& flight) { return flight.command->owner_ == owner; });
}

bool Connection::wants_write() const {
  return state_ == State::connecting || hello_sent_ < hello_.size() ||
         (state_ == State::ready && fully_sent_ < flights_.size());
}

void Connection::drive(bool readable, bool writable, TimePoint now, Outcome& outcome) {
  if (state_ == State::connecting) {
    if (!writable) return;
    outcome.error = on_connected(now);
    if (!outcome.error) return;
  }
  if (readable) outcome.error = receive_some(now, outcome);
  if (outcome.error.ok()) outcome.error = send_some(now);
}

Status Connection::on_connected(TimePoint now) {
  AEROKV_TRY(socket_.connect_result());
  last_progress_ = now;
  if (hello_.empty()) {
    state_ = State::ready;
    if (!flights_.empty()) {
      decoder_.expect(flights_.front().command->plan.kind, *flights_.front().command);
    }
  } else {
    state_ = State::authenticating;
    decoder_.expect(wire::ReplyKind::security, *this);
  }
  return {};
}

Status Connection::unit(const wire::MessageHeader&) {
  return {Code::protocol, "authenticate: unexpected record message"};
}

Status Connection::body(Bytes body) {
  Result<wire::SecurityAnswer> answer = wire::decode_security_answer(body);
  if (!answer) return answer.error();
  if (answer->result_code == wire::result::kOk ||
      answer->result_code == wire::result::kSecurityNotEnabled) {
    return {};
  }
  node_->reject_session(session_);
  return wire::status_from_result(answer->result_code, "authenticate");
}

Status Connection::send_some(TimePoint now) {
  size_t turn_left = kSendTurnBytes;
  while (wants_write() && turn_left > 0) {
    std::array<iovec, kSendPartsMax> parts{};
    size_t count = 0;
    size_t room = turn_left;
    const auto add = [&](const std::byte* data, size_t size) {
      size = std::min(size, room);
      room -= size;
      if (size > 0) parts[count++] = {const_cast<std::byte*>(data), size};
    };
    if (hello_sent_ < hello_.size()) {
      add(hello_.data() + hello_sent_, hello_.size() - hello_sent_);
    } else {
      for (size_t i = fully_sent_; i < flights_.size() && count + 2 <= kSendPartsMax; ++i) {
        const Flight& flight = flights_[i];
        const std::vector<std::byte>& head = flight.request.head;
        const size_t of_head = std::min(flight.sent, head.size());
        const size_t of_payload = flight.sent - of_head;
        add(head.data() + of_head, head.size() - of_head);
        add(flight.request.payload.data() + of_payload, flight.request.payload.size() - of_payload);
      }
    }
    const IoResult result = socket_.send({parts.data(), count});
    if (result.kind == IoResult::Kind::would_block) return {};
    if (result.kind != IoResult::Kind::moved) return status_from_errno(result.error, "send");
    last_progress_ = now;
    turn_left -= std::min(turn_left, result.bytes);
    size_t left = result.bytes;
    if (hello_sent_ < hello_.size()) {
      hello_sent_ += left;
      continue;
    }
    while (left > 0) {
      Flight& flight = flights_[fully_sent_];
      const size_t whole = flight.request.head.size() + flight.request.payload.size();
      const size_t taken = std::min(left, whole - flight.sent);
      flight.sent += taken;
      unsent_bytes_ -= taken;
      left -= taken;
      if (flight.sent == whole) ++fully_sent_;
    }
  }
  return {};
}

Status Connection::receive_some(TimePoint now, Outcome& outcome) {
  size_t turn_bytes = 0;
  while (turn_bytes < kReceiveTurnBytes) {
    std::array<MutableBytes, 2> places;
    const size_t count = decoder_.regions(places);
    std::array<iovec, 2> parts{};
    size_t room = 0;
    for (size_t i = 0; i < count; ++i) {
      parts[i] = {places[i].data(), places[i].size()};
      room += places[i].size();
    }
    const IoResult result = socket_.receive({parts.data(), count});
    if (result.kind == IoResult::Kind::would_block) return {};
    if (result.kind == IoResult::Kind::closed) {
      return {Code::unavailable, "receive: closed by the server"};
    }
    if (result.kind == IoResult::Kind::failed) return status_from_errno(result.error, "receive");
    last_progress_ = now;
    turn_bytes += result.bytes;
    if (!head_wait_counted_ && !flights_.empty()) {
      head_wait_counted_ = true;
      waits_.push_back({now - head_since_, node_->silence(now)});
    }
    node_->note_progress(now);
    Result<wire::ReplyDecoder::Progress> progress = decoder_.received(result.bytes);
    if (!progress) return progress.error();
    AEROKV_TRY(take_answers(*progress, now, outcome));
    // A short read has emptied the socket: asking again would only say so.
    if (result.bytes < room) return {};
  }
  return {};
}

Status Connection::take_answers(wire::ReplyDecoder::Progress progress, TimePoint now,
                                Outcome& outcome) {
  while (progress == wire::ReplyDecoder::Progress::complete) {
    if (state_ == State::authenticating) {
      state_ = State::ready;
    } else {
      Flight& flight = flights_.front();
      if (fully_sent_ == 0) {
        return {Code::protocol, "receive: an answer before its request was sent"};
      }
      payload_bytes_ -= flight.command->plan.payload_bytes;
      write_count_ -= flight.command->plan.is_write ? 1 : 0;
      outcome.answered.push_back(flight.command);
      flights_.pop_front();
      --fully_sent_;
    }
    head_since_ = now;
    head_wait_counted_ = decoder_.buffered() > 0;
    if (flights_.empty()) {
      if (decoder_.buffered() > 0) {
        return {Code::protocol, "receive: bytes without a request"};
      }
      return {};
    }
    Command* next = flights_.front().command;
    decoder_.expect(next->plan.kind, *next);
    Result<wire::ReplyDecoder::Progress> resumed = decoder_.resume();
    if (!resumed) return resumed.error();
    progress = *resumed;
  }
  return {};
}

std::vector<Command*> Connection::abandon() {
  std::vector<Command*> commands;
  for (const Flight& flight : flights_) {
    if (flight.sent > 0) flight.command->sent_ = true;
    commands.push_back(flight.command);
  }
  flights_.clear();
  fully_sent_ = 0;
  unsent_bytes_ = 0;
  payload_bytes_ = 0;
  write_count_ = 0;
  socket_.close();
  return commands;
}

bool Connection::is_stalled(TimePoint now) const {
  if (flights_.empty() && state_ == State::ready) return false;
  if (state_ == State::connecting || flights_.empty()) {
    const Duration limit =
        std::min<Duration>(options_.connect_timeout, options_.read_attempt_timeout);
    return now - last_progress_ > limit;
  }
  // Writes on the connection: the server may lawfully be silent while it waits for replicas. We
  // wait longer than it does, so that a server that gives up is heard.
  const Duration limit = write_count_ > 0
                             ? Duration(options_.write_attempt_timeout * 3 / 2)
                             : Duration(options_.read_patience(flights_.front().command->attempt_));
  const Duration silent = now - last_progress_;
  if (silent <= limit) return false;
  // A node that answers others is busy, not frozen: giving up on it would only make it busier. But
  // one request that it has lost must not wait for ever.
  return node_->silence(now) > limit || silent > kPatienceWithBusyNode * limit;
}

TimePoint Connection::earliest_deadline() const {
  TimePoint earliest = TimePoint::max();
  for (const Flight& flight : flights_) {
    earliest = std::min(earliest, flight.command->plan.deadline);
  }
  return earliest;
}

Duration Connection::silence(TimePoint now) const {
  if (flights_.empty()) return Duration::zero();
  return now - std::max(last_progress_, head_since_);
}

}  // namespace aerokv::client
