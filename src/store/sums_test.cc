// SPDX-License-Identifier: Apache-2.0
#include "store/sums.h"

#include <gtest/gtest.h>

#include <array>
#include <string>
#include <vector>

namespace aerokv::store {
namespace {

TEST(Sums, Crc32CheckValues) {
  EXPECT_EQ(crc32(as_bytes("123456789")), 0xCBF43926U);
  EXPECT_EQ(crc32({}), 0U);
  EXPECT_EQ(crc32(as_bytes("a")), 0xE8B7BE43U);
}

// A bitwise CRC-32, to compare lengths that take every path of the vector code.
uint32_t slow_crc32(Bytes bytes) {
  uint32_t crc = 0xFFFFFFFFU;
  for (const std::byte byte : bytes) {
    crc ^= std::to_integer<uint32_t>(byte);
    for (int bit = 0; bit < 8; ++bit) crc = crc >> 1 ^ ((crc & 1) != 0 ? 0xEDB88320U : 0);
  }
  return ~crc;
}

std::vector<std::byte> counting_bytes(size_t count) {
  std::vector<std::byte> bytes(count);
  for (size_t i = 0; i < count; ++i) bytes[i] = static_cast<std::byte>(i * 7 % 251);
  return bytes;
}

TEST(Sums, Crc32MatchesTheDefinitionAndContinues) {
  for (const size_t count : {1U, 15U, 16U, 17U, 63U, 64U, 65U, 255U, 256U, 1000U, 4096U, 70001U}) {
    const auto bytes = counting_bytes(count);
    const uint32_t expected = slow_crc32(bytes);
    EXPECT_EQ(crc32(bytes), expected) << count;
    const Bytes view(bytes);
    for (const size_t split : {size_t{0}, count / 3, count}) {
      EXPECT_EQ(crc32(view.subspan(split), crc32(view.first(split))), expected) << count;
    }
  }
}

// Source of the values: python-xxhash 4.1.0, xxh3_64_intdigest.
TEST(Sums, Xxh3KnownValues) {
  EXPECT_EQ(segment_sum({}), 0x2D06800538D394C2ULL);
  EXPECT_EQ(segment_sum(as_bytes("a")), 0xE6C632B61E964E1FULL);
  EXPECT_EQ(segment_sum(as_bytes("123456789")), 0x72DCB18B67A17DFFULL);
  EXPECT_EQ(segment_sum(counting_bytes(70001)), 0x64EE304C2D6F4983ULL);
}

TEST(Sums, BinValueKeepsAllBits) {
  for (const uint64_t sum : {0ULL, 1ULL, 0x7FFFFFFFFFFFFFFFULL, 0x8000000000000000ULL, ~0ULL}) {
    EXPECT_EQ(sum_from_bin(sum_to_bin(sum)), sum);
  }
  EXPECT_EQ(sum_to_bin(~0ULL), -1);
}

TEST(Sums, BlobIsBigEndianInOrder) {
  const std::array<uint64_t, 2> sums = {0x0102030405060708ULL, 0xFF00000000000001ULL};
  const auto blob = encode_sums(sums);
  EXPECT_EQ(as_text(blob), std::string_view("\1\2\3\4\5\6\7\10\xff\0\0\0\0\0\0\1", 16));
  const auto back = decode_sums(blob, 2);
  ASSERT_TRUE(back);
  EXPECT_EQ(*back, std::vector<uint64_t>(sums.begin(), sums.end()));
}

TEST(Sums, BlobOfWrongLengthIsCorruption) {
  const auto blob = encode_sums(std::array<uint64_t, 2>{1, 2});
  for (const uint64_t count : {0ULL, 1ULL, 3ULL, 1000000000ULL, 0x2000000000000002ULL, ~0ULL}) {
    const auto sums = decode_sums(blob, count);
    ASSERT_FALSE(sums) << count;
    EXPECT_EQ(sums.error().code(), Code::corruption);
  }
  EXPECT_EQ(decode_sums(Bytes(blob).first(15), 1).error().code(), Code::corruption);
  EXPECT_EQ(decode_sums(Bytes(blob).first(15), 2).error().code(), Code::corruption);
}

}  // namespace
}  // namespace aerokv::store
