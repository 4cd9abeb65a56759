// SPDX-License-Identifier: Apache-2.0
#include "base/secret.h"

#include <gtest/gtest.h>

#include <fstream>
#include <sstream>
#include <string>

namespace aerokv {
namespace {

TEST(SecretText, IsTakenOverAndWiped) {
  std::string text = "a password that is too long to lie in the string itself";
  const std::string expected = text;
  const char* const place = text.data();
  const size_t size = text.size();
  const Secret secret = Secret::take(text);
  EXPECT_TRUE(text.empty());
  EXPECT_EQ(secret.view(), expected);
  EXPECT_EQ(std::string(place, size), std::string(size, '\0'));
  // NOLINTNEXTLINE(performance-unnecessary-copy-initialization): the copy is what is tested
  const Secret copy = secret;
  EXPECT_EQ(copy.view().data(), secret.view().data());
  EXPECT_TRUE(Secret().empty());
  EXPECT_TRUE(Secret("").empty());
  EXPECT_EQ(Secret().view(), "");
}

TEST(SecretText, IsKeptOutOfCoreFiles) {
  const Secret secret("hunter2");
  const auto address = reinterpret_cast<uintptr_t>(secret.view().data());
  std::ifstream maps("/proc/self/smaps");
  bool is_inside = false;
  bool is_found = false;
  for (std::string line; std::getline(maps, line);) {
    uintptr_t from = 0;
    uintptr_t to = 0;
    char dash = 0;
    std::istringstream fields(line);
    if (line.find('-') < 17 && fields >> std::hex >> from >> dash >> to && dash == '-') {
      is_inside = from <= address && address < to;
    }
    if (!is_inside || !line.starts_with("VmFlags:")) continue;
    is_found = true;
    EXPECT_NE((line + " ").find(" dd "), std::string::npos) << line;
  }
  EXPECT_TRUE(is_found);
}

}  // namespace
}  // namespace aerokv
