// SPDX-License-Identifier: Apache-2.0
#include "codec/hkdf.h"

#include <gtest/gtest.h>

#include "codec/frame_testing.h"

namespace aerokv::codec {
namespace {

TEST(Hkdf, IsThatOfTheStandard) {
  // RFC 5869, test case 3, first 32 bytes.
  const Buffer master(22, std::byte{0x0b});
  const auto key = hkdf_sha256(master, {}, 32);
  ASSERT_TRUE(key);
  const Buffer expected = hex("8da4e775a563c18f715f802a063c5a31b8a11f5c5ee1879ec3454e5f3c738d2d");
  EXPECT_TRUE(equal(key->bytes(), expected));
  const auto short_key = hkdf_sha256(master, {}, 16);
  ASSERT_TRUE(short_key);
  EXPECT_TRUE(equal(short_key->bytes(), Bytes(expected).first(16)));
}

TEST(Hkdf, DependsOnMasterAndInfo) {
  const Buffer master = random_bytes(32, 1);
  const auto key = hkdf_sha256(master, as_bytes("a"), 32);
  const auto other_info = hkdf_sha256(master, as_bytes("b"), 32);
  const auto other_master = hkdf_sha256(random_bytes(32, 2), as_bytes("a"), 32);
  ASSERT_TRUE(key && other_info && other_master);
  EXPECT_FALSE(equal(key->bytes(), other_info->bytes()));
  EXPECT_FALSE(equal(key->bytes(), other_master->bytes()));
}

TEST(Hkdf, TakesLongInputs) {
  const auto key = hkdf_sha256(random_bytes(65536, 3), random_bytes(4096, 4), 16);
  ASSERT_TRUE(key);
  EXPECT_EQ(key->size(), 16U);
}

TEST(Hkdf, GivesOneRoundAtMost) {
  const auto key = hkdf_sha256(random_bytes(32, 5), {}, 33);
  ASSERT_FALSE(key);
  EXPECT_EQ(key.error().code(), Code::internal);
}

TEST(SecretBytes, KeepItsValue) {
  const Buffer value = random_bytes(32, 6);
  SecretBytes secret{Bytes(value)};
  const SecretBytes copy = secret;
  SecretBytes assigned(8);
  assigned = secret;
  EXPECT_TRUE(equal(copy.bytes(), value));
  EXPECT_TRUE(equal(assigned.bytes(), value));
  SecretBytes moved(8);
  moved = std::move(assigned);
  EXPECT_TRUE(equal(moved.bytes(), value));
  moved.truncate(16);
  EXPECT_TRUE(equal(moved.bytes(), Bytes(value).first(16)));
}

TEST(SecretBytes, WipesWhatIsCutOff) {
  SecretBytes secret{Bytes(random_bytes(32, 7))};
  const std::byte* cut_off = secret.bytes().data() + 16;
  secret.truncate(16);
  // The vector keeps its memory: what was cut off is still ours to look at.
  EXPECT_TRUE(std::all_of(cut_off, cut_off + 16, [](std::byte b) { return b == std::byte{0}; }));
}

}  // namespace
}  // namespace aerokv::codec
