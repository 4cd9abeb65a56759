// SPDX-License-Identifier: Apache-2.0
#include "codec/aesgcm.h"

#include <openssl/crypto.h>
#include <openssl/evp.h>
#include <openssl/rand.h>

#include <algorithm>
#include <memory>
#include <string>

namespace aerokv::codec {
namespace {

constexpr std::byte kVersion{1};
constexpr size_t kIvAt = 1;
constexpr size_t kTextAt = kIvAt + kAesGcmIvBytes;

// OpenSSL counts in int.
constexpr size_t kStepBytes = 1 << 30;

struct FreeContext {
  void operator()(EVP_CIPHER_CTX* context) const { EVP_CIPHER_CTX_free(context); }
};
using Context = std::unique_ptr<EVP_CIPHER_CTX, FreeContext>;

const unsigned char* data(Bytes bytes) {
  return reinterpret_cast<const unsigned char*>(bytes.data());
}

unsigned char* data(MutableBytes bytes) {
  return reinterpret_cast<unsigned char*>(bytes.data());
}

// Looking a cipher up costs more than encrypting some kilobytes; they are kept for the life of the
// process, as OpenSSL's own are.
const EVP_CIPHER* cipher_for(Bytes key) {
  static const EVP_CIPHER* const aes128 = EVP_CIPHER_fetch(nullptr, "AES-128-GCM", nullptr);
  static const EVP_CIPHER* const aes256 = EVP_CIPHER_fetch(nullptr, "AES-256-GCM", nullptr);
  if (key.size() == 16) return aes128;
  return key.size() == 32 ? aes256 : nullptr;
}

Status failed(const char* step) {
  return {Code::internal, "aesgcm: OpenSSL: " + std::string(step) + " failed"};
}

Status check_key(Bytes key) {
  if (key.size() == 16 || key.size() == 32) return {};
  return {Code::invalid,
          "aesgcm: key of " + std::to_string(key.size()) + " bytes, expected 16 or 32"};
}

// From `from` to `to`, which has as many bytes, in steps that an int can count.
bool update(EVP_CIPHER_CTX* context, Bytes from, MutableBytes to) {
  for (size_t at = 0; at < from.size(); at += kStepBytes) {
    const size_t size = std::min(kStepBytes, from.size() - at);
    int written = 0;
    if (EVP_CipherUpdate(context, data(to.subspan(at)), &written, data(from.subspan(at)),
                         static_cast<int>(size)) != 1 ||
        written != static_cast<int>(size)) {
      return false;
    }
  }
  return true;
}

void wipe(MutableBytes plain) {
  std::fill(plain.begin(), plain.end(), std::byte{0});
}

}  // namespace

Status encrypt_aesgcm(Bytes key, Bytes plain, MutableBytes frame) {
  unsigned char iv[kAesGcmIvBytes];
  if (RAND_bytes(iv, sizeof(iv)) != 1) return failed("random bytes");
  return encrypt_aesgcm_with_iv(key, std::as_bytes(std::span<const unsigned char>(iv)), plain,
                                frame);
}

Status encrypt_aesgcm_with_iv(Bytes key, Bytes iv, Bytes plain, MutableBytes frame) {
  AEROKV_TRY(check_key(key));
  if (plain.size() > kAesGcmBytesMax) {
    return {Code::invalid, "aesgcm: " + std::to_string(plain.size()) + " bytes, expected at most " +
                               std::to_string(kAesGcmBytesMax)};
  }
  const Context context(EVP_CIPHER_CTX_new());
  if (!context ||
      EVP_EncryptInit_ex2(context.get(), cipher_for(key), data(key), data(iv), nullptr) != 1) {
    return failed("start of encryption");
  }
  frame[0] = kVersion;
  std::copy(iv.begin(), iv.end(), frame.begin() + kIvAt);
  const MutableBytes tag = frame.last(kAesGcmTagBytes);
  int more = 0;
  if (!update(context.get(), plain, frame.subspan(kTextAt, plain.size())) ||
      EVP_EncryptFinal_ex(context.get(), data(tag), &more) != 1 || more != 0 ||
      EVP_CIPHER_CTX_ctrl(context.get(), EVP_CTRL_AEAD_GET_TAG, kAesGcmTagBytes, tag.data()) != 1) {
    return failed("encryption");
  }
  return {};
}

Status decrypt_aesgcm(Bytes key, Bytes source, MutableBytes plain) {
  AEROKV_TRY(check_key(key));
  if (source.size() < kAesGcmOverhead || source.size() - kAesGcmOverhead < plain.size()) {
    return {Code::corruption, "aesgcm: " + std::to_string(source.size()) +
                                  " bytes, expected a frame of " +
                                  std::to_string(kAesGcmOverhead + plain.size())};
  }
  if (source[0] != kVersion) {
    return {Code::invalid,
            "aesgcm: version " + std::to_string(std::to_integer<int>(source[0])) + ", expected 1"};
  }
  const Context context(EVP_CIPHER_CTX_new());
  if (!context || EVP_DecryptInit_ex2(context.get(), cipher_for(key), data(key),
                                      data(source.subspan(kIvAt)), nullptr) != 1) {
    return failed("start of decryption");
  }
  // OpenSSL only reads the tag that it is given, but its interface does not say so.
  std::byte tag[kAesGcmTagBytes];
  std::copy_n(source.begin() + static_cast<ptrdiff_t>(kTextAt + plain.size()), kAesGcmTagBytes,
              tag);
  if (!update(context.get(), source.subspan(kTextAt, plain.size()), plain) ||
      EVP_CIPHER_CTX_ctrl(context.get(), EVP_CTRL_AEAD_SET_TAG, kAesGcmTagBytes, tag) != 1) {
    wipe(plain);
    return failed("decryption");
  }
  unsigned char none[EVP_MAX_BLOCK_LENGTH];
  int more = 0;
  if (EVP_DecryptFinal_ex(context.get(), none, &more) == 1 && more == 0) return {};
  wipe(plain);
  return {Code::denied, "aesgcm: the tag of " + std::to_string(plain.size()) +
                            " bytes does not fit: damaged, or written with another key"};
}

}  // namespace aerokv::codec
