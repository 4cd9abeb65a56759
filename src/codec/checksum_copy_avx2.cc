// SPDX-License-Identifier: Apache-2.0
// Compiled with -mavx2; called only where the processor has it.
//
// The long path of XXH3-64 with the default secret and seed 0, as its specification describes it,
// with a store beside each load: what is hashed is in registers already. xxHash itself can only be
// fed with blocks, which costs a second pass through the cache and keeps loads and stores apart.
#include "codec/checksum_copy.h"

#if defined(__x86_64__)

#include <immintrin.h>

#include <cstring>

namespace aerokv::codec {
namespace {

constexpr size_t kStripeBytes = 64;
constexpr size_t kSecretBytes = 192;
constexpr size_t kStripesPerBlock = (kSecretBytes - kStripeBytes) / 8;
constexpr size_t kBlockBytes = kStripesPerBlock * kStripeBytes;

// Targets from this size on are written past the caches: reading them in before they are
// overwritten would cost half as much memory traffic again.
constexpr size_t kStreamBytes = 4 << 20;

constexpr uint64_t kPrime32One = 0x9E3779B1;
constexpr uint64_t kPrime32Two = 0x85EBCA77;
constexpr uint64_t kPrime32Three = 0xC2B2AE3D;
constexpr uint64_t kPrime64One = 0x9E3779B185EBCA87;
constexpr uint64_t kPrime64Two = 0xC2B2AE3D27D4EB4F;
constexpr uint64_t kPrime64Three = 0x165667B19E3779F9;
constexpr uint64_t kPrime64Four = 0x85EBCA77C2B2AE63;
constexpr uint64_t kPrime64Five = 0x27D4EB2F165667C5;
constexpr uint64_t kAvalanche = 0x165667919E3779F9;

// The default secret of the specification.
constexpr uint8_t kSecret[kSecretBytes] = {
    0xb8, 0xfe, 0x6c, 0x39, 0x23, 0xa4, 0x4b, 0xbe, 0x7c, 0x01, 0x81, 0x2c, 0xf7, 0x21, 0xad, 0x1c,
    0xde, 0xd4, 0x6d, 0xe9, 0x83, 0x90, 0x97, 0xdb, 0x72, 0x40, 0xa4, 0xa4, 0xb7, 0xb3, 0x67, 0x1f,
    0xcb, 0x79, 0xe6, 0x4e, 0xcc, 0xc0, 0xe5, 0x78, 0x82, 0x5a, 0xd0, 0x7d, 0xcc, 0xff, 0x72, 0x21,
    0xb8, 0x08, 0x46, 0x74, 0xf7, 0x43, 0x24, 0x8e, 0xe0, 0x35, 0x90, 0xe6, 0x81, 0x3a, 0x26, 0x4c,
    0x3c, 0x28, 0x52, 0xbb, 0x91, 0xc3, 0x00, 0xcb, 0x88, 0xd0, 0x65, 0x8b, 0x1b, 0x53, 0x2e, 0xa3,
    0x71, 0x64, 0x48, 0x97, 0xa2, 0x0d, 0xf9, 0x4e, 0x38, 0x19, 0xef, 0x46, 0xa9, 0xde, 0xac, 0xd8,
    0xa8, 0xfa, 0x76, 0x3f, 0xe3, 0x9c, 0x34, 0x3f, 0xf9, 0xdc, 0xbb, 0xc7, 0xc7, 0x0b, 0x4f, 0x1d,
    0x8a, 0x51, 0xe0, 0x4b, 0xcd, 0xb4, 0x59, 0x31, 0xc8, 0x9f, 0x7e, 0xc9, 0xd9, 0x78, 0x73, 0x64,
    0xea, 0xc5, 0xac, 0x83, 0x34, 0xd3, 0xeb, 0xc3, 0xc5, 0x81, 0xa0, 0xff, 0xfa, 0x13, 0x63, 0xeb,
    0x17, 0x0d, 0xdd, 0x51, 0xb7, 0xf0, 0xda, 0x49, 0xd3, 0x16, 0x55, 0x26, 0x29, 0xd4, 0x68, 0x9e,
    0x2b, 0x16, 0xbe, 0x58, 0x7d, 0x47, 0xa1, 0xfc, 0x8f, 0xf8, 0xb8, 0xd1, 0x7a, 0xd0, 0x31, 0xce,
    0x45, 0xcb, 0x3a, 0x8f, 0x95, 0x16, 0x04, 0x28, 0xaf, 0xd7, 0xfb, 0xca, 0xbb, 0x4b, 0x40, 0x7e,
};

__m256i load(const void* at) {
  return _mm256_loadu_si256(static_cast<const __m256i*>(at));
}

class Accumulator {
 public:
  void add(__m256i low, __m256i high, const uint8_t* secret) {
    low_ = mix(low_, low, load(secret));
    high_ = mix(high_, high, load(secret + 32));
  }

  void scramble() {
    const uint8_t* secret = kSecret + kSecretBytes - kStripeBytes;
    low_ = scrambled(low_, load(secret));
    high_ = scrambled(high_, load(secret + 32));
  }

  [[nodiscard]] uint64_t merged(uint64_t length) const {
    alignas(32) uint64_t lanes[8];
    _mm256_store_si256(reinterpret_cast<__m256i*>(lanes), low_);
    _mm256_store_si256(reinterpret_cast<__m256i*>(lanes + 4), high_);
    uint64_t sum = length * kPrime64One;
    for (size_t i = 0; i < 8; i += 2) {
      uint64_t keys[2];
      std::memcpy(keys, kSecret + 11 + 8 * i, sizeof(keys));
      __extension__ using Wide = unsigned __int128;
      const Wide product = static_cast<Wide>(lanes[i] ^ keys[0]) * (lanes[i + 1] ^ keys[1]);
      sum += static_cast<uint64_t>(product) ^ static_cast<uint64_t>(product >> 64);
    }
    sum = (sum ^ (sum >> 37)) * kAvalanche;
    return sum ^ (sum >> 32);
  }

 private:
  // Each lane gains its neighbour's data and the product of the halves of its own keyed data.
  static __m256i mix(__m256i sum, __m256i data, __m256i secret) {
    const __m256i keyed = _mm256_xor_si256(data, secret);
    const __m256i product = _mm256_mul_epu32(keyed, _mm256_srli_epi64(keyed, 32));
    const __m256i neighbours = _mm256_shuffle_epi32(data, _MM_SHUFFLE(1, 0, 3, 2));
    return _mm256_add_epi64(_mm256_add_epi64(sum, neighbours), product);
  }

  static __m256i scrambled(__m256i sum, __m256i secret) {
    const __m256i folded = _mm256_xor_si256(sum, _mm256_srli_epi64(sum, 47));
    const __m256i keyed = _mm256_xor_si256(folded, secret);
    const __m256i prime = _mm256_set1_epi64x(static_cast<int64_t>(kPrime32One));
    const __m256i low = _mm256_mul_epu32(keyed, prime);
    const __m256i high = _mm256_mul_epu32(_mm256_srli_epi64(keyed, 32), prime);
    return _mm256_add_epi64(low, _mm256_slli_epi64(high, 32));
  }

  __m256i low_ =
      _mm256_set_epi64x(static_cast<int64_t>(kPrime64Three), static_cast<int64_t>(kPrime64Two),
                        static_cast<int64_t>(kPrime64One), static_cast<int64_t>(kPrime32Three));
  __m256i high_ =
      _mm256_set_epi64x(static_cast<int64_t>(kPrime32One), static_cast<int64_t>(kPrime64Five),
                        static_cast<int64_t>(kPrime32Two), static_cast<int64_t>(kPrime64Four));
};

// Stores past the caches, from the first whole cache line of the target on.
class StreamedStores {
 public:
  StreamedStores(const std::byte* source, std::byte* target)
      : ahead_((0 - reinterpret_cast<uintptr_t>(target)) % kStripeBytes), target_(target) {
    std::memcpy(target, source, ahead_);
  }

  void put(const std::byte* stripe, size_t at, __m256i, __m256i) {
    auto* line = reinterpret_cast<__m256i*>(target_ + at + ahead_);
    _mm256_stream_si256(line, load(stripe + ahead_));
    _mm256_stream_si256(line + 1, load(stripe + ahead_ + 32));
  }

 private:
  size_t ahead_;
  std::byte* target_;
};

class CachedStores {
 public:
  explicit CachedStores(std::byte* target) : target_(target) {}

  void put(const std::byte*, size_t at, __m256i low, __m256i high) {
    auto* line = reinterpret_cast<__m256i*>(target_ + at);
    _mm256_storeu_si256(line, low);
    _mm256_storeu_si256(line + 1, high);
  }

 private:
  std::byte* target_;
};

template <typename Stores>
void take_stripes(const std::byte* source, size_t at, size_t count, Accumulator& sum,
                  Stores& stores) {
  for (size_t i = 0; i < count; ++i) {
    const std::byte* stripe = source + at + kStripeBytes * i;
    const __m256i low = load(stripe);
    const __m256i high = load(stripe + 32);
    sum.add(low, high, kSecret + 8 * i);
    stores.put(stripe, at + kStripeBytes * i, low, high);
  }
}

class NoStores {
 public:
  void put(const std::byte*, size_t, __m256i, __m256i) {}
};

// Takes the whole blocks from `block` to before `end`.
template <typename Stores>
void take_blocks(const std::byte* source, size_t block, size_t end, Accumulator& sum,
                 Stores& stores) {
  for (; block < end; ++block) {
    take_stripes(source, block * kBlockBytes, kStripesPerBlock, sum, stores);
    sum.scramble();
  }
}

// What follows the whole blocks: stripes, and a last one that overlaps them.
template <typename Stores>
uint64_t finish(Bytes source, size_t at, Accumulator& sum, Stores& stores) {
  take_stripes(source.data(), at, (source.size() - 1 - at) / kStripeBytes, sum, stores);
  const size_t last = source.size() - kStripeBytes;
  const __m256i low = load(source.data() + last);
  const __m256i high = load(source.data() + last + 32);
  sum.add(low, high, kSecret + kSecretBytes - kStripeBytes - 7);
  stores.put(source.data() + last, last, low, high);
  return sum.merged(source.size());
}

}  // namespace

uint64_t xxh3_64_avx2(Bytes source) {
  const size_t blocks = (source.size() - 1) / kBlockBytes;
  Accumulator sum;
  NoStores stores;
  take_blocks(source.data(), 0, blocks, sum, stores);
  return finish(source, blocks * kBlockBytes, sum, stores);
}

uint64_t copy_and_hash_avx2(Bytes source, std::byte* target) {
  const size_t blocks = (source.size() - 1) / kBlockBytes;
  size_t block = 0;
  Accumulator sum;
  if (source.size() >= kStreamBytes) {
    // The last block is left out: what is written ahead must not leave the target.
    StreamedStores stores(source.data(), target);
    block = blocks - 1;
    take_blocks(source.data(), 0, block, sum, stores);
    _mm_sfence();
  }
  CachedStores stores(target);
  take_blocks(source.data(), block, blocks, sum, stores);
  return finish(source, blocks * kBlockBytes, sum, stores);
}

}  // namespace aerokv::codec

#endif
