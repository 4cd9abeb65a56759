// SPDX-License-Identifier: Apache-2.0
#include "wire/digest.h"

#include <openssl/evp.h>

#include <algorithm>
#include <bit>
#include <cstring>
#include <memory>
#include <vector>

#include "wire/digest_lanes.h"

namespace aerokv::wire {
namespace {

struct ContextDeleter {
  void operator()(EVP_MD_CTX* context) const { EVP_MD_CTX_free(context); }
};

// Fetched once: EVP_ripemd160() would look the algorithm up in the providers for every digest.
// Null where OpenSSL offers none: before 3.0.7, or restricted to approved algorithms.
const EVP_MD* ripemd160() {
  static const EVP_MD* const algorithm = EVP_MD_fetch(nullptr, "RIPEMD160", nullptr);
  return algorithm;
}

using LaneFunction = void (*)(const LaneMessages&, LaneDigests&);

LaneFunction lane_function() {
#if defined(__x86_64__)
  static const bool has_avx2 = __builtin_cpu_supports("avx2") != 0;
  if (has_avx2) return ripemd160_lanes_avx2;
#endif
  return ripemd160_lanes_baseline;
}

/// Bytes of a message with its padding: a one bit, zeros, and the bit count in 8 bytes.
size_t padded_bytes(size_t message_bytes) {
  return (message_bytes + 9 + kBlockBytes - 1) / kBlockBytes * kBlockBytes;
}

void write_padded(std::string_view set, Particle key_type, Bytes key, uint8_t* at, size_t padded) {
  const size_t message_bytes = set.size() + 1 + key.size();
  std::memcpy(at, set.data(), set.size());
  at[set.size()] = static_cast<uint8_t>(key_type);
  std::memcpy(at + set.size() + 1, key.data(), key.size());
  std::memset(at + message_bytes, 0, padded - message_bytes);
  at[message_bytes] = 0x80;
  const uint64_t bits = uint64_t{message_bytes} * 8;
  std::memcpy(at + padded - 8, &bits, 8);
}

}  // namespace

Digest compute_digest(std::string_view set, Particle key_type, Bytes key) {
  thread_local const std::unique_ptr<EVP_MD_CTX, ContextDeleter> context(EVP_MD_CTX_new());
  const auto type = static_cast<uint8_t>(key_type);
  Digest digest;
  unsigned int length = 0;
  const bool ok = ripemd160() != nullptr && context != nullptr &&
                  EVP_DigestInit_ex2(context.get(), ripemd160(), nullptr) == 1 &&
                  EVP_DigestUpdate(context.get(), set.data(), set.size()) == 1 &&
                  EVP_DigestUpdate(context.get(), &type, 1) == 1 &&
                  EVP_DigestUpdate(context.get(), key.data(), key.size()) == 1 &&
                  EVP_DigestFinal_ex(context.get(), reinterpret_cast<unsigned char*>(digest.data()),
                                     &length) == 1;
  return ok && length == kDigestBytes ? digest : compute_digest_portable(set, key_type, key);
}

Digest compute_digest_portable(std::string_view set, Particle key_type, Bytes key) {
  const size_t padded = padded_bytes(set.size() + 1 + key.size());
  std::vector<uint8_t> memory(padded);
  write_padded(set, key_type, key, memory.data(), padded);
  LaneMessages messages;
  messages.blocks.fill(memory.data());  // unused lanes have no blocks, but read one
  messages.block_counts[0] = static_cast<uint32_t>(padded / kBlockBytes);
  LaneDigests results;
  lane_function()(messages, results);
  Digest digest;
  std::memcpy(digest.data(), results[0].data(), kDigestBytes);
  return digest;
}

void compute_digests(std::string_view set, std::span<const std::string_view> keys,
                     std::span<Digest> digests) {
  // The lanes read and write little-endian words; a few keys are not worth the setup.
  if (keys.size() < kLanes / 2 || std::endian::native == std::endian::big) {
    for (size_t i = 0; i < keys.size(); ++i) digests[i] = compute_digest(set, keys[i]);
    return;
  }
  const LaneFunction function = lane_function();
  std::vector<uint8_t> memory;
  LaneDigests results;
  for (size_t from = 0; from < keys.size(); from += kLanes) {
    const size_t count = std::min(kLanes, keys.size() - from);
    std::array<size_t, kLanes> offsets{};
    size_t used = 0;
    for (size_t i = 0; i < count; ++i) {
      offsets[i] = used;
      used += padded_bytes(set.size() + 1 + keys[from + i].size());
    }
    memory.resize(used);
    LaneMessages messages;
    messages.blocks.fill(memory.data());  // unused lanes have no blocks, but read one
    for (size_t i = 0; i < count; ++i) {
      const size_t padded = padded_bytes(set.size() + 1 + keys[from + i].size());
      write_padded(set, Particle::string, as_bytes(keys[from + i]), memory.data() + offsets[i],
                   padded);
      messages.blocks[i] = memory.data() + offsets[i];
      messages.block_counts[i] = static_cast<uint32_t>(padded / kBlockBytes);
    }
    function(messages, results);
    for (size_t i = 0; i < count; ++i) {
      std::memcpy(digests[from + i].data(), results[i].data(), kDigestBytes);
    }
  }
}

}  // namespace aerokv::wire
