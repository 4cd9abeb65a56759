// SPDX-License-Identifier: Apache-2.0
#include "base/tls.h"

#include <openssl/err.h>
#include <sys/socket.h>

#include <algorithm>
#include <array>
#include <cerrno>
#include <cstring>
#include <span>
#include <utility>

#include "base/fd.h"
#include "base/tls_stream.h"

namespace aerokv {
namespace {

// Plain bytes of one record; a larger piece becomes several.
constexpr size_t kRecordBytes = 16 << 10;

// Encrypted bytes that wait here before the socket is asked to take them: several records a call.
constexpr size_t kSendBytes = 128 << 10;

// Bytes that are received beyond those that OpenSSL asks for (one record at a time).
constexpr size_t kReceiveBytes = 64 << 10;

// Parts up to this size are copied together before they are encrypted: a record each would cost
// more.
constexpr size_t kSmallPartBytes = 4 << 10;

// A client that goes on and on with its hello, or a server with its certificates.
constexpr size_t kHandshakeMessageBytesMax = 64 << 10;

// What ends before the handshake is done often is no TLS at all.
constexpr const char* kHint = " before it was done; does the port speak TLS?";

TlsStream::Impl* stream_of(BIO* bio);

int write_encrypted(BIO* bio, const char* data, int size) {
  BIO_clear_retry_flags(bio);
  return stream_of(bio)->take_encrypted(data, size);
}

int read_encrypted(BIO* bio, char* data, int size) {
  BIO_clear_retry_flags(bio);
  const int count = stream_of(bio)->give_encrypted(data, size);
  if (count == -1 && stream_of(bio)->socket_error == 0) BIO_set_retry_read(bio);
  return count;
}

long control(BIO* bio, int command, long, void*) {
  switch (command) {
    case BIO_CTRL_FLUSH:
      return 1;  // it is sent after the call that has produced it
    case BIO_CTRL_EOF:
      return stream_of(bio)->reached_end ? 1 : 0;
    default:
      return 0;
  }
}

TlsStream::Impl* stream_of(BIO* bio) {
  return static_cast<TlsStream::Impl*>(BIO_get_data(bio));
}

BIO_METHOD* make_method() {
  BIO_METHOD* method = BIO_meth_new(BIO_get_new_index() | BIO_TYPE_SOURCE_SINK, "aerokv socket");
  if (method == nullptr) return nullptr;
  BIO_meth_set_write(method, write_encrypted);
  BIO_meth_set_read(method, read_encrypted);
  BIO_meth_set_ctrl(method, control);
  return method;
}

const BIO_METHOD* socket_method() {
  static const BIO_METHOD* const method = make_method();
  return method;
}

}  // namespace

Result<std::unique_ptr<TlsStream::Impl>> TlsStream::Impl::make(SSL_CTX* ssl_context, int fd) {
  auto impl = std::make_unique<Impl>();
  impl->fd = fd;
  impl->ssl.reset(SSL_new(ssl_context));
  BIO* bio = BIO_new(socket_method());
  if (!impl->ssl || bio == nullptr) {
    BIO_free(bio);
    return Status(Code::internal, "TLS: " + describe_openssl_error());
  }
  BIO_set_data(bio, impl.get());
  BIO_set_init(bio, 1);
  SSL_set_bio(impl->ssl.get(), bio, bio);  // which takes it over
  SSL_set_app_data(impl->ssl.get(), impl.get());
  SSL_set_max_cert_list(impl->ssl.get(), kHandshakeMessageBytesMax);
  return impl;
}

int TlsStream::Impl::take_encrypted(const char* data, int size) {
  const auto* bytes = reinterpret_cast<const std::byte*>(data);
  out.insert(out.end(), bytes, bytes + size);
  return size;
}

int TlsStream::Impl::give_encrypted(char* data, int size) {
  const auto wanted = static_cast<size_t>(size);
  if (in_begin == in_end) {
    if (only_buffered) return -1;
    if (in.empty()) in.resize(kReceiveBytes);
    in_begin = in_end = 0;
    // What OpenSSL wants now goes straight to its place, what follows is kept for later.
    const std::array<iovec, 2> parts{iovec{data, wanted}, iovec{in.data(), in.size()}};
    msghdr message{};
    message.msg_iov = const_cast<iovec*>(parts.data());  // the call only reads the array
    message.msg_iovlen = parts.size();
    ssize_t moved = 0;
    do {
      moved = ::recvmsg(fd, &message, MSG_DONTWAIT);
    } while (moved < 0 && errno == EINTR);
    if (moved == 0) reached_end = true;
    if (moved < 0 && errno != EAGAIN && errno != EWOULDBLOCK) socket_error = errno;
    if (moved <= 0) return moved < 0 ? -1 : 0;
    const auto count = static_cast<size_t>(moved);
    if (count > wanted) in_end = count - wanted;
    return static_cast<int>(std::min(count, wanted));
  }
  const size_t count = std::min(wanted, in_end - in_begin);
  std::memcpy(data, in.data() + in_begin, count);
  in_begin += count;
  return static_cast<int>(count);
}

IoResult TlsStream::Impl::stop(IoResult::Kind kind, Status why) {
  error = std::move(why);
  return {kind, 0, kind == IoResult::Kind::failed ? socket_error : 0};
}

/// Turns what a call of OpenSSL has returned into what it means for the stream.
IoResult TlsStream::Impl::fail(int ssl_result, const char* doing) {
  const int kind = SSL_get_error(ssl.get(), ssl_result);
  if (kind == SSL_ERROR_WANT_READ || kind == SSL_ERROR_WANT_WRITE) {
    return {IoResult::Kind::would_block, 0, 0};
  }
  const std::string where = std::string("TLS ") + doing + ": ";
  if (!refusal.empty()) return stop(IoResult::Kind::failed, {Code::denied, where + refusal});
  if (socket_error != 0) {
    const Status status = status_from_errno(socket_error, std::string("TLS ") + doing);
    return stop(IoResult::Kind::failed,
                established ? status : Status(status.code(), status.message() + kHint));
  }
  if (kind == SSL_ERROR_ZERO_RETURN) {
    return stop(IoResult::Kind::closed, {Code::unavailable, where + "closed by the other side"});
  }
  if (reached_end) {
    return stop(established ? IoResult::Kind::closed : IoResult::Kind::failed,
                {Code::unavailable,
                 where + (established ? "cut off by the other side (no close notification)"
                                      : std::string("closed by the other side") + kHint)});
  }
  const std::string reason = describe_openssl_error();
  const bool is_refusal = reason.starts_with("refused");
  return stop(IoResult::Kind::failed, {is_refusal ? Code::denied : Code::protocol, where + reason});
}

IoResult TlsStream::Impl::handshake() {
  if (established) return {};
  ERR_clear_error();
  const int result = SSL_do_handshake(ssl.get());
  // An alert that tells the other side why it was refused is sent as well.
  const IoResult flushed = flush();
  if (result != 1) {
    const IoResult failed = fail(result, "handshake");
    if (failed.kind != IoResult::Kind::would_block) return failed;
    return flushed.kind == IoResult::Kind::failed && reached_end ? flushed : failed;
  }
  established = true;
  if (flushed.kind == IoResult::Kind::failed) return flushed;
  return {};
}

IoResult TlsStream::Impl::flush() {
  while (out_sent < out.size()) {
    const ssize_t moved =
        ::send(fd, out.data() + out_sent, out.size() - out_sent, MSG_NOSIGNAL | MSG_DONTWAIT);
    if (moved >= 0) {
      out_sent += static_cast<size_t>(moved);
      continue;
    }
    if (errno == EINTR) continue;
    if (errno == EAGAIN || errno == EWOULDBLOCK) return {IoResult::Kind::would_block, 0, 0};
    socket_error = errno;
    return stop(IoResult::Kind::failed, status_from_errno(socket_error, "TLS send"));
  }
  out.clear();
  out_sent = 0;
  return {};
}

/// Encrypts the front of `parts`, small ones together; returns the plain bytes taken.
size_t TlsStream::Impl::encrypt(std::span<const iovec> parts, IoResult& stopped) {
  const auto write = [&](const void* data, size_t size) {
    size_t taken = 0;
    if (const int result = SSL_write_ex(ssl.get(), data, size, &taken); result != 1) {
      stopped = fail(result, "send");
    }
    return taken;
  };
  size_t total = 0;
  size_t next = 0;
  size_t offset = 0;  // within parts[next]
  while (next < parts.size() && unsent() < kSendBytes && stopped.kind == IoResult::Kind::moved) {
    const auto* data = static_cast<const std::byte*>(parts[next].iov_base) + offset;
    const size_t size = parts[next].iov_len - offset;
    if (size > kSmallPartBytes || next + 1 == parts.size()) {
      if (size > 0) {
        const size_t taken = write(data, std::min(size, kRecordBytes));
        total += taken;
        offset += taken;
      }
      if (offset == parts[next].iov_len) {
        ++next;
        offset = 0;
      }
      continue;
    }
    small.clear();
    for (; next < parts.size() && small.size() < kRecordBytes; offset = 0) {
      const auto* from = static_cast<const std::byte*>(parts[next].iov_base) + offset;
      const size_t left = parts[next].iov_len - offset;
      const size_t taken = std::min(left, kRecordBytes - small.size());
      small.insert(small.end(), from, from + taken);
      offset += taken;
      if (offset < parts[next].iov_len) break;
      ++next;
    }
    // A record is taken as a whole: the sink of the encrypted bytes never refuses any.
    if (!small.empty()) total += write(small.data(), small.size());
  }
  return total;
}

IoResult TlsStream::Impl::send(std::span<const iovec> parts) {
  if (const IoResult flushed = flush(); flushed.kind != IoResult::Kind::moved) return flushed;
  if (parts.empty()) return {};
  ERR_clear_error();
  IoResult stopped;
  const size_t taken = encrypt(parts, stopped);
  if (stopped.kind != IoResult::Kind::moved && taken == 0) return stopped;
  const IoResult flushed = flush();
  if (flushed.kind == IoResult::Kind::failed) return flushed;
  return {IoResult::Kind::moved, taken, 0};
}

IoResult TlsStream::Impl::receive(std::span<const iovec> parts, bool buffered_only) {
  ERR_clear_error();
  only_buffered = buffered_only;
  size_t total = 0;
  for (const iovec& part : parts) {
    size_t filled = 0;
    while (filled < part.iov_len) {
      size_t moved = 0;
      const int result = SSL_read_ex(ssl.get(), static_cast<std::byte*>(part.iov_base) + filled,
                                     part.iov_len - filled, &moved);
      if (result == 1) {
        filled += moved;
        total += moved;
        continue;
      }
      const IoResult stopped = fail(result, "receive");
      if (unsent() > 0) flush();  // an alert, or the answer to a change of keys
      // What was received before counts; the next call meets the end again.
      return total > 0 ? IoResult{IoResult::Kind::moved, total, 0} : stopped;
    }
  }
  return {IoResult::Kind::moved, total, 0};
}

void TlsStream::Impl::note_refusal(X509_STORE_CTX* verification) {
  if (refusal.empty()) refusal = describe_refusal(verification, expected_name);
}

TlsStream::TlsStream() noexcept = default;
TlsStream::TlsStream(std::unique_ptr<Impl> impl) noexcept : impl_(std::move(impl)) {}
TlsStream::~TlsStream() = default;
TlsStream::TlsStream(TlsStream&& other) noexcept = default;
TlsStream& TlsStream::operator=(TlsStream&& other) noexcept = default;

IoResult TlsStream::handshake() {
  return impl_->handshake();
}

bool TlsStream::is_established() const {
  return impl_->established;
}

IoResult TlsStream::send(std::span<const iovec> parts) {
  return impl_->send(parts);
}

IoResult TlsStream::receive(std::span<const iovec> parts, bool only_buffered) {
  return impl_->receive(parts, only_buffered);
}

bool TlsStream::wants_write() const {
  return impl_->unsent() > 0;
}

void TlsStream::say_goodbye() {
  if (!impl_->established || !impl_->error.ok()) return;
  ERR_clear_error();
  SSL_shutdown(impl_->ssl.get());
  impl_->flush();
}

const Status& TlsStream::error() const {
  return impl_->error;
}

std::string TlsStream::description() const {
  if (!impl_->established) return {};
  const SSL* ssl = impl_->ssl.get();
  return std::string(SSL_get_version(ssl)) + " " + SSL_get_cipher_name(ssl);
}

std::string TlsStream::peer_common_name() const {
  if (!impl_->established || SSL_get_verify_result(impl_->ssl.get()) != X509_V_OK) return {};
  const std::unique_ptr<X509, OpenSslDeleter<X509_free>> certificate(
      SSL_get1_peer_certificate(impl_->ssl.get()));
  return certificate ? common_name(certificate.get()) : std::string();
}

}  // namespace aerokv
