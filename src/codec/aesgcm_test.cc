// SPDX-License-Identifier: Apache-2.0
#include "codec/aesgcm.h"

#include <gtest/gtest.h>

#include <set>

#include "codec/frame_testing.h"

namespace aerokv::codec {
namespace {

Buffer frame_of(Bytes key, Bytes plain) {
  Buffer frame(plain.size() + kAesGcmOverhead);
  EXPECT_TRUE(encrypt_aesgcm(key, plain, frame));
  return frame;
}

// Test cases 2 and 14 of the specification of GCM (McGrew, Viega).
TEST(AesGcm, IsThatOfTheSpecification) {
  const Buffer iv(12);
  const Buffer plain(16);
  Buffer frame(16 + kAesGcmOverhead);
  ASSERT_TRUE(encrypt_aesgcm_with_iv(Buffer(16), iv, plain, frame));
  EXPECT_EQ(frame, hex("01000000000000000000000000"
                       "0388dace60b6a392f328c2b971b2fe78ab6e47d42cec13bdf53a67b21257bddf"));
  ASSERT_TRUE(encrypt_aesgcm_with_iv(Buffer(32), iv, plain, frame));
  EXPECT_EQ(frame, hex("01000000000000000000000000"
                       "cea7403d4d606b6e074ec5d3baf39d18d0d1c8a799996bf0265b98b5d48ab919"));
}

TEST(AesGcm, ComesBack) {
  for (const size_t key_bytes : std::vector<size_t>{16, 32}) {
    const Buffer key = random_bytes(key_bytes, 1);
    for (const size_t size : std::vector<size_t>{0, 1, 15, 16, 17, 255, 256, 4099, 1 << 20}) {
      const Buffer plain = random_bytes(size, size);
      Guarded frame(size + kAesGcmOverhead);
      ASSERT_TRUE(encrypt_aesgcm(key, plain, frame.bytes()));
      EXPECT_TRUE(frame.is_intact());
      Guarded target(size, 3);
      EXPECT_TRUE(decrypt_aesgcm(key, frame.bytes(), target.bytes()));
      EXPECT_TRUE(equal(target.bytes(), plain)) << size;
      EXPECT_TRUE(target.is_intact());
    }
  }
}

TEST(AesGcm, NeverUsesAnIvTwice) {
  const Buffer key = random_bytes(16, 2);
  std::set<std::string> ivs;
  for (int i = 0; i < 1000; ++i) {
    const Buffer frame = frame_of(key, {});
    ivs.emplace(as_text(Bytes(frame).subspan(1, kAesGcmIvBytes)));
  }
  EXPECT_EQ(ivs.size(), 1000U);
}

TEST(AesGcm, IgnoresBytesBehindTheFrame) {
  const Buffer key = random_bytes(16, 3);
  const Buffer plain = random_bytes(300, 4);
  Buffer loaded = frame_of(key, plain);
  loaded.resize(1000, std::byte{0xff});
  Guarded target(300);
  EXPECT_TRUE(decrypt_aesgcm(key, loaded, target.bytes()));
  EXPECT_TRUE(equal(target.bytes(), plain));
}

TEST(AesGcm, RefusesEveryTruncatedFrame) {
  const Buffer key = random_bytes(16, 5);
  const Buffer frame = frame_of(key, random_bytes(300, 6));
  for (size_t size = 0; size < frame.size(); ++size) {
    Guarded target(300);
    const Status status = decrypt_aesgcm(key, Bytes(frame).first(size), target.bytes());
    EXPECT_EQ(status.code(), Code::corruption) << size;
    EXPECT_TRUE(target.is_untouched()) << size;
  }
}

TEST(AesGcm, RefusesAnotherLength) {
  const Buffer key = random_bytes(16, 7);
  const Buffer frame = frame_of(key, random_bytes(300, 8));
  for (size_t size = 0; size < 300; ++size) {
    Guarded target(size);
    EXPECT_EQ(decrypt_aesgcm(key, frame, target.bytes()).code(), Code::denied) << size;
    EXPECT_TRUE(target.is_wiped());
    EXPECT_TRUE(target.is_intact());
  }
}

TEST(AesGcm, FindsEveryFlippedBitAndReleasesNothing) {
  const Buffer key = random_bytes(16, 9);
  const Buffer frame = frame_of(key, random_bytes(100, 10));
  for (size_t bit = 0; bit < 8 * frame.size(); ++bit) {
    Buffer damaged = frame;
    damaged[bit / 8] ^= static_cast<std::byte>(1 << (bit % 8));
    Guarded target(100);
    const Status status = decrypt_aesgcm(key, damaged, target.bytes());
    EXPECT_EQ(status.code(), bit < 8 ? Code::invalid : Code::denied) << bit;
    EXPECT_TRUE(bit < 8 ? target.is_untouched() : target.is_wiped()) << bit;
    EXPECT_TRUE(target.is_intact()) << bit;
  }
}

TEST(AesGcm, RefusesAnotherKey) {
  const Buffer plain = random_bytes(64, 11);
  const Buffer frame = frame_of(random_bytes(16, 12), plain);
  for (const Buffer& key : {random_bytes(16, 13), random_bytes(32, 12)}) {
    Guarded target(64);
    EXPECT_EQ(decrypt_aesgcm(key, frame, target.bytes()).code(), Code::denied);
    EXPECT_TRUE(target.is_wiped());
  }
}

TEST(AesGcm, RefusesKeysOfOtherSizes) {
  for (const size_t key_bytes : std::vector<size_t>{0, 15, 17, 24, 33}) {
    const Buffer key = random_bytes(key_bytes, 14);
    Guarded frame(kAesGcmOverhead);
    EXPECT_EQ(encrypt_aesgcm(key, {}, frame.bytes()).code(), Code::invalid) << key_bytes;
    EXPECT_TRUE(frame.is_untouched());
    EXPECT_EQ(decrypt_aesgcm(key, frame.bytes(), {}).code(), Code::invalid) << key_bytes;
  }
}

}  // namespace
}  // namespace aerokv::codec
