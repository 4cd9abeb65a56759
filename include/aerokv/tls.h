// SPDX-License-Identifier: Apache-2.0
// What TLS needs to know. docs/guides/security.md#tls-and-users shows the whole set-up.
#pragma once

#include <cstdint>
#include <string>

namespace aerokv {

/// The oldest protocol that is spoken; anything before TLS 1.2 never is.
enum class TlsVersion : uint8_t { v1_2, v1_3 };

/// Certificates and rules of one side. Files are read again when they have changed, so that
/// certificates are renewed without a restart: new connections use what is there then.
struct TlsOptions {
  bool enable = false;

  /// Whom to trust: PEM certificates in one file, and/or a folder as `openssl rehash` makes it. A
  /// client needs one of the two.
  std::string ca_file;
  std::string ca_path;
  std::string crl_file;  ///< PEM; certificates on it are refused

  /// What is shown to the other side: PEM chain (leaf first) and key. Optional for a client.
  std::string cert_file;
  std::string key_file;
  std::string key_password;       ///< of an encrypted key; never logged
  std::string key_password_file;  ///< instead: its content, without one line feed at the end

  TlsVersion min_version = TlsVersion::v1_2;
  std::string ciphers;        ///< TLS 1.2, in OpenSSL's notation; empty = AES-GCM and ChaCha20
  std::string cipher_suites;  ///< TLS 1.3; empty = AES-GCM and ChaCha20

  bool operator==(const TlsOptions&) const = default;
};

}  // namespace aerokv
