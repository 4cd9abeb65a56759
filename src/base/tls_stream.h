// SPDX-License-Identifier: Apache-2.0
// What the source files of TlsStream and TlsContext share.
#pragma once

#include <openssl/bio.h>
#include <openssl/ssl.h>

#include <memory>
#include <string>
#include <vector>

#include "base/tls.h"

namespace aerokv {

template <auto kFree>
struct OpenSslDeleter {
  template <typename T>
  void operator()(T* object) const {
    kFree(object);
  }
};

struct TlsStream::Impl {
  /// Takes over nothing of `ssl_context`, which it references.
  static Result<std::unique_ptr<Impl>> make(SSL_CTX* ssl_context, int fd);

  IoResult handshake();
  IoResult send(std::span<const iovec> parts);
  IoResult receive(std::span<const iovec> parts, bool buffered_only);
  /// Sends what is encrypted; would_block if the socket does not take all of it.
  IoResult flush();
  /// The certificate of the other side failed at `depth` of its chain; called while it is verified.
  void note_refusal(X509_STORE_CTX* verification);
  [[nodiscard]] size_t unsent() const { return out.size() - out_sent; }

  // What OpenSSL calls to move encrypted bytes.
  int take_encrypted(const char* data, int size);
  int give_encrypted(char* data, int size);

  std::unique_ptr<SSL, OpenSslDeleter<SSL_free>> ssl;
  int fd = -1;
  std::string expected_name;
  bool established = false;

  std::vector<std::byte> out;  ///< encrypted, from out_sent on not yet taken by the socket
  size_t out_sent = 0;
  std::vector<std::byte> in;  ///< received and not yet decrypted: [in_begin, in_end)
  size_t in_begin = 0;
  size_t in_end = 0;
  std::vector<std::byte> small;  ///< small parts of one send(), to be encrypted together
  bool only_buffered = false;    ///< the socket is not asked at present

  bool reached_end = false;  ///< the other side has closed the socket
  int socket_error = 0;      ///< errno of the call that failed
  std::string refusal;       ///< why the certificate of the other side was not accepted
  Status error;

 private:
  IoResult fail(int ssl_result, const char* doing);
  IoResult stop(IoResult::Kind kind, Status why);
  [[nodiscard]] size_t encrypt(std::span<const iovec> parts, IoResult& stopped);
};

/// Why a certificate was refused, in words: the reason, whom it names and until when it holds.
std::string describe_refusal(X509_STORE_CTX* verification, const std::string& expected_name);

/// The newest error of OpenSSL on this thread in words that tell what to look at.
std::string describe_openssl_error();

/// The text of a name in a certificate, without control characters, at most 100 characters.
std::string common_name(const X509* certificate);

}  // namespace aerokv
