// SPDX-License-Identifier: Apache-2.0
// What the tests of frames share.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <string>
#include <string_view>
#include <vector>

#include "aerokv/bytes.h"
#include "codec/kernels.h"

namespace aerokv::codec {

using Buffer = std::vector<std::byte>;

inline Buffer random_bytes(size_t size, uint64_t seed) {
  std::mt19937_64 random(seed);
  Buffer bytes(size);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
  return bytes;
}

inline Buffer hex(std::string_view text) {
  Buffer bytes;
  for (size_t i = 0; i + 1 < text.size(); i += 2) {
    bytes.push_back(static_cast<std::byte>(std::stoi(std::string(text.substr(i, 2)), nullptr, 16)));
  }
  return bytes;
}

/// Bytes between canaries.
class Guarded {
 public:
  explicit Guarded(size_t size, size_t misalignment = 0)
      : before_(kGuard + misalignment), size_(size), all_(before_ + size + kGuard, kCanary) {}

  [[nodiscard]] MutableBytes bytes() { return MutableBytes(all_).subspan(before_, size_); }

  /// Nothing outside was written.
  [[nodiscard]] bool is_intact() const {
    return has_only(Bytes(all_).first(before_), kCanary) &&
           has_only(Bytes(all_).subspan(before_ + size_), kCanary);
  }
  /// Nothing inside either.
  [[nodiscard]] bool is_untouched() const { return has_only(all_, kCanary); }
  [[nodiscard]] bool is_wiped() { return has_only(bytes(), std::byte{0}); }

 private:
  static constexpr size_t kGuard = 64;
  static constexpr std::byte kCanary{0xa5};

  static bool has_only(Bytes bytes, std::byte value) {
    return std::all_of(bytes.begin(), bytes.end(), [=](std::byte byte) { return byte == value; });
  }

  size_t before_;
  size_t size_;
  Buffer all_;
};

inline bool equal(Bytes left, Bytes right) {
  return std::equal(left.begin(), left.end(), right.begin(), right.end());
}

/// The names of the kernels that cannot run here, so that a run can show what it did not test.
inline std::string kernels_not_run() {
  std::string names;
  const std::vector<Kernel>& available = available_kernels();
  for (const Kernel kernel : {Kernel::scalar, Kernel::avx2, Kernel::avx512, Kernel::neon}) {
    if (std::find(available.begin(), available.end(), kernel) != available.end()) continue;
    names += " " + std::string(kernel_name(kernel));
  }
  return names;
}

}  // namespace aerokv::codec
