// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <memory>
#include <mutex>
#include <new>
#include <utility>

#include "aerokv/bytes.h"

namespace aerokv::serde {

/// Memory for objects on their way, kept for the next one: fresh pages cost as much as a transform.
/// Thread-safe. What it lends must come back before it ends.
class ScratchPool {
 public:
  /// `idle_bytes_max`: how much is kept while nobody uses it.
  explicit ScratchPool(uint64_t idle_bytes_max) : idle_bytes_max_(idle_bytes_max) {}

  class Loan {
   public:
    Loan() = default;
    Loan(Loan&&) = default;
    Loan& operator=(Loan&&) = default;
    [[nodiscard]] std::byte* data() const { return memory_.get(); }

   private:
    friend class ScratchPool;
    std::unique_ptr<std::byte[]> memory_;
    uint64_t bytes_ = 0;
  };

  /// At least `bytes` uninitialised bytes; a null pointer if there is no memory.
  Loan borrow(uint64_t bytes) {
    Loan loan;
    {
      const std::scoped_lock lock(mutex_);
      // Chunks of a model have few sizes; one that is far too large stays for its own kind.
      const auto found = idle_.lower_bound(bytes);
      if (found != idle_.end() && found->first / 2 <= bytes) {
        loan.bytes_ = found->first;
        loan.memory_ = std::move(found->second);
        idle_bytes_ -= found->first;
        idle_.erase(found);
        return loan;
      }
    }
    loan.bytes_ = bytes;
    loan.memory_ = std::unique_ptr<std::byte[]>(new (std::nothrow) std::byte[bytes]);
    return loan;
  }

  void give_back(Loan loan) {
    const std::scoped_lock lock(mutex_);
    if (loan.memory_ == nullptr || idle_bytes_ + loan.bytes_ > idle_bytes_max_) return;
    idle_bytes_ += loan.bytes_;
    idle_.emplace(loan.bytes_, std::move(loan.memory_));
  }

 private:
  const uint64_t idle_bytes_max_;
  std::mutex mutex_;
  std::multimap<uint64_t, std::unique_ptr<std::byte[]>> idle_;  // guarded by mutex_, by bytes
  uint64_t idle_bytes_ = 0;                                     // guarded by mutex_
};

}  // namespace aerokv::serde
