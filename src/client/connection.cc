// SPDX-License-Identifier: Apache-2.0
#include "client/connection.h"

#include <string.h>  // explicit_bzero

#include <algorithm>
#include <cerrno>

#include "wire/security.h"

namespace aerokv::client {
namespace {

// Parts of one sendmsg: head and payload of several requests.
constexpr size_t kSendPartsMax = 32;

// Fewer bytes of an answer than this are no sign of life: a node that lets them drip is as good as
// silent. Every segment of a working link has more.
constexpr uint64_t kProgressBytes = 512;

// A connection that nobody has used for so long may be one that the server has closed.
constexpr std::chrono::seconds kIdle{1};

wire::DiscardSink& discard_sink() {
  static wire::DiscardSink sink;  // without state: shared by all threads
  return sink;
}

// After this many bytes the loop turns to its other connections. Loads are waited for; a store
// that waits a little longer harms nobody.
constexpr size_t kReceiveTurnBytes = 4 << 20;
constexpr size_t kSendTurnBytes = 1 << 20;

}  // namespace

Connection::Connection(NodePtr node, const ClientOptions& options, void* owner)
    : node_(std::move(node)), options_(options), owner_(owner) {}

Status Connection::open(TimePoint now) {
  if (options_.needs_login()) {
    session_ = node_->session();
    if (!session_) return {Code::denied, "node " + node_->label() + ": no session yet"};
    if (!session_->token.empty()) {
      AEROKV_TRY(wire::encode_authenticate(options_.user, session_->token, hello_));
    }
  }
  Result<Socket> socket =
      Socket::start_connect(node_->address(), options_, node_->endpoint().tls_name);
  if (!socket) return socket.error().with_context("node " + node_->label());
  socket_ = *std::move(socket);
  last_progress_ = head_since_ = now;
  return {};
}

void Connection::enqueue(Command* command, Command::Encoded request, TimePoint now) {
  const bool is_first = flights_.empty();
  payload_bytes_ += command->plan.payload_bytes;
  unsent_bytes_ += request.head.size() + request.payload.size();
  write_count_ += command->plan.is_write ? 1 : 0;
  flights_.push_back({command, command->plan.kind, command->plan.is_write,
                      command->plan.payload_bytes, std::move(request), 0, now, nullptr});
  if (!is_first) return;
  was_idle_ = state_ == State::ready && now - last_progress_ > kIdle;
  last_progress_ = head_since_ = now;
  head_bytes_ = node_->bytes_received.load(std::memory_order_relaxed);
  head_wait_counted_ = false;
  received_ = 0;
  if (state_ == State::ready) expect_head();
}

void Connection::expect_head() {
  Flight& flight = flights_.front();
  if (flight.leg) return decoder_.expect(flight.kind, *flight.leg);
  if (flight.command != nullptr) return decoder_.expect(flight.kind, *flight.command);
  decoder_.expect(flight.kind, discard_sink());
}

Connection::Flight* Connection::find_flight(const Command& command) {
  const auto it = std::find_if(flights_.begin(), flights_.end(),
                               [&](const Flight& flight) { return flight.command == &command; });
  return it == flights_.end() ? nullptr : &*it;
}

void Connection::orphan(const Command& command) {
  Flight* const flight = find_flight(command);
  if (flight == nullptr) return;
  flight->command = nullptr;
  payload_bytes_ -= flight->payload_bytes;
}

void Connection::detach(const Command& command) {
  Flight* const flight = find_flight(command);
  if (flight == nullptr) return;
  const bool is_head = flight == &flights_.front();
  orphan(command);
  if (is_head && decoder_.is_expecting() && state_ == State::ready) {
    decoder_.redirect(discard_sink());
  }
  flight->leg.reset();
}

void Connection::make_leg(Command& command, HedgeLeg::Referee& referee) {
  Flight* const flight = find_flight(command);
  if (flight == nullptr) return;
  flight->leg = std::make_unique<HedgeLeg>(referee, *this, command);
  const bool is_head = flight == &flights_.front();
  if (is_head && state_ == State::ready) decoder_.redirect(*flight->leg);
}

void Connection::make_single(Command& command) {
  Flight* const flight = find_flight(command);
  if (flight == nullptr) return;
  const bool is_head = flight == &flights_.front();
  if (is_head && state_ == State::ready) decoder_.redirect(command);
  flight->leg.reset();
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
  return std::any_of(flights_.begin(), flights_.end(), [owner](const Flight& flight) {
    return flight.command != nullptr && flight.command->owner_ == owner;
  });
}

bool Connection::wants_write() const {
  if (state_ == State::connecting) return socket_.wants_write();
  return hello_sent_ < hello_.size() || (state_ == State::ready && fully_sent_ < flights_.size()) ||
         socket_.wants_write();
}

void Connection::drive(bool readable, bool writable, TimePoint now, Outcome& outcome) {
  fault_ = FaultKind::garbage;
  outcome.error = move(readable, writable, now, outcome);
  outcome.fault = fault_;
}

Status Connection::move(bool readable, bool writable, TimePoint now, Outcome& outcome) {
  if (state_ == State::connecting) {
    if (!(socket_.wants_write() ? writable : readable)) return {};
    AEROKV_TRY(on_connected(now));
    if (state_ == State::connecting) return {};
  }
  if (readable) AEROKV_TRY(receive_some(now, outcome));
  return send_some(now);
}

/// Of a connection that broke.
FaultKind Connection::closed_fault(FaultKind kind) const {
  return flights_.empty() || was_idle_ ? FaultKind::closed_idle : kind;
}

Status Connection::broken(FaultKind kind, const IoResult& result, const char* doing) {
  Status status = socket_.failure(result, doing);
  // With TLS 1.3 a server says only after the handshake that it does not want this client.
  if (status.code() == Code::denied) return fail(FaultKind::tls_refused, std::move(status));
  return fail(closed_fault(kind), std::move(status));
}

Status Connection::on_connected(TimePoint now) {
  const IoResult result = socket_.finish_connect();
  if (result.kind == IoResult::Kind::would_block) return {};
  if (result.kind != IoResult::Kind::moved) {
    return fail(socket_.is_in_handshake() ? FaultKind::tls_refused : FaultKind::refused,
                socket_.failure(result, "connect"));
  }
  last_progress_ = now;
  if (hello_.empty()) {
    state_ = State::ready;
    if (!flights_.empty()) expect_head();
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
  Status status = wire::status_from_result(answer->result_code, "authenticate");
  const bool is_denied = status.code() == Code::denied;
  return fail(is_denied ? FaultKind::no_session : fault_of_code(answer->result_code),
              std::move(status));
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
    if (result.kind != IoResult::Kind::moved) {
      return broken(FaultKind::reset, result, "send");
    }
    last_progress_ = now;
    turn_left -= std::min(turn_left, result.bytes);
    size_t left = result.bytes;
    if (hello_sent_ < hello_.size()) {
      hello_sent_ += left;
      if (hello_sent_ == hello_.size()) explicit_bzero(hello_.data(), hello_.size());
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
  while (true) {
    std::array<MutableBytes, 2> places;
    const size_t count = decoder_.regions(places);
    std::array<iovec, 2> parts{};
    size_t room = 0;
    for (size_t i = 0; i < count; ++i) {
      parts[i] = {places[i].data(), places[i].size()};
      room += places[i].size();
    }
    // At the end of the turn only what TLS has decrypted already is taken: of what lies in the
    // socket the loop is told again.
    const bool is_over = turn_bytes >= kReceiveTurnBytes;
    const IoResult result = socket_.receive({parts.data(), count}, is_over);
    if (result.kind == IoResult::Kind::would_block) return {};
    if (result.kind != IoResult::Kind::moved) {
      return broken(
          result.kind == IoResult::Kind::closed ? FaultKind::closed_inside : FaultKind::reset,
          result, "receive");
    }
    turn_bytes += result.bytes;
    note_received(result.bytes, now);
    Result<wire::ReplyDecoder::Progress> progress = decoder_.received(result.bytes);
    if (!progress) return progress.error();
    AEROKV_TRY(take_answers(*progress, now, outcome));
    // A short read has emptied the socket: asking again would only say so.
    if (result.bytes < room && !socket_.has_ended()) return {};
  }
}

void Connection::note_received(size_t bytes, TimePoint now) {
  node_->bytes_received.fetch_add(bytes, std::memory_order_relaxed);
  received_ += bytes;
  const bool begins = !head_wait_counted_ && !flights_.empty();
  if (begins) {
    head_wait_counted_ = true;
    waits_.push_back({now - head_since_, node_->silence(now)});
  }
  // Rows of a scan may be small and far between.
  const bool is_scan = !flights_.empty() && flights_.front().kind == wire::ReplyKind::query;
  if (!begins && !is_scan && received_ < kProgressBytes) return;
  received_ = 0;
  last_progress_ = now;
  node_->note_progress(now);
}

Status Connection::take_answers(wire::ReplyDecoder::Progress progress, TimePoint now,
                                Outcome& outcome) {
  while (progress == wire::ReplyDecoder::Progress::complete) {
    last_progress_ = now;
    node_->note_progress(now);
    was_idle_ = false;
    if (state_ == State::authenticating) {
      state_ = State::ready;
    } else {
      Flight& flight = flights_.front();
      if (fully_sent_ == 0) {
        return {Code::protocol, "receive: an answer before its request was sent"};
      }
      write_count_ -= flight.is_write ? 1 : 0;
      if (flight.command != nullptr) {
        payload_bytes_ -= flight.payload_bytes;
        flight.command->sent_ = true;
        outcome.answered.push_back(flight.command);
      }
      flights_.pop_front();
      --fully_sent_;
    }
    head_since_ = now;
    head_bytes_ = node_->bytes_received.load(std::memory_order_relaxed);
    received_ = 0;
    head_wait_counted_ = decoder_.buffered() > 0;
    if (flights_.empty()) {
      if (decoder_.buffered() > 0) {
        return {Code::protocol, "receive: bytes without a request"};
      }
      return {};
    }
    expect_head();
    Result<wire::ReplyDecoder::Progress> resumed = decoder_.resume();
    if (!resumed) return resumed.error();
    progress = *resumed;
  }
  return {};
}

std::vector<Command*> Connection::abandon() {
  std::vector<Command*> commands;
  for (const Flight& flight : flights_) {
    if (flight.command == nullptr) continue;
    flight.command->sent_ =
        flight.sent == flight.request.head.size() + flight.request.payload.size();
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

TimePoint Connection::earliest_deadline() const {
  TimePoint earliest = TimePoint::max();
  for (const Flight& flight : flights_) {
    if (flight.command != nullptr) earliest = std::min(earliest, flight.command->plan.deadline);
  }
  return earliest;
}

Duration Connection::silence(TimePoint now) const {
  if (flights_.empty()) return Duration::zero();
  return now - std::max(last_progress_, head_since_);
}

}  // namespace aerokv::client
