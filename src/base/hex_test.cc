// SPDX-License-Identifier: Apache-2.0
#include "base/hex.h"

#include <gtest/gtest.h>

namespace aerokv {
namespace {

TEST(Hex, EveryByteComesBack) {
  std::string bytes;
  for (int i = 0; i < 256; ++i) bytes += static_cast<char>(i);
  const std::string digits = to_hex(as_bytes(bytes));
  EXPECT_EQ(digits.substr(0, 6), "000102");
  EXPECT_EQ(digits.substr(508), "feff");
  EXPECT_EQ(from_hex(digits), bytes);
  EXPECT_EQ(from_hex(""), "");
}

TEST(Hex, OtherTextIsRefused) {
  for (const char* text : {"0", "abc", "0g", "AB", " 1", "0x"})
    EXPECT_EQ(from_hex(text), std::nullopt);
}

}  // namespace
}  // namespace aerokv
