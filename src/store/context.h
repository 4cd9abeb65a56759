// SPDX-License-Identifier: Apache-2.0
// What the operations of one store share.
#pragma once

#include <algorithm>
#include <array>
#include <atomic>
#include <bit>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <unordered_set>

#include "aerokv/store.h"
#include "client/client.h"
#include "store/admission.h"
#include "store/keys.h"
#include "store/limits.h"
#include "wire/digest.h"
#include "wire/request.h"

namespace aerokv::store {

/// A Histogram under construction. Thread-safe; relaxed.
class HistogramCounter {
 public:
  void add(uint64_t value) {
    const auto bucket = value <= 1 ? 0 : static_cast<size_t>(std::bit_width(value - 1));
    counts_[std::min(bucket, Histogram::kBuckets - 1)].fetch_add(1, std::memory_order_relaxed);
    sum_.fetch_add(value, std::memory_order_relaxed);
  }
  [[nodiscard]] Histogram snapshot() const {
    Histogram out;
    for (size_t i = 0; i < counts_.size(); ++i) {
      out.counts[i] = counts_[i].load(std::memory_order_relaxed);
    }
    out.sum = sum_.load(std::memory_order_relaxed);
    return out;
  }

 private:
  std::array<std::atomic<uint64_t>, Histogram::kBuckets> counts_{};
  std::atomic<uint64_t> sum_{0};
};

/// Counters of a store; relaxed.
struct Counters {
  struct PerOperation {
    std::atomic<uint64_t> items{0}, hits{0}, misses{0}, errors{0}, bytes{0}, round_trips{0};
    std::atomic<uint64_t> begun{0};
    std::array<std::atomic<uint64_t>, kCodes> errors_by_code{};
    HistogramCounter batch_microseconds;
  };
  std::array<PerOperation, kOperations> operations;
  std::array<std::atomic<uint64_t>, kMissReasons> misses_by_reason{};
  std::array<std::atomic<uint64_t>, kShedReasons> stores_shed_by_reason{};
  HistogramCounter stored_segment_counts, stored_segment_bytes;

  [[nodiscard]] PerOperation& of(Operation operation) {
    return operations[static_cast<size_t>(operation)];
  }
};

/// Keys whose records are known to be damaged: lookups call them absent until they are stored
/// again. Remembers the newest kKeysMax. Thread-safe.
class DamagedKeys {
 public:
  static constexpr size_t kKeysMax = 1 << 16;

  void add(const wire::Digest& meta);
  void remove(const wire::Digest& meta);
  [[nodiscard]] bool contains(const wire::Digest& meta) const;
  [[nodiscard]] size_t size() const { return count_.load(std::memory_order_relaxed); }

 private:
  // Eight bytes of a cryptographic hash identify a key well enough to call it absent.
  static uint64_t identity(const wire::Digest& digest);

  std::atomic<size_t> count_{0};  // read first: lookups of a healthy store take no lock
  mutable std::mutex mutex_;
  std::unordered_set<uint64_t> keys_;  // guarded by mutex_
};

/// What the namespace allows, as found at the last look.
struct NamespaceLimits : ResolvedLimits {
  uint32_t default_ttl_seconds = 0;  ///< of writes that leave it to the namespace, 0 = never expire
  bool stop_writes = false;          ///< some node takes no writes
};

/// Lives as long as any operation of the store. Thread-safe.
class Context : public std::enable_shared_from_this<Context> {
 public:
  StoreOptions options;
  std::unique_ptr<client::Client> client;
  Counters counters;
  DamagedKeys damaged;
  std::atomic<uint64_t> open_load_bytes{0};   ///< of all batches of loads that are not done
  std::atomic<uint64_t> open_store_bytes{0};  ///< the same of stores
  Admission admission{*this};

  [[nodiscard]] wire::Digest meta_digest(std::string_view key) const {
    return wire::compute_digest(options.set_name, meta_user_key(key));
  }
  [[nodiscard]] wire::Digest segment_digest(std::string_view key, uint32_t index) const {
    return wire::compute_digest(options.set_name, segment_user_key(key, index));
  }
  /// The digests of segments 0 .. `count` - 1 of one object.
  [[nodiscard]] std::vector<wire::Digest> segment_digests(std::string_view key,
                                                          uint32_t count) const;
  [[nodiscard]] wire::RecordRef record(const wire::Digest& digest) const {
    return {options.ns, options.set_name, digest};
  }

  [[nodiscard]] std::shared_ptr<const NamespaceLimits> limits() const;
  void set_limits(std::shared_ptr<const NamespaceLimits> limits);
  /// True if no other refresh began within `interval`; the caller then starts one.
  bool begin_limits_refresh(Duration interval);

  /// TTL words for the wire: of the meta record, and of segments, which live a little longer.
  [[nodiscard]] static uint32_t wire_ttl(int64_t ttl_seconds);
  [[nodiscard]] uint32_t segment_wire_ttl(int64_t ttl_seconds) const;

  void count_miss(MissReason reason) {
    counters.misses_by_reason[static_cast<size_t>(reason)].fetch_add(1, std::memory_order_relaxed);
  }

  /// Returns how many have been shed for `reason` so far.
  uint64_t count_shed(ShedReason reason, uint64_t count) {
    std::atomic<uint64_t>& counter = counters.stores_shed_by_reason[static_cast<size_t>(reason)];
    return counter.fetch_add(count, std::memory_order_relaxed) + count;
  }

 private:
  mutable std::mutex mutex_;
  std::shared_ptr<const NamespaceLimits> limits_;  // guarded by mutex_
  TimePoint refreshed_at_{};                       // guarded by mutex_
};

/// The batch that an object's operation belongs to. Results are written from I/O threads, each by
/// one; the last one reports.
class Batch : public std::enable_shared_from_this<Batch> {
 public:
  Batch(std::shared_ptr<Context> context, Operation operation, std::vector<Item> items,
        TimePoint deadline, BatchDone done);

  [[nodiscard]] Context& context() const { return *context_; }
  [[nodiscard]] const std::shared_ptr<Context>& context_ptr() const { return context_; }
  [[nodiscard]] const Item& item(size_t index) const { return items_[index]; }
  [[nodiscard]] size_t size() const { return items_.size(); }
  [[nodiscard]] TimePoint deadline() const { return deadline_; }
  /// Until when a store may go on: what is left of the time belongs to the clean-up of those that
  /// failed, so that the batch ends in time with nothing left behind.
  [[nodiscard]] TimePoint store_deadline() const {
    return deadline_ - std::min<Duration>(kCleanupTimeMax, (deadline_ - begun_) / 5);
  }
  [[nodiscard]] uint64_t payload_bytes() const { return payload_bytes_; }

  /// The digests of the meta records of items `from` <= index < `to`.
  [[nodiscard]] std::vector<wire::Digest> meta_digests(size_t from, size_t to) const;

  /// Sets the result of one item; exactly once each.
  void finish(size_t index, ItemResult result);

  /// The same for a store that was not begun; told to the log by who decided so.
  void shed(size_t index, Status why);

  /// An object replaced an older one, which may have had segments from `first` on. They are
  /// removed before the batch reports: a later, larger store of the key must not meet the removal.
  void note_overwrite(size_t index, uint32_t first_orphan);

 private:
  [[nodiscard]] std::atomic<uint64_t>& open_bytes() const;
  void set_result(size_t index, ItemResult result);
  static constexpr milliseconds kCleanupTimeMax{250};
  void report();

  const std::shared_ptr<Context> context_;
  const Operation operation_;
  const std::vector<Item> items_;
  const TimePoint deadline_;
  const TimePoint begun_ = SteadyClock::now();
  BatchDone done_;
  std::vector<ItemResult> results_;
  std::atomic<size_t> left_;
  uint64_t payload_bytes_ = 0;
  std::mutex mutex_;
  std::vector<std::pair<size_t, uint32_t>> overwrites_;  // guarded by mutex_
};

}  // namespace aerokv::store
