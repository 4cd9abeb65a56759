// SPDX-License-Identifier: Apache-2.0
// What a run finds wrong. The first problem ends it.
#pragma once

#include <atomic>
#include <mutex>
#include <string>
#include <vector>

namespace aerokv::chaos {

/// Thread-safe.
class Problems {
 public:
  void add(std::string text) {
    const std::scoped_lock lock(mutex_);
    if (texts_.size() < kKept) texts_.push_back(std::move(text));
    any_.store(true, std::memory_order_release);
  }
  [[nodiscard]] bool any() const { return any_.load(std::memory_order_acquire); }
  [[nodiscard]] std::vector<std::string> texts() const {
    const std::scoped_lock lock(mutex_);
    return texts_;
  }

 private:
  static constexpr size_t kKept = 20;
  mutable std::mutex mutex_;
  std::vector<std::string> texts_;  // guarded by mutex_
  std::atomic<bool> any_{false};
};

}  // namespace aerokv::chaos
