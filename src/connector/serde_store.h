// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <deque>
#include <memory>
#include <mutex>
#include <string>
#include <vector>

#include "aerokv/serde_store.h"
#include "base/clock.h"
#include "serde/scratch.h"
#include "serde/worker_pool.h"

namespace aerokv {

/// The chunk hash and the tenant in a key text of LMCache; see open_serde_store().
SerdeKey serde_key_of(std::string_view key);

/// The Store that open_serde_store() makes.
///
/// A batch is cut into groups of neighbours, about a mebibyte each. A group of puts is encoded by
/// the pool and then stored; a group of gets is loaded and then decoded by the pool. Groups begin
/// as their encoded bytes fit into the budget, in the order of their submission.
class SerdeStore final : public Store {
 public:
  SerdeStore(std::unique_ptr<Store> inner, Serde serde, DType dtype,
             std::unique_ptr<serde::WorkerPool> pool);
  ~SerdeStore() override;

  using Store::submit;
  void submit(Operation operation, std::vector<Item> items, BatchDone done,
              std::optional<TimePoint> end) override;
  [[nodiscard]] TimePoint deadline(Operation operation,
                                   const std::vector<Item>& items) const override {
    return inner_->deadline(operation, items);
  }
  void report_damaged(const std::string& key) override { inner_->report_damaged(key); }
  Result<std::vector<ObjectInfo>> list(uint32_t& cursor, size_t count) override {
    return inner_->list(cursor, count);
  }
  Result<ObjectDetails> inspect(const std::string& key) override { return inner_->inspect(key); }
  Result<std::vector<NodeAnswer>> info(const std::string& command) override {
    return inner_->info(command);
  }
  [[nodiscard]] StoreStats stats() const override;
  [[nodiscard]] StoreLimits limits() const override { return inner_->limits(); }
  [[nodiscard]] const StoreOptions& options() const override { return inner_->options(); }
  void close() override;

 private:
  class OpenBatch;
  class Group;
  class PutGroup;
  class GetGroup;

  [[nodiscard]] Layout layout_of(uint64_t raw_bytes) const;
  /// The encoded bytes that an item needs at most. Errors: invalid.
  [[nodiscard]] Result<uint64_t> encoded_bytes_max(uint64_t raw_bytes) const;

  /// Whether so much more payload may wait to be stored; counts it then.
  bool reserve_store(uint64_t raw_bytes);
  void admit(std::shared_ptr<Group> group);
  void start_waiting();
  [[nodiscard]] std::shared_ptr<Group> take_startable();
  void end_late(Group& group);
  void release(Group& group, serde::ScratchPool::Loan loan);
  void release_store(uint64_t raw_bytes);
  void count_refused(Operation operation, const Status& status);

  const std::unique_ptr<Store> inner_;
  const Serde serde_;
  const DType dtype_;
  const uint64_t bytes_max_;
  serde::ScratchPool scratch_;

  mutable std::mutex mutex_;
  // Guarded by mutex_, as is all below. Loads and stores each have their own.
  std::deque<std::shared_ptr<Group>> waiting_loads_, waiting_stores_;
  uint64_t load_bytes_ = 0, store_bytes_ = 0;                // encoded, in use
  uint64_t store_raw_bytes_ = 0, store_raw_bytes_peak_ = 0;  // of stores that have not ended
  bool starting_ = false;                                    // a thread starts groups now
  bool closed_ = false;

  // What the inner store does not see; relaxed.
  std::array<std::array<std::atomic<uint64_t>, kCodes>, kOperations> refused_{};
  std::atomic<uint64_t> undecodable_{0}, too_large_{0};
  std::array<std::atomic<uint64_t>, kShedReasons> shed_{};

  std::unique_ptr<serde::WorkerPool> pool_;  // ends first
};

}  // namespace aerokv
