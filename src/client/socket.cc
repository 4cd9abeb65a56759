// SPDX-License-Identifier: Apache-2.0
#include "client/socket.h"

#include <netinet/in.h>
#include <netinet/tcp.h>
#include <sys/socket.h>

#include <cerrno>

namespace aerokv::client {
namespace {

IoResult result_of(ssize_t moved) {
  if (moved >= 0) return {IoResult::Kind::moved, static_cast<size_t>(moved), 0};
  if (errno == EAGAIN || errno == EWOULDBLOCK) return {IoResult::Kind::would_block, 0, 0};
  return {IoResult::Kind::failed, 0, errno};
}

msghdr message_of(std::span<const iovec> parts) {
  msghdr message{};
  message.msg_iov = const_cast<iovec*>(parts.data());  // the call only reads the array
  message.msg_iovlen = parts.size();
  return message;
}

}  // namespace

Result<Socket> Socket::start_connect(const SocketAddress& address, const ClientOptions& options,
                                     const std::string& tls_name) {
  UniqueFd fd(::socket(address.storage.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!fd.is_open()) return status_from_errno(errno, "socket");
  const int on = 1;
  ::setsockopt(fd.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  if (::connect(fd.get(), reinterpret_cast<const sockaddr*>(&address.storage), address.length) <
          0 &&
      errno != EINPROGRESS) {
    return status_from_errno(errno, "connect");
  }
  Socket socket(std::move(fd));
  if (options.tls_context) {
    const std::string& name = tls_name.empty() ? options.tls_name : tls_name;
    Result<TlsStream> stream = options.tls_context->connect(socket.fd(), name);
    if (!stream) return stream.error();
    socket.tls_ = *std::move(stream);
  }
  return socket;
}

IoResult Socket::finish_connect() {
  if (is_connecting_) {
    int error = 0;
    socklen_t length = sizeof error;
    if (::getsockopt(fd_.get(), SOL_SOCKET, SO_ERROR, &error, &length) < 0) error = errno;
    if (error != 0) return {IoResult::Kind::failed, 0, error};
    is_connecting_ = false;
  }
  return tls_.is_open() ? tls_.handshake() : IoResult{};
}

IoResult Socket::send_clear(std::span<const iovec> parts) {
  if (parts.empty()) return {};
  const msghdr message = message_of(parts);
  ssize_t moved = 0;
  do {
    moved = ::sendmsg(fd_.get(), &message, MSG_NOSIGNAL | MSG_DONTWAIT);
  } while (moved < 0 && errno == EINTR);
  return result_of(moved);
}

IoResult Socket::receive_clear(std::span<const iovec> parts, bool only_buffered) {
  if (only_buffered) return {IoResult::Kind::would_block, 0, 0};
  msghdr message = message_of(parts);
  ssize_t moved = 0;
  do {
    moved = ::recvmsg(fd_.get(), &message, MSG_DONTWAIT);
  } while (moved < 0 && errno == EINTR);
  if (moved == 0) return {IoResult::Kind::closed, 0, 0};
  return result_of(moved);
}

Status Socket::failure(const IoResult& result, const char* doing) const {
  if (tls_.is_open() && !tls_.error().ok()) return tls_.error();
  if (result.kind == IoResult::Kind::closed) {
    return {Code::unavailable, std::string(doing) + ": closed by the server"};
  }
  return status_from_errno(result.error, doing);
}

void Socket::close() {
  if (tls_.is_open()) tls_.say_goodbye();
  tls_ = TlsStream();
  fd_.reset();
}

}  // namespace aerokv::client
