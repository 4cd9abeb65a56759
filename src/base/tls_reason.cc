// SPDX-License-Identifier: Apache-2.0
// Why a handshake failed, in words. What certificates say is a stranger's text.
#include <openssl/err.h>
#include <openssl/x509v3.h>

#include <algorithm>
#include <utility>
#include <vector>

#include "base/tls_stream.h"

namespace aerokv {
namespace {

constexpr size_t kNameBytesMax = 100;
constexpr size_t kNamesShown = 5;

std::string printable(std::string_view text) {
  std::string out(text.substr(0, kNameBytesMax));
  std::replace_if(
      out.begin(), out.end(),
      [](char c) {
        return static_cast<unsigned char>(c) < ' ' || static_cast<unsigned char>(c) > '~';
      },
      '?');
  return out;
}

std::string text_of(const ASN1_STRING* string) {
  unsigned char* utf8 = nullptr;
  const int size = ASN1_STRING_to_UTF8(&utf8, string);
  if (size < 0) return {};
  std::string text(reinterpret_cast<const char*>(utf8), static_cast<size_t>(size));
  OPENSSL_free(utf8);
  return text;
}

std::string date_of(const ASN1_TIME* time) {
  const std::unique_ptr<BIO, OpenSslDeleter<BIO_free>> bio(BIO_new(BIO_s_mem()));
  if (!bio || ASN1_TIME_print(bio.get(), time) != 1) return "?";
  char* data = nullptr;
  const long size = BIO_get_mem_data(bio.get(), &data);
  return printable({data, static_cast<size_t>(size)});
}

/// The names that a certificate is made out to.
std::string names_of(X509* certificate) {
  std::vector<std::string> names;
  struct FreeNames {
    void operator()(GENERAL_NAMES* list) const { GENERAL_NAMES_free(list); }
  };
  const std::unique_ptr<GENERAL_NAMES, FreeNames> list(static_cast<GENERAL_NAMES*>(
      X509_get_ext_d2i(certificate, NID_subject_alt_name, nullptr, nullptr)));
  for (int i = 0; list && i < sk_GENERAL_NAME_num(list.get()); ++i) {
    const GENERAL_NAME* name = sk_GENERAL_NAME_value(list.get(), i);
    if (name->type == GEN_DNS) names.push_back(printable(text_of(name->d.dNSName)));
  }
  std::string common = printable(common_name(certificate));
  if (!common.empty() && std::find(names.begin(), names.end(), common) == names.end()) {
    names.push_back(std::move(common));
  }
  std::string text;
  for (size_t i = 0; i < std::min(names.size(), kNamesShown); ++i) {
    text += (text.empty() ? "\"" : ", \"") + names[i] + "\"";
  }
  if (names.size() > kNamesShown) text += ", ...";
  return text.empty() ? "nobody" : text;
}

}  // namespace

std::string common_name(const X509* certificate) {
  const X509_NAME* subject = X509_get_subject_name(certificate);
  const int at = X509_NAME_get_index_by_NID(subject, NID_commonName, -1);
  if (at < 0) return {};
  std::string text = text_of(X509_NAME_ENTRY_get_data(X509_NAME_get_entry(subject, at)));
  // A name with a NUL in it is meant to be read as another one.
  return text.find('\0') == std::string::npos ? text : std::string();
}

std::string describe_refusal(X509_STORE_CTX* verification, const std::string& expected_name) {
  const int code = X509_STORE_CTX_get_error(verification);
  X509* certificate = X509_STORE_CTX_get_current_cert(verification);
  std::string text = "certificate refused: ";
  if (certificate == nullptr) return text + X509_verify_cert_error_string(code);
  switch (code) {
    case X509_V_ERR_CERT_HAS_EXPIRED:
      text += "expired since " + date_of(X509_get0_notAfter(certificate));
      break;
    case X509_V_ERR_CERT_NOT_YET_VALID:
      text += "not valid before " + date_of(X509_get0_notBefore(certificate));
      break;
    case X509_V_ERR_DEPTH_ZERO_SELF_SIGNED_CERT:
      text += "self-signed, and not one of the trusted";
      break;
    case X509_V_ERR_SELF_SIGNED_CERT_IN_CHAIN:
    case X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT:
    case X509_V_ERR_UNABLE_TO_GET_ISSUER_CERT_LOCALLY:
    case X509_V_ERR_UNABLE_TO_VERIFY_LEAF_SIGNATURE:
      text += "signed by an unknown CA (\"" + printable([&] {
                std::string line(200, '\0');
                X509_NAME_oneline(X509_get_issuer_name(certificate), line.data(),
                                  static_cast<int>(line.size()));
                line.resize(std::min(line.find('\0'), line.size()));
                return line;
              }()) +
              "\")";
      break;
    case X509_V_ERR_HOSTNAME_MISMATCH:
      return text + "wrong name: made out to " + names_of(certificate) + ", expected \"" +
             expected_name + "\" (the tls name of the node)";
    case X509_V_ERR_CERT_REVOKED:
      text += "revoked by its CA";
      break;
    default:
      text += X509_verify_cert_error_string(code);
  }
  return text + "; it is that of " + names_of(certificate);
}

std::string describe_openssl_error() {
  const unsigned long error = ERR_peek_last_error();
  if (error == 0) return "failed for no given reason";
  const char* const known = ERR_reason_error_string(error);
  std::string reason = known == nullptr ? "error " + std::to_string(error) : known;
  if (ERR_GET_LIB(error) != ERR_LIB_SSL) return reason;
  const int number = ERR_GET_REASON(error);
  if (number >= SSL_AD_REASON_OFFSET) {  // an alert of the other side
    return "refused by the other side: " + reason;
  }
  switch (number) {
    case SSL_R_UNSUPPORTED_PROTOCOL:
    case SSL_R_WRONG_SSL_VERSION:
    case SSL_R_UNKNOWN_PROTOCOL:
    case SSL_R_TLSV1_ALERT_PROTOCOL_VERSION:
      return "refused: the other side's protocol is too old or unknown (" + reason + ")";
    case SSL_R_WRONG_VERSION_NUMBER:
    case SSL_R_HTTP_REQUEST:
    case SSL_R_PACKET_LENGTH_TOO_LONG:
      return "what the other side says is not TLS (" + reason + "); does the port speak TLS?";
    case SSL_R_NO_SHARED_CIPHER:
    case SSL_R_WRONG_CIPHER_RETURNED:
    case SSL_R_UNKNOWN_CIPHER_RETURNED:
      return "refused: no cipher in common (" + reason + ")";
    case SSL_R_PEER_DID_NOT_RETURN_A_CERTIFICATE:
      return "refused: the client has shown no certificate";
    default:
      return reason;
  }
}

}  // namespace aerokv
