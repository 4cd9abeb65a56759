// SPDX-License-Identifier: Apache-2.0
#include "serde_rivals.h"

#include <openssl/evp.h>
#include <unistd.h>
#include <zstd.h>

#include <array>
#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <memory>
#include <vector>

#include "codec/kernels.h"
#include "xxh3_rival.h"

namespace aerokv::bench {
namespace {

[[noreturn]] void fail(const char* what) {
  std::fprintf(stderr, "aerokv_serde_bench: %s failed\n", what);
  std::exit(1);
}

unsigned char* chars(std::byte* bytes) {
  return reinterpret_cast<unsigned char*>(bytes);
}

const unsigned char* chars(const std::byte* bytes) {
  return reinterpret_cast<const unsigned char*>(bytes);
}

/// AES-128-GCM with one key and one IV, which only a benchmark may do.
class Evp {
 public:
  Evp()
      : cipher_(EVP_CIPHER_fetch(nullptr, "AES-128-GCM", nullptr)), context_(EVP_CIPHER_CTX_new()) {
    if (cipher_ == nullptr || context_ == nullptr) fail("OpenSSL");
  }
  Evp(const Evp&) = delete;
  Evp& operator=(const Evp&) = delete;
  ~Evp() {
    EVP_CIPHER_CTX_free(context_);
    EVP_CIPHER_free(cipher_);
  }

  void encrypt(Bytes from, std::byte* to) {
    int size = 0;
    EVP_EncryptInit_ex2(context_, cipher_, kKey, kIv, nullptr);
    EVP_EncryptUpdate(context_, chars(to), &size, chars(from.data()),
                      static_cast<int>(from.size()));
    EVP_EncryptFinal_ex(context_, chars(to) + size, &size);
    if (EVP_CIPHER_CTX_ctrl(context_, EVP_CTRL_AEAD_GET_TAG, 16, tag_.data()) != 1) fail("EVP");
  }

  void decrypt(Bytes from, std::byte* to) {
    int size = 0;
    EVP_DecryptInit_ex2(context_, cipher_, kKey, kIv, nullptr);
    EVP_DecryptUpdate(context_, chars(to), &size, chars(from.data()),
                      static_cast<int>(from.size()));
    EVP_CIPHER_CTX_ctrl(context_, EVP_CTRL_AEAD_SET_TAG, 16, tag_.data());
    if (EVP_DecryptFinal_ex(context_, chars(to) + size, &size) != 1) fail("EVP");
  }

 private:
  static constexpr unsigned char kKey[16] = {1};
  static constexpr unsigned char kIv[12] = {2};

  EVP_CIPHER* cipher_;
  EVP_CIPHER_CTX* context_;
  std::array<unsigned char, 16> tag_{};
};

}  // namespace

Rivals checksum_rivals(Bytes source, MutableBytes target) {
#if defined(__x86_64__)
  if (codec::available_kernels().size() == 1) return {};
#endif
  const auto alone = [source] { return xxh3_rival(source); };
  const auto behind = [source, target, alone] {
    std::memcpy(target.data(), source.data(), source.size());
    alone();
  };
  return {{{"xxh3", alone}, {"memcpy+xxh3", behind}}, {{"xxh3", alone}, {"memcpy+xxh3", behind}}};
}

Rivals aesgcm_rivals(Bytes source, MutableBytes target) {
  const auto evp = std::make_shared<Evp>();
  const auto encrypted = std::make_shared<std::vector<std::byte>>(source.size());
  evp->encrypt(source, encrypted->data());
  return {{{"evp", [evp, source, target] { evp->encrypt(source, target.data()); }}},
          {{"evp", [evp, encrypted, target] { evp->decrypt(*encrypted, target.data()); }}}};
}

Rivals lossless_rivals(Bytes source, MutableBytes target) {
  const auto context = std::shared_ptr<ZSTD_CCtx>(ZSTD_createCCtx(), ZSTD_freeCCtx);
  const auto reader = std::shared_ptr<ZSTD_DCtx>(ZSTD_createDCtx(), ZSTD_freeDCtx);
  const auto stored = std::make_shared<std::vector<std::byte>>(ZSTD_compressBound(source.size()));
  const auto compress = [context, source, stored] {
    const size_t size = ZSTD_compressCCtx(context.get(), stored->data(), stored->size(),
                                          source.data(), source.size(), 1);
    if (ZSTD_isError(size) != 0) fail("zstd");
    return size;
  };
  const size_t size = compress();
  const auto decompress = [reader, stored, size, target] {
    if (ZSTD_isError(ZSTD_decompressDCtx(reader.get(), target.data(), target.size(), stored->data(),
                                         size)) != 0) {
      fail("zstd");
    }
  };
  char name[32];
  std::snprintf(name, sizeof(name), "zstd-1 (to %.1f %%)",
                100 * static_cast<double>(size) / static_cast<double>(source.size()));
  return {{{name, compress}}, {{name, decompress}}};
}

BenchKey::BenchKey() {
  const char* folder = std::getenv("TMPDIR");
  path_ = std::string(folder != nullptr ? folder : "/tmp") + "/aerokv_bench_key_XXXXXX";
  const int file = ::mkstemp(path_.data());
  const bool is_written = file >= 0 && ::write(file, "a key for benchmarks", 20) == 20;
  if (file >= 0) ::close(file);
  if (!is_written) fail("writing a key file");
}

BenchKey::~BenchKey() {
  ::unlink(path_.c_str());
}

}  // namespace aerokv::bench
