// SPDX-License-Identifier: Apache-2.0
#include "codec/hkdf.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/hmac.h>

#include <algorithm>

namespace aerokv::codec {
namespace {

constexpr size_t kHashBytes = 32;

const unsigned char* data(Bytes bytes) {
  return reinterpret_cast<const unsigned char*>(bytes.data());
}

bool hmac_sha256(Bytes key, Bytes message, MutableBytes out) {
  unsigned int size = 0;
  return HMAC(EVP_sha256(), key.data(), static_cast<int>(key.size()), data(message), message.size(),
              reinterpret_cast<unsigned char*>(out.data()), &size) != nullptr &&
         size == kHashBytes;
}

}  // namespace

SecretBytes& SecretBytes::operator=(const SecretBytes& other) {
  if (this == &other) return *this;
  wipe();
  bytes_ = other.bytes_;
  return *this;
}

SecretBytes& SecretBytes::operator=(SecretBytes&& other) noexcept {
  if (this == &other) return *this;
  wipe();
  bytes_ = std::move(other.bytes_);
  return *this;
}

void SecretBytes::truncate(size_t size) {
  OPENSSL_cleanse(bytes_.data() + size, bytes_.size() - size);
  bytes_.resize(size);
}

void SecretBytes::wipe() {
  if (!bytes_.empty()) OPENSSL_cleanse(bytes_.data(), bytes_.size());
}

Result<SecretBytes> hkdf_sha256(Bytes master, Bytes info, size_t size) {
  // Extract: an absent salt is as many zeros as the hash has bytes.
  const std::vector<std::byte> salt(kHashBytes);
  SecretBytes extracted(kHashBytes);
  bool is_ok = size <= kHashBytes && hmac_sha256(salt, master, extracted.bytes());
  // Expand, first round: the info and the number of the round.
  std::vector<std::byte> message(info.begin(), info.end());
  message.push_back(std::byte{1});
  SecretBytes expanded(kHashBytes);
  is_ok = is_ok && hmac_sha256(extracted.bytes(), message, expanded.bytes());
  if (!is_ok) return Status(Code::internal, "hkdf: no key could be derived");
  expanded.truncate(size);
  return expanded;
}

}  // namespace aerokv::codec
