// SPDX-License-Identifier: Apache-2.0
// Certificates made for tests: a CA, and what it signs. Nothing here is for production.
#pragma once

#include <openssl/evp.h>
#include <openssl/x509.h>

#include <chrono>
#include <filesystem>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

namespace aerokv::testing {

/// What a certificate says.
struct CertificateSpec {
  std::string common_name;
  std::vector<std::string> dns_names{};    ///< subject alternative names
  std::chrono::seconds valid_from{-3600};  ///< from now
  std::chrono::seconds valid_until{86400};
  bool is_ca = false;
};

/// A certificate with its key (P-256). Copies share both.
class Certificate {
 public:
  /// Signed by `issuer`, or by itself if there is none.
  static Certificate make(const CertificateSpec& spec, const Certificate* issuer = nullptr);

  [[nodiscard]] std::string certificate_pem() const;
  /// Encrypted if there is a password.
  [[nodiscard]] std::string key_pem(const std::string& password = "") const;
  /// A list of this CA that revokes `revoked`.
  [[nodiscard]] std::string crl_pem(const std::vector<const Certificate*>& revoked) const;

  /// For misuse of OpenSSL itself, without TlsContext.
  [[nodiscard]] X509* x509() const { return x509_.get(); }
  [[nodiscard]] EVP_PKEY* key() const { return key_.get(); }

 private:
  std::shared_ptr<X509> x509_;
  std::shared_ptr<EVP_PKEY> key_;
};

/// A folder that is removed with all it holds.
class CertificateFolder {
 public:
  CertificateFolder();
  ~CertificateFolder();
  CertificateFolder(const CertificateFolder&) = delete;
  CertificateFolder& operator=(const CertificateFolder&) = delete;

  /// Writes the file, replacing one of that name in one step as tools that renew certificates do.
  /// Returns its path.
  std::string write(const std::string& name, std::string_view content) const;
  [[nodiscard]] std::string path(const std::string& name) const { return (path_ / name).string(); }
  [[nodiscard]] std::string path() const { return path_.string(); }

 private:
  std::filesystem::path path_;
};

/// The files of a usual set-up in one folder: ca.pem, server.pem and server.key made out to
/// `server_names`, client.pem and client.key made out to `client_name`.
class CertificateSet {
 public:
  explicit CertificateSet(std::vector<std::string> server_names = {"cluster.test"},
                          std::string client_name = "reader");

  [[nodiscard]] std::string ca_file() const { return folder.path("ca.pem"); }
  [[nodiscard]] std::string server_cert() const { return folder.path("server.pem"); }
  [[nodiscard]] std::string server_key() const { return folder.path("server.key"); }
  [[nodiscard]] std::string client_cert() const { return folder.path("client.pem"); }
  [[nodiscard]] std::string client_key() const { return folder.path("client.key"); }

  CertificateFolder folder;
  Certificate ca;
  Certificate server;
  Certificate client;
};

}  // namespace aerokv::testing
