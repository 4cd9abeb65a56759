// SPDX-License-Identifier: Apache-2.0
#include "wire/digest.h"

#include <gtest/gtest.h>

#include <random>
#include <string>
#include <thread>
#include <vector>

#include "wire/digest_lanes.h"

namespace aerokv::wire {
namespace {

std::string hex(Bytes bytes) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string text;
  for (const std::byte byte : bytes) {
    text += kDigits[std::to_integer<size_t>(byte >> 4)];
    text += kDigits[std::to_integer<size_t>(byte & std::byte{15})];
  }
  return text;
}

// Both implementations say the same at every length around the block and padding borders.
TEST(Digest, PortableOneEqualsThatOfOpenSsl) {
  std::string key;
  for (int length = 0; length < 300; ++length) {
    for (const Particle type : {Particle::string, Particle::blob}) {
      ASSERT_EQ(compute_digest_portable("kv_chunks", type, as_bytes(key)),
                compute_digest("kv_chunks", type, as_bytes(key)))
          << length;
    }
    key += static_cast<char>('a' + length % 26);
  }
}

// Source: official client 19.3.0 and an independent RIPEMD-160; tests/golden has forty more.
TEST(Digest, KnownValues) {
  const Digest meta = compute_digest("kv_chunks", "test|m");
  EXPECT_EQ(hex(meta), "bc888b175ff6504102b76512b2c9262088cc9b0f");
  EXPECT_EQ(partition_of(meta), 2236U);
  EXPECT_EQ(hex(compute_digest("kv_chunks", "")), "0eaac2818904ec021c7b07368c95761314959052");
  EXPECT_EQ(hex(compute_digest("", "test|m")), "325bc7b1e181bdfa8c821c1a02da6137d3b426c7");
  const std::string blob("\0\1\2", 3);
  EXPECT_EQ(hex(compute_digest("kv_chunks", Particle::blob, as_bytes(blob))),
            "13cbaaab56cbe986d9ed219e522c9b4290b59483");
  const std::string number("\0\0\0\0\0\0\0\x2a", 8);
  EXPECT_EQ(hex(compute_digest("kv_chunks", Particle::integer, as_bytes(number))),
            "4e3068f4ea9182fc154914e575be14decd46d1cb");
}

TEST(Digest, TypeOfTheKeyEnters) {
  EXPECT_NE(compute_digest("s", Particle::string, as_bytes("k")),
            compute_digest("s", Particle::blob, as_bytes("k")));
}

std::vector<std::string> random_keys(size_t count, size_t bytes_max, std::mt19937_64& random) {
  std::vector<std::string> keys(count);
  for (std::string& key : keys) {
    key.resize(random() % (bytes_max + 1));
    for (char& c : key) c = static_cast<char>(random());
  }
  return keys;
}

void expect_same_as_one_by_one(const std::string& set, const std::vector<std::string>& keys) {
  const std::vector<std::string_view> views(keys.begin(), keys.end());
  std::vector<Digest> digests(keys.size());
  compute_digests(set, views, digests);
  for (size_t i = 0; i < keys.size(); ++i) {
    EXPECT_EQ(digests[i], compute_digest(set, keys[i])) << "key " << i << " of " << keys.size();
  }
}

TEST(Digest, ManyKeysHaveTheDigestsOfSingleOnes) {
  const uint64_t seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937_64 random(seed);
  for (size_t count = 0; count <= 40; ++count) {
    expect_same_as_one_by_one("kv_chunks", random_keys(count, 300, random));
  }
  expect_same_as_one_by_one("", random_keys(64, 4096, random));
}

TEST(Digest, ManyKeysOfEveryLengthAroundABlock) {
  std::vector<std::string> keys;
  for (size_t bytes = 0; bytes <= 200; ++bytes) keys.emplace_back(bytes, 'k');
  expect_same_as_one_by_one("golden", keys);
}

TEST(Digest, EveryInstructionSetGivesTheSame) {
  // Sixteen words of a padded one-block message for each lane.
  std::vector<uint8_t> blocks(kLanes * kBlockBytes);
  LaneMessages messages;
  for (size_t lane = 0; lane < kLanes; ++lane) {
    uint8_t* block = blocks.data() + lane * kBlockBytes;
    block[0] = static_cast<uint8_t>('a' + lane);
    block[1] = 0x80;
    block[kBlockBytes - 8] = 8;
    messages.blocks[lane] = block;
    messages.block_counts[lane] = 1;
  }
  LaneDigests baseline;
  ripemd160_lanes_baseline(messages, baseline);
  // RIPEMD-160 of "a", from the publication of the algorithm.
  const std::array<uint8_t, 20> of_a = {0x0b, 0xdc, 0x9d, 0x2d, 0x25, 0x6b, 0x3e, 0xe9, 0xda, 0xae,
                                        0x34, 0x7b, 0xe6, 0xf4, 0xdc, 0x83, 0x5a, 0x46, 0x7f, 0xfe};
  EXPECT_EQ(baseline[0], of_a);
#if defined(__x86_64__)
  if (__builtin_cpu_supports("avx2") != 0) {
    LaneDigests avx2;
    ripemd160_lanes_avx2(messages, avx2);
    EXPECT_EQ(avx2, baseline);
  }
#endif
}

TEST(Digest, PartitionTakesTwelveBits) {
  Digest digest{};
  digest[0] = std::byte{0xFF};
  digest[1] = std::byte{0xFF};
  EXPECT_EQ(partition_of(digest), 4095U);
  digest[1] = std::byte{0xF0};
  EXPECT_EQ(partition_of(digest), 255U);
  digest[0] = std::byte{0};
  digest[1] = std::byte{0x01};
  EXPECT_EQ(partition_of(digest), 256U);
}

TEST(Digest, ManyThreadsAtOnce) {
  const Digest expected = compute_digest("kv_chunks", "test|m");
  std::vector<int> differing(4, 0);
  std::vector<std::thread> threads;
  for (int& count : differing) {
    threads.emplace_back([&count, &expected] {
      for (int i = 0; i < 2000; ++i) {
        if (compute_digest("kv_chunks", "test|m") != expected) ++count;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(differing, std::vector<int>(4, 0));
}

}  // namespace
}  // namespace aerokv::wire
