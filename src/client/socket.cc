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

Result<Socket> Socket::start_connect(const SocketAddress& address) {
  UniqueFd fd(::socket(address.storage.ss_family, SOCK_STREAM | SOCK_NONBLOCK | SOCK_CLOEXEC, 0));
  if (!fd.is_open()) return status_from_errno(errno, "socket");
  const int on = 1;
  ::setsockopt(fd.get(), IPPROTO_TCP, TCP_NODELAY, &on, sizeof on);
  if (::connect(fd.get(), reinterpret_cast<const sockaddr*>(&address.storage), address.length) <
          0 &&
      errno != EINPROGRESS) {
    return status_from_errno(errno, "connect");
  }
  return Socket(std::move(fd));
}

Status Socket::connect_result() const {
  int error = 0;
  socklen_t length = sizeof error;
  if (::getsockopt(fd_.get(), SOL_SOCKET, SO_ERROR, &error, &length) < 0) error = errno;
  if (error != 0) return status_from_errno(error, "connect");
  return {};
}

IoResult Socket::send(std::span<const iovec> parts) {
  const msghdr message = message_of(parts);
  ssize_t moved = 0;
  do {
    moved = ::sendmsg(fd_.get(), &message, MSG_NOSIGNAL | MSG_DONTWAIT);
  } while (moved < 0 && errno == EINTR);
  return result_of(moved);
}

IoResult Socket::receive(std::span<const iovec> parts) {
  msghdr message = message_of(parts);
  ssize_t moved = 0;
  do {
    moved = ::recvmsg(fd_.get(), &message, MSG_DONTWAIT);
  } while (moved < 0 && errno == EINTR);
  if (moved == 0) return {IoResult::Kind::closed, 0, 0};
  return result_of(moved);
}

}  // namespace aerokv::client
