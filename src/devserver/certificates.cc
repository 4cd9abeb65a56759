// SPDX-License-Identifier: Apache-2.0
#include "devserver/certificates.h"

#include <fcntl.h>
#include <openssl/bio.h>
#include <openssl/evp.h>
#include <openssl/pem.h>
#include <openssl/rand.h>
#include <openssl/x509v3.h>
#include <sys/stat.h>
#include <unistd.h>

#include <algorithm>
#include <cctype>
#include <cerrno>
#include <memory>

#include "base/fd.h"

namespace aerokv::devserver {
namespace {

constexpr long kValidSeconds = 30L * 86400;
constexpr long kClockSkewSeconds = 3600;

template <auto kFree>
struct Deleter {
  template <typename T>
  void operator()(T* object) const {
    kFree(object);
  }
};
using Key = std::unique_ptr<EVP_PKEY, Deleter<EVP_PKEY_free>>;
using X509Ptr = std::unique_ptr<X509, Deleter<X509_free>>;
using Bio = std::unique_ptr<BIO, Deleter<BIO_free_all>>;

struct Signed {
  Key key;
  X509Ptr certificate;
};

enum class Purpose : uint8_t { authority, server, client };

Status openssl_failed(const char* what) {
  return {Code::internal, std::string("certificates: ") + what + " failed"};
}

bool add_extension(X509& certificate, X509& issuer, int kind, const std::string& value) {
  X509V3_CTX context;
  X509V3_set_ctx_nodb(&context);
  X509V3_set_ctx(&context, &issuer, &certificate, nullptr, nullptr, 0);
  const std::unique_ptr<X509_EXTENSION, Deleter<X509_EXTENSION_free>> extension(
      X509V3_EXT_conf_nid(nullptr, &context, kind, value.c_str()));
  return extension && X509_add_ext(&certificate, extension.get(), -1) == 1;
}

bool add_extensions(X509& certificate, X509& issuer, Purpose purpose, const std::string& name) {
  switch (purpose) {
    case Purpose::authority:
      return add_extension(certificate, issuer, NID_basic_constraints, "critical,CA:TRUE") &&
             add_extension(certificate, issuer, NID_key_usage, "critical,keyCertSign,cRLSign") &&
             add_extension(certificate, issuer, NID_subject_key_identifier, "hash");
    case Purpose::server:
      return add_extension(certificate, issuer, NID_ext_key_usage, "serverAuth") &&
             add_extension(certificate, issuer, NID_subject_alt_name, "DNS:" + name) &&
             add_extension(certificate, issuer, NID_authority_key_identifier, "keyid");
    case Purpose::client:
      return add_extension(certificate, issuer, NID_ext_key_usage, "clientAuth") &&
             add_extension(certificate, issuer, NID_authority_key_identifier, "keyid");
  }
  return false;
}

bool set_serial(X509& certificate) {
  uint64_t serial = 0;
  if (RAND_bytes(reinterpret_cast<unsigned char*>(&serial), sizeof serial) != 1) return false;
  return ASN1_INTEGER_set_uint64(X509_get_serialNumber(&certificate), serial >> 1 | 1) == 1;
}

/// Signed by `issuer`, or by itself.
Result<Signed> make_one(const std::string& name, Purpose purpose, const Signed* issuer) {
  Signed out;
  out.key.reset(EVP_EC_gen("P-256"));
  out.certificate.reset(X509_new());
  if (!out.key || !out.certificate) return openssl_failed("making a key");
  X509& certificate = *out.certificate;
  X509_NAME* subject = X509_get_subject_name(&certificate);
  X509& signer = issuer == nullptr ? certificate : *issuer->certificate;
  EVP_PKEY* signing_key = issuer == nullptr ? out.key.get() : issuer->key.get();
  const bool made =
      X509_set_version(&certificate, X509_VERSION_3) == 1 && set_serial(certificate) &&
      X509_gmtime_adj(X509_getm_notBefore(&certificate), -kClockSkewSeconds) != nullptr &&
      X509_gmtime_adj(X509_getm_notAfter(&certificate), kValidSeconds) != nullptr &&
      X509_NAME_add_entry_by_txt(subject, "CN", MBSTRING_UTF8,
                                 reinterpret_cast<const unsigned char*>(name.c_str()), -1, -1,
                                 0) == 1 &&
      X509_set_issuer_name(&certificate, X509_get_subject_name(&signer)) == 1 &&
      X509_set_pubkey(&certificate, out.key.get()) == 1 &&
      add_extensions(certificate, signer, purpose, name) &&
      X509_sign(&certificate, signing_key, EVP_sha256()) > 0;
  if (!made) return openssl_failed("signing a certificate");
  return out;
}

/// What `write` puts into a file in memory.
template <typename Write>
std::string pem_of(Write write) {
  const Bio bio(BIO_new(BIO_s_mem()));
  if (!bio || write(bio.get()) != 1) return {};
  char* data = nullptr;
  const long size = BIO_get_mem_data(bio.get(), &data);
  return size <= 0 ? std::string() : std::string(data, static_cast<size_t>(size));
}

// Replaces the file in one step, so that nobody sees half of it.
Status write_file(const std::string& path, const std::string& content, mode_t mode) {
  if (content.empty()) return openssl_failed("writing a certificate");
  const std::string temporary = path + ".new";
  const UniqueFd fd(
      ::open(temporary.c_str(), O_WRONLY | O_CREAT | O_TRUNC | O_NOFOLLOW | O_CLOEXEC, mode));
  if (!fd.is_open()) return status_from_errno(errno, "open " + temporary);
  if (::write(fd.get(), content.data(), content.size()) != static_cast<ssize_t>(content.size()) ||
      ::rename(temporary.c_str(), path.c_str()) != 0) {
    return status_from_errno(errno, "write " + path);
  }
  return {};
}

Status write_pair(const Signed& pair, const std::string& cert, const std::string& key) {
  AEROKV_TRY(write_file(
      cert, pem_of([&](BIO* bio) { return PEM_write_bio_X509(bio, pair.certificate.get()); }),
      0644));
  return write_file(key, pem_of([&](BIO* bio) {
                      return PEM_write_bio_PrivateKey(bio, pair.key.get(), nullptr, nullptr, 0,
                                                      nullptr, nullptr);
                    }),
                    0600);
}

Status check_name(const std::string& name) {
  const bool legal = !name.empty() && name.size() <= 63 && name.front() != '.' &&
                     std::all_of(name.begin(), name.end(), [](unsigned char c) {
                       return std::isalnum(c) != 0 || c == '.' || c == '-' || c == '_';
                     });
  if (legal) return {};
  return {Code::invalid, "certificate for '" + name + "': expected 1 to 63 letters, digits, . - _"};
}

}  // namespace

Result<Certificates> make_certificates(const std::string& folder, const std::string& server_name,
                                       const std::vector<std::string>& clients) {
  AEROKV_TRY(check_name(server_name));
  for (const std::string& client : clients) AEROKV_TRY(check_name(client));
  if (::mkdir(folder.c_str(), 0700) != 0 && errno != EEXIST) {
    return status_from_errno(errno, "make folder " + folder);
  }
  const auto authority = make_one("development authority", Purpose::authority, nullptr);
  if (!authority) return authority.error();
  Certificates out;
  out.ca_file = folder + "/ca.pem";
  out.server_cert = folder + "/server.pem";
  out.server_key = folder + "/server.key";
  AEROKV_TRY(write_file(out.ca_file, pem_of([&](BIO* bio) {
                          return PEM_write_bio_X509(bio, authority->certificate.get());
                        }),
                        0644));
  const auto server = make_one(server_name, Purpose::server, &*authority);
  if (!server) return server.error();
  AEROKV_TRY(write_pair(*server, out.server_cert, out.server_key));
  for (const std::string& client : clients) {
    const auto signed_client = make_one(client, Purpose::client, &*authority);
    if (!signed_client) return signed_client.error();
    const std::string base = std::string(folder).append("/client-").append(client);
    out.clients.push_back({client, base + ".pem", base + ".key"});
    AEROKV_TRY(write_pair(*signed_client, out.clients.back().cert, out.clients.back().key));
  }
  return out;
}

}  // namespace aerokv::devserver
