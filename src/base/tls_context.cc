// SPDX-License-Identifier: Apache-2.0
// Keys and rules of TLS: what is loaded from files, and when it is loaded again.
#include <openssl/err.h>
#include <openssl/x509v3.h>
#include <string.h>  // explicit_bzero
#include <sys/stat.h>

#include <algorithm>
#include <array>
#include <atomic>
#include <cerrno>
#include <fstream>
#include <iterator>
#include <mutex>
#include <system_error>

#include "base/limits.h"
#include "base/log.h"
#include "base/tls_stream.h"

namespace aerokv {
namespace {

// AES-128 first: as safe as the longer key for as long as anyone will keep a cache, and faster.
constexpr const char* kCiphers = "ECDHE+AESGCM:ECDHE+CHACHA20:DHE+AESGCM:!aNULL";
constexpr const char* kCipherSuites =
    "TLS_AES_128_GCM_SHA256:TLS_AES_256_GCM_SHA384:TLS_CHACHA20_POLY1305_SHA256";

constexpr size_t kPasswordFileBytesMax = 1024;

using SslContext = std::unique_ptr<SSL_CTX, OpenSslDeleter<SSL_CTX_free>>;

Status bad_file(const char* option, const std::string& path, const std::string& why) {
  return {Code::invalid, std::string(option) + ": " + path + ": " + why};
}

/// What tells one state of a file from another.
struct FileState {
  dev_t device = 0;
  ino_t inode = 0;
  off_t bytes = -1;
  std::array<int64_t, 4> times{};
  bool operator==(const FileState&) const = default;
};

FileState look_at(const std::string& path) {
  struct stat info{};
  if (path.empty() || ::stat(path.c_str(), &info) != 0) return {};
  return {info.st_dev,
          info.st_ino,
          info.st_size,
          {info.st_mtim.tv_sec, info.st_mtim.tv_nsec, info.st_ctim.tv_sec, info.st_ctim.tv_nsec}};
}

using FileStates = std::array<FileState, 6>;

FileStates look_at_all(const TlsOptions& options) {
  return {look_at(options.ca_file),  look_at(options.ca_path),
          look_at(options.crl_file), look_at(options.cert_file),
          look_at(options.key_file), look_at(options.key_password_file)};
}

/// A text that is overwritten before its memory is given back.
struct Secret {
  std::string text;
  Secret() = default;
  Secret(const Secret&) = delete;
  Secret& operator=(const Secret&) = delete;
  ~Secret() { explicit_bzero(text.data(), text.size()); }
};

Status read_password(const TlsOptions& options, Secret& password) {
  password.text = options.key_password;
  if (options.key_password_file.empty()) return {};
  password.text.assign(kPasswordFileBytesMax + 1, '\0');
  std::ifstream file(options.key_password_file, std::ios::binary);
  file.read(password.text.data(), static_cast<std::streamsize>(password.text.size()));
  if (!file.is_open() || file.bad()) {
    return bad_file("tls_key_password_file", options.key_password_file, "cannot be read");
  }
  const auto count = static_cast<size_t>(file.gcount());
  if (count > kPasswordFileBytesMax) {
    return bad_file("tls_key_password_file", options.key_password_file, "too long");
  }
  password.text.resize(count);  // a shorter text: the memory stays the same, and is wiped
  if (password.text.ends_with('\n')) password.text.pop_back();
  return {};
}

/// Answers OpenSSL's question for the password of a key. Without one it must not ask the terminal.
int give_password(char* buffer, int size, int, void* secret) {
  const std::string& text = static_cast<const Secret*>(secret)->text;
  if (text.empty() || text.size() > static_cast<size_t>(size)) return -1;
  std::copy(text.begin(), text.end(), buffer);
  return static_cast<int>(text.size());
}

int on_verified(int is_good, X509_STORE_CTX* verification) {
  if (is_good == 0) {
    const auto* ssl = static_cast<const SSL*>(
        X509_STORE_CTX_get_ex_data(verification, SSL_get_ex_data_X509_STORE_CTX_idx()));
    static_cast<TlsStream::Impl*>(SSL_get_app_data(ssl))->note_refusal(verification);
  }
  return is_good;
}

Status load_trust(const TlsOptions& options, SSL_CTX* context) {
  if (!options.ca_file.empty() && SSL_CTX_load_verify_file(context, options.ca_file.c_str()) != 1) {
    return bad_file("tls_ca_file", options.ca_file, describe_openssl_error());
  }
  if (!options.ca_path.empty()) {
    struct stat info{};
    if (::stat(options.ca_path.c_str(), &info) != 0 || !S_ISDIR(info.st_mode) ||
        SSL_CTX_load_verify_dir(context, options.ca_path.c_str()) != 1) {
      return bad_file("tls_ca_path", options.ca_path, "not a folder that can be read");
    }
  }
  if (options.crl_file.empty()) return {};
  X509_STORE* store = SSL_CTX_get_cert_store(context);
  X509_LOOKUP* lookup = X509_STORE_add_lookup(store, X509_LOOKUP_file());
  if (lookup == nullptr ||
      X509_load_crl_file(lookup, options.crl_file.c_str(), X509_FILETYPE_PEM) < 1) {
    return bad_file("tls_crl_file", options.crl_file, describe_openssl_error());
  }
  X509_STORE_set_flags(store, X509_V_FLAG_CRL_CHECK);
  return {};
}

Status load_identity(const TlsOptions& options, SSL_CTX* context) {
  if (options.cert_file.empty()) return {};
  Secret password;
  AEROKV_TRY(read_password(options, password));
  if (SSL_CTX_use_certificate_chain_file(context, options.cert_file.c_str()) != 1) {
    return bad_file("tls_cert_file", options.cert_file, describe_openssl_error());
  }
  SSL_CTX_set_default_passwd_cb(context, give_password);
  SSL_CTX_set_default_passwd_cb_userdata(context, &password);
  const bool is_loaded =
      SSL_CTX_use_PrivateKey_file(context, options.key_file.c_str(), SSL_FILETYPE_PEM) == 1;
  SSL_CTX_set_default_passwd_cb_userdata(context, nullptr);
  SSL_CTX_set_default_passwd_cb(context, nullptr);
  if (!is_loaded) {
    return bad_file(
        "tls_key_file", options.key_file,
        describe_openssl_error() + (password.text.empty() ? "; if the key is encrypted, "
                                                            "it needs its password"
                                                          : ""));
  }
  if (SSL_CTX_check_private_key(context) != 1) {
    return bad_file("tls_key_file", options.key_file, "not the key of " + options.cert_file);
  }
  return {};
}

Status set_rules(const TlsOptions& options, SSL_CTX* context) {
  const int oldest = options.min_version == TlsVersion::v1_3 ? TLS1_3_VERSION : TLS1_2_VERSION;
  SSL_CTX_set_min_proto_version(context, oldest);
  const std::string ciphers = options.ciphers.empty() ? kCiphers : options.ciphers;
  if (SSL_CTX_set_cipher_list(context, ciphers.c_str()) != 1) {
    return {Code::invalid, "tls_ciphers: \"" + ciphers + "\": names no cipher that is known here"};
  }
  const std::string suites = options.cipher_suites.empty() ? kCipherSuites : options.cipher_suites;
  if (SSL_CTX_set_ciphersuites(context, suites.c_str()) != 1) {
    return {Code::invalid,
            "tls_cipher_suites: \"" + suites + "\": names one that is not known here"};
  }
  // Each connection proves itself anew: no session is taken up again, so that what a renewed or
  // revoked certificate means holds at once.
  SSL_CTX_set_session_cache_mode(context, SSL_SESS_CACHE_OFF);
  SSL_CTX_set_num_tickets(context, 0);
  SSL_CTX_set_options(context, SSL_OP_NO_TICKET | SSL_OP_NO_COMPRESSION | SSL_OP_NO_RENEGOTIATION);
  SSL_CTX_set_mode(context, SSL_MODE_ENABLE_PARTIAL_WRITE | SSL_MODE_ACCEPT_MOVING_WRITE_BUFFER);
  return {};
}

int verify_mode(bool is_client, TlsClientCertificate client) {
  if (is_client) return SSL_VERIFY_PEER;
  switch (client) {
    case TlsClientCertificate::ignored:
      return SSL_VERIFY_NONE;
    case TlsClientCertificate::optional:
      return SSL_VERIFY_PEER;
    case TlsClientCertificate::required:
      return SSL_VERIFY_PEER | SSL_VERIFY_FAIL_IF_NO_PEER_CERT;
  }
  return SSL_VERIFY_PEER;
}

Result<SslContext> load(const TlsOptions& options, bool is_client, TlsClientCertificate client) {
  ERR_clear_error();
  SslContext context(SSL_CTX_new(is_client ? TLS_client_method() : TLS_server_method()));
  if (!context) return Status(Code::internal, "TLS: " + describe_openssl_error());
  AEROKV_TRY(set_rules(options, context.get()));
  AEROKV_TRY(load_trust(options, context.get()));
  AEROKV_TRY(load_identity(options, context.get()));
  SSL_CTX_set_verify(context.get(), verify_mode(is_client, client), on_verified);
  if (!is_client && !options.ca_file.empty()) {
    SSL_CTX_set_client_CA_list(context.get(), SSL_load_client_CA_file(options.ca_file.c_str()));
  }
  ERR_clear_error();
  return context;
}

Status check(const TlsOptions& options, bool needs_trust, bool needs_identity) {
  if (needs_trust && options.ca_file.empty() && options.ca_path.empty()) {
    return {Code::invalid, "tls_ca_file: not given, and no tls_ca_path: one of them is needed"};
  }
  if (options.cert_file.empty() != options.key_file.empty() ||
      (needs_identity && options.cert_file.empty())) {
    return {Code::invalid, "tls_cert_file, tls_key_file: expected both"};
  }
  if (!options.key_password.empty() && !options.key_password_file.empty()) {
    return {Code::invalid, "tls_key_password_file: given beside the password itself"};
  }
  return {};
}

}  // namespace

struct TlsContext::State {
  TlsOptions options;
  bool is_client = true;
  TlsClientCertificate client = TlsClientCertificate::ignored;

  std::mutex mutex;
  SslContext context;  // guarded by mutex
  FileStates files;    // guarded by mutex; as of the last attempt to load
  std::atomic<uint64_t> reloads{0};

  ~State() { explicit_bzero(options.key_password.data(), options.key_password.size()); }

  Status refresh();
};

/// Loads the files if they are not those of last time. Requires the lock.
Status TlsContext::State::refresh() {
  const FileStates now = look_at_all(options);
  if (context && now == files) return {};
  // As they were before the reading: what changes meanwhile is seen next time.
  files = now;
  Result<SslContext> loaded = load(options, is_client, client);
  if (!loaded) return loaded.error();
  if (context) {
    reloads.fetch_add(1, std::memory_order_relaxed);
    log(LogLevel::info, "tls:reload", "TLS: changed certificate files were read again");
  }
  context = *std::move(loaded);
  return {};
}

TlsContext::TlsContext(std::unique_ptr<State> state) : state_(std::move(state)) {}
TlsContext::~TlsContext() = default;

Result<std::shared_ptr<TlsContext>> TlsContext::make(std::unique_ptr<State> state) {
  {
    const std::scoped_lock lock(state->mutex);
    AEROKV_TRY(state->refresh());
  }
  return std::shared_ptr<TlsContext>(new TlsContext(std::move(state)));
}

Result<std::shared_ptr<TlsContext>> TlsContext::client(TlsOptions options) {
  AEROKV_TRY(check(options, true, false));
  auto state = std::make_unique<State>();
  state->options = std::move(options);
  return make(std::move(state));
}

Result<std::shared_ptr<TlsContext>> TlsContext::server(TlsOptions options,
                                                       TlsClientCertificate client) {
  AEROKV_TRY(check(options, client != TlsClientCertificate::ignored, true));
  auto state = std::make_unique<State>();
  state->options = std::move(options);
  state->is_client = false;
  state->client = client;
  return make(std::move(state));
}

Result<std::unique_ptr<TlsStream::Impl>> TlsContext::open(int fd) {
  const std::scoped_lock lock(state_->mutex);
  if (Status status = state_->refresh(); !status) {
    log(LogLevel::warning, "tls:reload failed",
        "TLS: changed certificate files cannot be used, what was read before stays in use: " +
            status.message());
  }
  return TlsStream::Impl::make(state_->context.get(), fd);
}

Result<TlsStream> TlsContext::connect(int fd, const std::string& name) {
  // A dot in front would accept every name below.
  if (name.empty() || name.size() > kTlsNameBytesMax || name.front() == '.') {
    return Status(Code::invalid,
                  "tls_name \"" + name.substr(0, 64) + "\": expected the name of a certificate");
  }
  Result<std::unique_ptr<TlsStream::Impl>> impl = open(fd);
  if (!impl) return impl.error();
  SSL* ssl = (*impl)->ssl.get();
  (*impl)->expected_name = name;
  SSL_set_connect_state(ssl);
  SSL_set_hostflags(ssl,
                    X509_CHECK_FLAG_ALWAYS_CHECK_SUBJECT | X509_CHECK_FLAG_NO_PARTIAL_WILDCARDS);
  if (SSL_set1_host(ssl, name.c_str()) != 1) {
    return Status(Code::internal, "TLS: " + describe_openssl_error());
  }
  return TlsStream(*std::move(impl));
}

Result<TlsStream> TlsContext::accept(int fd) {
  Result<std::unique_ptr<TlsStream::Impl>> impl = open(fd);
  if (!impl) return impl.error();
  SSL_set_accept_state((*impl)->ssl.get());
  return TlsStream(*std::move(impl));
}

uint64_t TlsContext::reloads() const {
  return state_->reloads.load(std::memory_order_relaxed);
}

}  // namespace aerokv
