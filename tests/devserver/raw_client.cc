// SPDX-License-Identifier: Apache-2.0
#include "raw_client.h"

#include <arpa/inet.h>
#include <gtest/gtest.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>
#include <sys/time.h>

#include <cerrno>
#include <random>

namespace aerokv::devserver_test {

std::optional<RawClient> RawClient::try_connect(const devserver::Endpoint& endpoint) {
  UniqueFd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  if (!fd.is_open()) return std::nullopt;
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(endpoint.port);
  ::inet_pton(AF_INET, endpoint.host.c_str(), &address.sin_addr);
  if (::connect(fd.get(), reinterpret_cast<sockaddr*>(&address), sizeof address) != 0) {
    return std::nullopt;
  }
  const int on = 1;
  ::setsockopt(fd.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  RawClient client(std::move(fd));
  client.set_timeout(milliseconds(10000));
  return client;
}

RawClient::RawClient(const devserver::Endpoint& endpoint) {
  auto client = try_connect(endpoint);
  if (client) {
    fd_ = std::move(client->fd_);
  } else {
    ADD_FAILURE() << "connect " << endpoint.host << ":" << endpoint.port << ": refused";
  }
}

void RawClient::set_timeout(milliseconds timeout) {
  timeval time{};
  time.tv_sec = timeout.count() / 1000;
  time.tv_usec = (timeout.count() % 1000) * 1000;
  ::setsockopt(fd_.get(), SOL_SOCKET, SO_RCVTIMEO, &time, sizeof time);
}

void RawClient::send(Bytes bytes) {
  while (!bytes.empty()) {
    const ssize_t sent = ::send(fd_.get(), bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent < 0) return;  // the next receive shows it
    bytes = bytes.subspan(static_cast<size_t>(sent));
  }
}

ByteVector RawClient::receive(size_t count) {
  ByteVector bytes(count);
  size_t filled = 0;
  while (filled < count) {
    const ssize_t got = ::recv(fd_.get(), bytes.data() + filled, count - filled, 0);
    if (got < 0 && errno == EINTR) continue;
    if (got <= 0) break;
    filled += static_cast<size_t>(got);
  }
  bytes.resize(filled);
  return bytes;
}

std::optional<ByteVector> RawClient::receive_frame() {
  ByteVector frame = receive(wire::kFrameHeaderBytes);
  if (frame.size() < wire::kFrameHeaderBytes) return std::nullopt;
  const uint64_t size = load_be<uint64_t>(frame.data()) & 0xFFFFFFFFFFFFULL;
  if (size > (256ULL << 20)) return std::nullopt;
  const ByteVector body = receive(size);
  if (body.size() < size) return std::nullopt;
  frame.insert(frame.end(), body.begin(), body.end());
  return frame;
}

bool RawClient::is_closed_by_server() {
  std::byte byte{};
  const ssize_t got = ::recv(fd_.get(), &byte, 1, 0);
  return got == 0 || (got < 0 && errno == ECONNRESET);
}

std::optional<ByteVector> RawClient::ask(Bytes request) {
  send(request);
  return receive_frame();
}

std::string RawClient::info(const std::string& command) {
  const auto answer = ask(info_request(command + "\n"));
  if (!answer) return "no answer";
  const std::string text(as_text(Bytes(*answer).subspan(wire::kFrameHeaderBytes)));
  const std::string head = command + "\t";
  if (!text.starts_with(head) || !text.ends_with('\n')) return "malformed: " + text;
  return text.substr(head.size(), text.size() - head.size() - 1);
}

const Unit::Op* Unit::op(std::string_view name) const {
  for (const Op& o : ops) {
    if (o.name == name) return &o;
  }
  return nullptr;
}

const ByteVector* Unit::field(wire::FieldType type) const {
  for (const auto& [id, value] : fields) {
    if (id == static_cast<uint8_t>(type)) return &value;
  }
  return nullptr;
}

std::vector<Unit> units_of(Bytes answer) {
  std::vector<Unit> units;
  size_t at = 0;
  const auto copy = [](Bytes bytes) { return ByteVector(bytes.begin(), bytes.end()); };
  while (at < answer.size()) {
    const auto frame = wire::decode_frame_header(answer.subspan(at));
    at += wire::kFrameHeaderBytes;
    if (!frame || at + frame->body_bytes > answer.size()) {
      ADD_FAILURE() << "no complete frame at byte " << at;
      return units;
    }
    const size_t end = at + frame->body_bytes;
    while (at < end) {
      wire::UnitReader reader(answer.subspan(at, end - at));
      Unit unit;
      unit.begin = at;
      bool good = true;
      const auto header = reader.header();
      good = header.has_value();
      if (good) unit.header = *header;
      for (uint32_t i = 0; good && i < unit.header.field_count; ++i) {
        const auto field = reader.field();
        good = field.has_value();
        if (good) unit.fields.emplace_back(field->type, copy(field->value));
      }
      for (uint32_t i = 0; good && i < unit.header.op_count; ++i) {
        const auto op = reader.op();
        good = op.has_value();
        if (good) {
          unit.ops.push_back({op->type, op->particle, std::string(op->name), copy(op->value)});
        }
      }
      if (!good) {
        ADD_FAILURE() << "broken unit at byte " << at;
        return units;
      }
      at = end - reader.rest().size();
      unit.end = at;
      units.push_back(std::move(unit));
    }
  }
  return units;
}

ByteVector RequestParts::build() const {
  ByteVector bytes;
  wire::UnitWriter writer(bytes);
  const size_t at = writer.begin_frame();
  wire::MessageHeader header;
  header.info1 = info1;
  header.info2 = info2;
  header.info3 = info3;
  header.generation = generation;
  header.record_ttl = ttl;
  header.transaction_ttl = timeout_ms;
  header.field_count = static_cast<uint16_t>(sends_key ? 4 : 3);
  header.op_count = static_cast<uint16_t>(ops.size());
  writer.header(header);
  writer.field(wire::FieldType::ns, as_bytes(ns));
  writer.field(wire::FieldType::set, as_bytes(set));
  writer.field(wire::FieldType::digest, digest());
  if (sends_key) {
    writer.field_header(wire::FieldType::user_key, key.size() + 1);
    writer.u8(static_cast<uint8_t>(wire::Particle::string));
    writer.bytes(as_bytes(key));
  }
  for (const Unit::Op& op : ops) {
    writer.op(static_cast<wire::OpType>(op.type), static_cast<wire::Particle>(op.particle), op.name,
              op.value);
  }
  writer.end_frame(at, wire::MessageType::record);
  return bytes;
}

RequestParts put_of(const std::string& key, ByteVector value, const std::string& bin) {
  RequestParts parts;
  parts.info2 = wire::info2::kWrite;
  parts.key = key;
  parts.ops.push_back({static_cast<uint8_t>(wire::OpType::write),
                       static_cast<uint8_t>(wire::Particle::blob), bin, std::move(value)});
  return parts;
}

RequestParts get_of(const std::string& key) {
  RequestParts parts;
  parts.info1 = wire::info1::kRead | wire::info1::kGetAll;
  parts.key = key;
  return parts;
}

RequestParts exists_of(const std::string& key) {
  RequestParts parts;
  parts.info1 = wire::info1::kRead | wire::info1::kNoBinData;
  parts.key = key;
  return parts;
}

RequestParts remove_of(const std::string& key) {
  RequestParts parts;
  parts.info2 = wire::info2::kWrite | wire::info2::kDelete;
  parts.key = key;
  return parts;
}

ByteVector batch_exists_of(const std::vector<std::string>& keys, uint32_t timeout_ms,
                           uint8_t flags) {
  ByteVector rows;
  wire::UnitWriter row(rows);
  row.u32(static_cast<uint32_t>(keys.size()));
  row.u8(flags);
  for (size_t i = 0; i < keys.size(); ++i) {
    row.u32(static_cast<uint32_t>(i));
    row.bytes(wire::compute_digest("kv_chunks", keys[i]));
    if (i > 0) {
      row.u8(0x01);
      continue;
    }
    row.u8(0x0A);
    row.u8(wire::info1::kRead | wire::info1::kNoBinData);
    row.u16(0);
    row.u32(0);
    row.u16(2);
    row.u16(0);
    row.field(wire::FieldType::ns, as_bytes("lmcache"));
    row.field(wire::FieldType::set, as_bytes("kv_chunks"));
  }
  ByteVector bytes;
  wire::UnitWriter writer(bytes);
  const size_t at = writer.begin_frame();
  wire::MessageHeader header;
  header.info1 = wire::info1::kBatch;
  header.transaction_ttl = timeout_ms;
  header.field_count = 1;
  writer.header(header);
  writer.field(wire::FieldType::batch, rows);
  writer.end_frame(at, wire::MessageType::record);
  return bytes;
}

ByteVector info_request(const std::string& commands) {
  ByteVector bytes;
  wire::UnitWriter writer(bytes);
  const size_t at = writer.begin_frame();
  writer.bytes(as_bytes(commands));
  writer.end_frame(at, wire::MessageType::info);
  return bytes;
}

ByteVector pattern(size_t count, uint64_t seed) {
  ByteVector bytes(count);
  std::mt19937_64 random(seed);
  size_t i = 0;
  for (; i + 8 <= count; i += 8) store_le<uint64_t>(bytes.data() + i, random());
  for (; i < count; ++i) bytes[i] = static_cast<std::byte>(random() & 0xFF);
  return bytes;
}

Unit ask_unit(RawClient& client, const RequestParts& request) {
  Unit none;
  none.header.result_code = 255;
  const auto answer = client.ask(request.build());
  if (!answer) return none;
  std::vector<Unit> units = units_of(*answer);
  return units.size() == 1 ? std::move(units.front()) : none;
}

uint8_t ask_code(RawClient& client, const RequestParts& request) {
  return ask_unit(client, request).header.result_code;
}

}  // namespace aerokv::devserver_test
