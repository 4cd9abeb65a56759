// SPDX-License-Identifier: Apache-2.0
// Which of the faults a request meets.
#pragma once

#include <atomic>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <vector>

#include "devserver/faults.h"
#include "devserver/request.h"

namespace aerokv::devserver {

/// What is known about a request when its fault is looked up.
struct FaultSubject {
  int node = 0;
  RequestKind kind = RequestKind::other;
  const RecordRequest* request = nullptr;  ///< null for info and security
};

/// Thread-safe; costs one atomic load while the plan is empty.
class FaultPlan {
 public:
  uint64_t add(Fault fault);
  bool remove(uint64_t id);
  void clear();
  [[nodiscard]] std::vector<FaultCounter> counters() const;
  Status await(uint64_t id, uint64_t count, std::chrono::milliseconds timeout);

  /// Counts the request and returns the fault whose action it gets, if any.
  std::shared_ptr<const Fault> match(const FaultSubject& subject) {
    if (active_.load(std::memory_order_relaxed) == 0) return nullptr;
    return find(subject);
  }

  /// True if any fault concerns single rows of batches.
  [[nodiscard]] bool has_row_faults() const {
    return row_faults_.load(std::memory_order_relaxed) != 0;
  }

 private:
  struct Entry {
    uint64_t id = 0;
    std::shared_ptr<const Fault> fault;
    uint64_t matched = 0;
    uint64_t applied = 0;
  };

  std::shared_ptr<const Fault> find(const FaultSubject& subject);
  [[nodiscard]] static bool concerns(const Fault& fault, const FaultSubject& subject);
  void recount();

  mutable std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<Entry> entries_;
  uint64_t last_id_ = 0;
  std::atomic<uint32_t> active_{0};
  std::atomic<uint32_t> row_faults_{0};
};

/// Damages a complete answer as `fault` says. Returns the bytes to send in its place.
std::vector<std::byte> damaged(std::vector<std::byte> answer, const Fault& fault);

}  // namespace aerokv::devserver
