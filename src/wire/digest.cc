// SPDX-License-Identifier: Apache-2.0
#include "wire/digest.h"

#include <openssl/evp.h>

#include <algorithm>
#include <bit>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <vector>

#include "wire/digest_lanes.h"

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

void write_padded(std::string_view set, std::string_view key, uint8_t* at, size_t padded) {
  const size_t message_bytes = set.size() + 1 + key.size();
  std::memcpy(at, set.data(), set.size());
  at[set.size()] = static_cast<uint8_t>(Particle::string);
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
  const bool ok = EVP_DigestInit_ex2(context.get(), ripemd160(), nullptr) == 1 &&
                  EVP_DigestUpdate(context.get(), set.data(), set.size()) == 1 &&
                  EVP_DigestUpdate(context.get(), &type, 1) == 1 &&
                  EVP_DigestUpdate(context.get(), key.data(), key.size()) == 1 &&
                  EVP_DigestFinal_ex(context.get(), reinterpret_cast<unsigned char*>(digest.data()),
                                     &length) == 1;
  if (!ok || length != kDigestBytes) std::abort();  // in-memory hashing cannot fail
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
      write_padded(set, keys[from + i], memory.data() + offsets[i], padded);
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
