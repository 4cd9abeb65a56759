// SPDX-License-Identifier: Apache-2.0
#include "tests/hostile/scripted_node.h"

#include <arpa/inet.h>
#include <netinet/in.h>
#include <netinet/tcp.h>
#include <poll.h>
#include <sys/socket.h>

#include <cstdlib>

#include "tests/fault/world.h"
#include "wire/result.h"

namespace aerokv::testing {

Listener::Listener() : fd_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  socklen_t length = sizeof address;
  if (::bind(fd_.get(), reinterpret_cast<sockaddr*>(&address), length) != 0 ||
      ::listen(fd_.get(), 128) != 0 ||
      ::getsockname(fd_.get(), reinterpret_cast<sockaddr*>(&address), &length) != 0) {
    std::abort();
  }
  port_ = ntohs(address.sin_port);
}

UniqueFd Listener::accept() {
  UniqueFd socket(::accept4(fd_.get(), nullptr, nullptr, SOCK_CLOEXEC));
  const int on = 1;
  if (socket.is_open()) ::setsockopt(socket.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  return socket;
}

void Listener::shut_down() {
  ::shutdown(fd_.get(), SHUT_RDWR);
}

UniqueFd connect_to(uint16_t port) {
  UniqueFd fd(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0));
  sockaddr_in address{};
  address.sin_family = AF_INET;
  address.sin_port = htons(port);
  address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
  if (::connect(fd.get(), reinterpret_cast<const sockaddr*>(&address), sizeof address) != 0) {
    fd.reset();
  }
  return fd;
}

bool receive_all(int fd, MutableBytes bytes) {
  while (!bytes.empty()) {
    const ssize_t got = ::recv(fd, bytes.data(), bytes.size(), 0);
    if (got <= 0) return false;
    bytes = bytes.subspan(static_cast<size_t>(got));
  }
  return true;
}

bool send_all(int fd, Bytes bytes) {
  while (!bytes.empty()) {
    const ssize_t sent = ::send(fd, bytes.data(), bytes.size(), MSG_NOSIGNAL);
    if (sent <= 0) return false;
    bytes = bytes.subspan(static_cast<size_t>(sent));
  }
  return true;
}

bool receive_frame(int fd, ByteVector& frame) {
  frame.resize(wire::kFrameHeaderBytes);
  if (!receive_all(fd, frame)) return false;
  const uint64_t bytes = load_be<uint64_t>(frame.data()) & 0xFFFFFFFFFFFFULL;
  if (bytes > kMessageBytesMax) return false;
  frame.resize(wire::kFrameHeaderBytes + static_cast<size_t>(bytes));
  return receive_all(fd, MutableBytes(frame).subspan(wire::kFrameHeaderBytes));
}

ByteVector frame_of(wire::MessageType type, Bytes body) {
  ByteVector frame;
  wire::UnitWriter writer(frame);
  const size_t at = writer.begin_frame();
  writer.bytes(body);
  writer.end_frame(at, type);
  return frame;
}

ByteVector info_frame(std::string_view text) {
  return frame_of(wire::MessageType::info, as_bytes(text));
}

ByteVector header_frame(uint8_t code, uint8_t info3) {
  ByteVector body;
  wire::MessageHeader header;
  header.result_code = code;
  header.info3 = info3;
  wire::UnitWriter(body).header(header);
  return frame_of(wire::MessageType::record, body);
}

std::string all_partitions() {
  return std::string(682, '/') + "8=";  // 512 bytes of ones
}

ScriptedNode::ScriptedNode()
    : info{{"node", "BB9000000000001"},
           {"build", "8.1.2.0"},
           {"partition-generation", "1"},
           {"peers-generation", "1"},
           {"peers-clear-std", "1,3000,[]"},
           {"peers-clear-alt", "1,3000,[]"},
           {"replicas", "lmcache:0,1," + all_partitions()},
           {"namespace/lmcache", "max-record-size=131072;nsup-period=120;replication-factor=1"},
           {"rebalance-generation", "1"},
           {"rack-ids", "lmcache:0"}},
      on_record([](Bytes) {
        return std::make_shared<Reply>(Reply{header_frame(wire::result::kNotFound)});
      }) {
  acceptor_ = std::thread([this] {
    while (true) {
      UniqueFd socket = listener_.accept();
      if (!socket.is_open()) return;
      const std::scoped_lock lock(mutex_);
      if (stopping_) return;
      const int fd = socket.get();
      sockets_.push_back(std::move(socket));
      threads_.emplace_back([this, fd] { serve(fd); });
    }
  });
}

ScriptedNode::~ScriptedNode() {
  stopping_ = true;
  listener_.shut_down();
  acceptor_.join();
  for (const UniqueFd& socket : sockets_) ::shutdown(socket.get(), SHUT_RDWR);
  for (std::thread& thread : threads_) thread.join();
}

void ScriptedNode::serve(int fd) {
  ByteVector frame;
  if (send_all(fd, greeting)) {
    while (receive_frame(fd, frame) && send_reply(fd, *answer(frame))) {
    }
  }
  ::shutdown(fd, SHUT_RDWR);
}

ReplyPtr ScriptedNode::answer(Bytes frame) {
  const Bytes body = frame.subspan(wire::kFrameHeaderBytes);
  if (frame[1] == std::byte{3}) return on_record(body);
  const std::string commands(as_text(body));
  if (on_info) {
    if (std::optional<Reply> reply = on_info(commands))
      return std::make_shared<Reply>(*std::move(reply));
  }
  std::string text;
  for (size_t at = 0; at < commands.size();) {
    const size_t end = std::min(commands.find('\n', at), commands.size());
    const std::string name = commands.substr(at, end - at);
    const auto known = info.find(name);
    text += name + "\t" + (known == info.end() ? "ok" : known->second) + "\n";
    at = end + 1;
  }
  return std::make_shared<Reply>(Reply{info_frame(text)});
}

bool ScriptedNode::send_reply(int fd, const Reply& reply) {
  if (reply.drip.count() == 0) {
    if (!send_all(fd, reply.bytes)) return false;
  } else {
    for (const std::byte byte : reply.bytes) {
      if (stopping_ || !send_all(fd, {&byte, 1})) return false;
      pollfd peer{fd, POLLRDHUP, 0};
      ::poll(&peer, 1, static_cast<int>(reply.drip.count()));
      if ((peer.revents & (POLLRDHUP | POLLHUP | POLLERR)) != 0) return false;
    }
  }
  while (reply.endless) {
    if (stopping_ || !send_all(fd, reply.again)) return false;
  }
  return !reply.closes;
}

StoreOptions hostile_options(const std::string& hosts) {
  StoreOptions options;
  options.hosts = hosts;
  options.num_io_threads = 1;
  options.request_timeout = kRequestTimeout;
  options.write_request_timeout = kRequestTimeout;
  options.read_timeout = 5 * kRequestTimeout;
  options.write_timeout = 5 * kRequestTimeout;
  options.connect_timeout = std::chrono::milliseconds(800 * kSlowness);
  options.verify = Verify::full;
  return options;
}

}  // namespace aerokv::testing
