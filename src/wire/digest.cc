// SPDX-License-Identifier: Apache-2.0
#include "wire/digest.h"

#include <openssl/evp.h>

#include <cstdio>
#include <cstdlib>
#include <memory>

namespace aerokv::wire {
namespace {

struct ContextDeleter {
  void operator()(EVP_MD_CTX* context) const { EVP_MD_CTX_free(context); }
};

// Fetched once: EVP_ripemd160() would look the algorithm up in the providers for every digest.
// OpenSSL has it in the default provider since 3.0.7; without it no record can be addressed.
const EVP_MD* ripemd160() {
  static const EVP_MD* const algorithm = [] {
    const EVP_MD* fetched = EVP_MD_fetch(nullptr, "RIPEMD160", nullptr);
    if (fetched == nullptr) {
      std::fputs("aerokv: OpenSSL offers no RIPEMD-160 (needed: 3.0.7 or newer)\n", stderr);
      std::abort();
    }
    return fetched;
  }();
  return algorithm;
}

}  // namespace

Digest compute_digest(std::string_view set, Particle key_type, Bytes key) {
  thread_local const std::unique_ptr<EVP_MD_CTX, ContextDeleter> context(EVP_MD_CTX_new());
  const auto type = static_cast<uint8_t>(key_type);
  Digest digest;
  unsigned int length = 0;
  const bool ok = EVP_DigestInit_ex2(context.get(), ripemd160(), nullptr) == 1 &&
                  EVP_DigestUpdate(context.get(), set.data(), set.size()) == 1 &&
                  EVP_DigestUpdate(context.get(), &type, 1) == 1 &&
                  EVP_DigestUpdate(context.get(), key.data(), key.size()) == 1 &&
                  EVP_DigestFinal_ex(context.get(), reinterpret_cast<unsigned char*>(digest.data()),
                                     &length) == 1;
  if (!ok || length != kDigestBytes) std::abort();  // in-memory hashing cannot fail
  return digest;
}

}  // namespace aerokv::wire
