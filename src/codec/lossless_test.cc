// SPDX-License-Identifier: Apache-2.0
#include "codec/lossless.h"

#include <gtest/gtest.h>

#include <bit>

#include "codec/checksum_copy.h"
#include "codec/frame_testing.h"

namespace aerokv::codec {
namespace {

constexpr PlaneShape kShapes[] = {{1, false}, {2, false}, {2, true}, {4, false}, {4, true}};

/// bfloat16 as models have them.
Buffer normal_bfloat16(size_t count, uint64_t seed) {
  std::mt19937_64 random(seed);
  std::normal_distribution<float> normal;
  Buffer bytes(2 * count);
  for (size_t i = 0; i < count; ++i) {
    const auto bits = std::bit_cast<uint32_t>(normal(random));
    store_le<uint16_t>(bytes.data() + 2 * i, static_cast<uint16_t>(bits >> 16));
  }
  return bytes;
}

struct Stored {
  LosslessBlock block;
  Buffer bytes;
};

Stored store(Bytes source, PlaneShape shape, int level = 1) {
  Guarded target(source.size());
  const auto block = encode_block(source, shape, level, target.bytes().data());
  EXPECT_TRUE(block);
  EXPECT_TRUE(target.is_intact());
  EXPECT_LE(block->bytes(), source.size());
  const Bytes stored = Bytes(target.bytes()).first(block->bytes());
  return {*block, {stored.begin(), stored.end()}};
}

void expect_back(const Stored& stored, Bytes source, PlaneShape shape) {
  Guarded target(source.size(), 1);
  const Status status = decode_block(stored.bytes, stored.block, shape, target.bytes());
  EXPECT_TRUE(status) << status.message();
  EXPECT_TRUE(equal(target.bytes(), source));
  EXPECT_TRUE(target.is_intact());
}

TEST(LosslessBlock, ComesBackWhateverItHolds) {
  for (const PlaneShape shape : kShapes) {
    for (const size_t size : std::vector<size_t>{4, 8, 64, 100, 1000, 4096, 65536, 262144}) {
      for (const Buffer& source : {random_bytes(size, size), Buffer(size),
                                   Buffer(size, std::byte{7}), normal_bfloat16(size / 2, size)}) {
        expect_back(store(source, shape), source, shape);
      }
    }
  }
}

TEST(LosslessBlock, KeepsEverySpecialNumber) {
  Buffer source(2 * 65536);
  for (size_t i = 0; i < 65536; ++i) {
    store_le<uint16_t>(source.data() + 2 * i, static_cast<uint16_t>(i));
  }
  for (const PlaneShape shape : kShapes) expect_back(store(source, shape), source, shape);
}

TEST(LosslessBlock, CompressesExponentsAndLeavesMantissasAlone) {
  const Buffer source = normal_bfloat16(131072, 1);
  const Stored stored = store(source, {2, true});
  EXPECT_EQ(stored.block.sizes[0], 131072U);
  EXPECT_LT(stored.block.sizes[1], 131072U * 36 / 100);
}

TEST(LosslessBlock, StoresRandomBytesAsTheyAre) {
  const Buffer source = random_bytes(262144, 2);
  const Stored stored = store(source, {1, false});
  EXPECT_EQ(stored.bytes, source);
}

TEST(LosslessBlock, FindsStructureBehindARandomStart) {
  Buffer source = random_bytes(262144, 3);
  std::fill(source.begin() + 131072, source.end(), std::byte{0});
  const Stored stored = store(source, {1, false});
  EXPECT_LT(stored.bytes.size(), 140000U);
  expect_back(stored, source, {1, false});
}

TEST(LosslessBlock, HigherLevelsAreNeverLarger) {
  for (const Buffer& source :
       {normal_bfloat16(65536, 4), random_bytes(131072, 5), Buffer(131072)}) {
    const size_t plain = store(source, {2, true}, 1).bytes.size();
    for (const int level : {-7, 0, 2, 3, 9, 19}) {
      const Stored stored = store(source, {2, true}, level);
      EXPECT_LE(stored.bytes.size(), plain) << level;
      expect_back(stored, source, {2, true});
    }
  }
}

TEST(LosslessBlock, HigherLevelsFindRepetitions) {
  Buffer source;
  const Buffer part = random_bytes(1024, 6);
  for (int i = 0; i < 64; ++i) source.insert(source.end(), part.begin(), part.end());
  EXPECT_EQ(store(source, {1, false}, 1).bytes.size(), source.size());
  const Stored stored = store(source, {1, false}, 3);
  EXPECT_LT(stored.bytes.size(), 2048U);
  expect_back(stored, source, {1, false});
}

TEST(LosslessBlock, FindsEveryFlippedBit) {
  const Buffer source = normal_bfloat16(400, 7);
  const Stored stored = store(source, {2, true});
  ASSERT_LT(stored.block.sizes[1], 400U);
  for (size_t bit = 0; bit < 8 * stored.bytes.size(); ++bit) {
    Buffer damaged = stored.bytes;
    damaged[bit / 8] ^= static_cast<std::byte>(1 << (bit % 8));
    Guarded target(source.size());
    EXPECT_EQ(decode_block(damaged, stored.block, {2, true}, target.bytes()).code(),
              Code::corruption)
        << bit;
    EXPECT_TRUE(target.is_untouched()) << bit;
  }
}

// Frames of an attacker have right sums: zstd sees what they hold.
TEST(LosslessBlock, SurvivesDamageUnderARightSum) {
  const Buffer source = normal_bfloat16(4000, 8);
  const Stored stored = store(source, {2, true});
  ASSERT_LT(stored.block.sizes[1], 4000U);
  for (size_t bit = 0; bit < 8 * size_t{stored.block.sizes[1]}; ++bit) {
    Stored damaged = stored;
    damaged.bytes[4000 + bit / 8] ^= static_cast<std::byte>(1 << (bit % 8));
    damaged.block.sum = xxh3_64(damaged.bytes, Kernel::scalar);
    Guarded target(source.size());
    const Status status = decode_block(damaged.bytes, damaged.block, {2, true}, target.bytes());
    EXPECT_TRUE(status || status.code() == Code::corruption) << bit;
    EXPECT_TRUE(target.is_intact()) << bit;
  }
}

TEST(LosslessBlock, RefusesPlanesOfOtherSizes) {
  // A frame that expands to more, and to less, than the plane has.
  for (const size_t size : std::vector<size_t>{4096, 16384}) {
    const Stored other = store(Buffer(size), {1, false});
    Guarded target(8192);
    EXPECT_EQ(decode_block(other.bytes, other.block, {1, false}, target.bytes()).code(),
              Code::corruption);
    EXPECT_TRUE(target.is_intact());
  }
}

}  // namespace
}  // namespace aerokv::codec
