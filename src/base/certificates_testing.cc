// SPDX-License-Identifier: Apache-2.0
#include "base/certificates_testing.h"

#include <openssl/bio.h>
#include <openssl/ec.h>
#include <openssl/pem.h>
#include <openssl/rand.h>
#include <openssl/x509v3.h>
#include <stdlib.h>  // mkdtemp

#include <cstdio>
#include <cstdlib>
#include <fstream>
#include <utility>

namespace aerokv::testing {
namespace {

/// Tests cannot go on without what they have asked for.
void require(bool holds, const char* what) {
  if (holds) return;
  std::fprintf(stderr, "certificates for tests: %s failed\n", what);
  std::abort();
}

std::string take_text(BIO* bio) {
  char* data = nullptr;
  const long size = BIO_get_mem_data(bio, &data);
  std::string text(data, static_cast<size_t>(size));
  BIO_free(bio);
  return text;
}

void set_time(ASN1_TIME* time, std::chrono::seconds from_now) {
  require(X509_gmtime_adj(time, static_cast<long>(from_now.count())) != nullptr, "time");
}

void add_extension(X509* certificate, X509* issuer, int id, const std::string& value) {
  X509V3_CTX context{};
  X509V3_set_ctx(&context, issuer, certificate, nullptr, nullptr, 0);
  X509_EXTENSION* extension = X509V3_EXT_conf_nid(nullptr, &context, id, value.c_str());
  require(extension != nullptr, value.c_str());
  X509_add_ext(certificate, extension, -1);
  X509_EXTENSION_free(extension);
}

void set_serial(X509* certificate) {
  uint64_t serial = 0;
  require(RAND_bytes(reinterpret_cast<unsigned char*>(&serial), sizeof serial) == 1, "random");
  ASN1_INTEGER_set_uint64(X509_get_serialNumber(certificate), serial >> 1);
}

}  // namespace

Certificate Certificate::make(const CertificateSpec& spec, const Certificate* issuer) {
  Certificate made;
  made.key_ = std::shared_ptr<EVP_PKEY>(EVP_EC_gen("P-256"), EVP_PKEY_free);
  made.x509_ = std::shared_ptr<X509>(X509_new(), X509_free);
  require(made.key_ && made.x509_, "key");
  X509* const x509 = made.x509_.get();
  X509_set_version(x509, X509_VERSION_3);
  set_serial(x509);
  set_time(X509_getm_notBefore(x509), spec.valid_from);
  set_time(X509_getm_notAfter(x509), spec.valid_until);
  X509_NAME_add_entry_by_txt(X509_get_subject_name(x509), "CN", MBSTRING_UTF8,
                             reinterpret_cast<const unsigned char*>(spec.common_name.c_str()), -1,
                             -1, 0);
  X509* const signer = issuer == nullptr ? x509 : issuer->x509();
  X509_set_issuer_name(x509, X509_get_subject_name(signer));
  X509_set_pubkey(x509, made.key());
  add_extension(x509, signer, NID_basic_constraints,
                spec.is_ca ? "critical,CA:TRUE" : "critical,CA:FALSE");
  std::string names;
  for (const std::string& name : spec.dns_names) names += (names.empty() ? "DNS:" : ",DNS:") + name;
  if (!names.empty()) add_extension(x509, signer, NID_subject_alt_name, names);
  EVP_PKEY* const signing_key = issuer == nullptr ? made.key() : issuer->key();
  require(X509_sign(x509, signing_key, EVP_sha256()) > 0, "signature");
  return made;
}

std::string Certificate::certificate_pem() const {
  BIO* bio = BIO_new(BIO_s_mem());
  require(PEM_write_bio_X509(bio, x509()) == 1, "writing a certificate");
  return take_text(bio);
}

std::string Certificate::key_pem(const std::string& password) const {
  BIO* bio = BIO_new(BIO_s_mem());
  const EVP_CIPHER* cipher = password.empty() ? nullptr : EVP_aes_256_cbc();
  const auto* text = reinterpret_cast<const unsigned char*>(password.data());
  require(PEM_write_bio_PrivateKey(bio, key(), cipher, password.empty() ? nullptr : text,
                                   static_cast<int>(password.size()), nullptr, nullptr) == 1,
          "writing a key");
  return take_text(bio);
}

std::string Certificate::crl_pem(const std::vector<const Certificate*>& revoked) const {
  const std::unique_ptr<X509_CRL, decltype(&X509_CRL_free)> crl(X509_CRL_new(), X509_CRL_free);
  X509_CRL_set_version(crl.get(), X509_CRL_VERSION_2);
  X509_CRL_set_issuer_name(crl.get(), X509_get_subject_name(x509()));
  const std::unique_ptr<ASN1_TIME, decltype(&ASN1_TIME_free)> time(ASN1_TIME_new(), ASN1_TIME_free);
  set_time(time.get(), std::chrono::seconds(-60));
  X509_CRL_set1_lastUpdate(crl.get(), time.get());
  for (const Certificate* certificate : revoked) {
    X509_REVOKED* entry = X509_REVOKED_new();
    X509_REVOKED_set_serialNumber(entry, X509_get_serialNumber(certificate->x509()));
    X509_REVOKED_set_revocationDate(entry, time.get());
    X509_CRL_add0_revoked(crl.get(), entry);
  }
  set_time(time.get(), std::chrono::seconds(86400));
  X509_CRL_set1_nextUpdate(crl.get(), time.get());
  require(X509_CRL_sign(crl.get(), key(), EVP_sha256()) > 0, "signature");
  BIO* bio = BIO_new(BIO_s_mem());
  require(PEM_write_bio_X509_CRL(bio, crl.get()) == 1, "writing a CRL");
  return take_text(bio);
}

CertificateFolder::CertificateFolder() {
  std::string pattern = (std::filesystem::temp_directory_path() / "certificates-XXXXXX").string();
  require(::mkdtemp(pattern.data()) != nullptr, "mkdtemp");
  path_ = pattern;
}

CertificateFolder::~CertificateFolder() {
  std::error_code ignored;
  std::filesystem::remove_all(path_, ignored);
}

std::string CertificateFolder::write(const std::string& name, std::string_view content) const {
  const std::filesystem::path target = path_ / name;
  const std::filesystem::path fresh = path_ / (name + ".new");
  std::ofstream(fresh, std::ios::binary) << content;
  std::filesystem::rename(fresh, target);
  return target.string();
}

CertificateSet::CertificateSet(std::vector<std::string> server_names, std::string client_name)
    : ca(Certificate::make({.common_name = "test CA", .is_ca = true})),
      server(Certificate::make(
          {.common_name = server_names.front(), .dns_names = std::move(server_names)}, &ca)),
      client(Certificate::make({.common_name = std::move(client_name)}, &ca)) {
  folder.write("ca.pem", ca.certificate_pem());
  folder.write("server.pem", server.certificate_pem());
  folder.write("server.key", server.key_pem());
  folder.write("client.pem", client.certificate_pem());
  folder.write("client.key", client.key_pem());
}

}  // namespace aerokv::testing
