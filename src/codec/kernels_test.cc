// SPDX-License-Identifier: Apache-2.0
#include "codec/kernels.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cstdlib>
#include <string>

namespace aerokv::codec {
namespace {

// The choice is made once in a process, so each of these asks in a new one.
class KernelsTest : public testing::Test {
 protected:
  void SetUp() override {
    GTEST_FLAG_SET(death_test_style, "threadsafe");
    unsetenv("AEROKV_KERNEL");
  }
  void TearDown() override { unsetenv("AEROKV_KERNEL"); }

  static void expect_choice(const char* forced, Kernel expected) {
    if (forced != nullptr) setenv("AEROKV_KERNEL", forced, 1);
    EXPECT_EXIT(std::_Exit(active_kernel() == expected ? 0 : 1), testing::ExitedWithCode(0), "")
        << (forced == nullptr ? "nothing" : forced);
  }

  static Kernel widest_but_avx512() {
    Kernel widest = Kernel::scalar;
    for (const Kernel kernel : available_kernels()) {
      if (kernel != Kernel::avx512) widest = kernel;
    }
    return widest;
  }
};

TEST_F(KernelsTest, ListsTheScalarOneFirst) {
  ASSERT_FALSE(available_kernels().empty());
  EXPECT_EQ(available_kernels().front(), Kernel::scalar);
  EXPECT_EQ(kernel_name(Kernel::avx2), "avx2");
}

TEST_F(KernelsTest, NeverChoosesAvx512ByItself) {
  expect_choice(nullptr, widest_but_avx512());
}

TEST_F(KernelsTest, TakesEachThatIsForced) {
  for (const Kernel kernel : available_kernels()) {
    expect_choice(std::string(kernel_name(kernel)).c_str(), kernel);
  }
}

TEST_F(KernelsTest, IgnoresWhatDoesNotExist) {
  expect_choice("", widest_but_avx512());
  expect_choice("avx1024", widest_but_avx512());
  const auto& available = available_kernels();
  if (std::find(available.begin(), available.end(), Kernel::neon) == available.end()) {
    expect_choice("neon", widest_but_avx512());
  }
}

}  // namespace
}  // namespace aerokv::codec
