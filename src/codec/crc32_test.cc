// SPDX-License-Identifier: Apache-2.0
#include "codec/crc32.h"

#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

namespace aerokv::codec {
namespace {

TEST(Crc32Test, IsThatOfZlib) {
  EXPECT_EQ(crc32({}), 0U);
  EXPECT_EQ(crc32(as_bytes("123456789")), 0xcbf43926U);  // the check value of its definition
}

TEST(Crc32Test, JoinsPartsOfAnyLength) {
  const uint32_t seed = std::random_device()();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  std::vector<std::byte> bytes(5000);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
  const Bytes all = bytes;
  for (size_t cut = 0; cut <= all.size(); cut += 1 + random() % 97) {
    const Bytes second = all.subspan(cut);
    EXPECT_EQ(crc32_join(crc32(all.first(cut)), crc32(second), second.size()), crc32(all)) << cut;
    EXPECT_EQ(crc32(second, crc32(all.first(cut))), crc32(all)) << cut;
  }
}

}  // namespace
}  // namespace aerokv::codec
