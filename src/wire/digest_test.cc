// SPDX-License-Identifier: Apache-2.0
#include "wire/digest.h"

#include <gtest/gtest.h>

#include <string>
#include <thread>
#include <vector>

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
