// SPDX-License-Identifier: Apache-2.0
// Records in memory: one table for each node and partition, sets, limits and expiry.
#pragma once

#include <array>
#include <atomic>
#include <cstdint>
#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <shared_mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "devserver/buffer.h"
#include "devserver/devserver.h"
#include "wire/digest.h"

namespace aerokv::devserver {

inline constexpr int kNodesMax = 16;
inline constexpr size_t kSetsMax = 4095;

/// Name of a bin, inside the record.
struct BinName {
  std::array<char, kBinNameBytesMax> text{};
  uint8_t size = 0;

  BinName() = default;
  explicit BinName(std::string_view name);  // at most kBinNameBytesMax bytes
  [[nodiscard]] std::string_view view() const { return {text.data(), size}; }
};

struct Bin {
  BinName name;
  uint8_t particle = 0;
  Slice value;
};

/// A named set of one namespace. Never removed, so pointers to it stay good.
struct Set {
  std::string name;
  uint32_t index = 0;
  std::atomic<uint64_t> truncate_ns{0};  ///< records last updated before are gone (Unix ns)
  std::array<std::atomic<int64_t>, kNodesMax> objects{};
  std::array<std::atomic<int64_t>, kNodesMax> bytes{};
};

struct Record {
  wire::Digest digest{};
  uint16_t generation = 0;
  uint32_t void_time = 0;     ///< seconds since the server epoch, 0 = never
  uint64_t updated_ns = 0;    ///< Unix time of the last write
  uint32_t stored_bytes = 0;  ///< what it counts against the namespace
  Set* set = nullptr;         ///< null: no set
  std::string key;            ///< particle type byte and key bytes; empty = not stored
  std::vector<Bin> bins;

  [[nodiscard]] Bin* find(std::string_view name);
  [[nodiscard]] const Bin* find(std::string_view name) const {
    return const_cast<Record*>(this)->find(name);
  }
};

/// The records of one partition on one node: open addressing over the digest, which is random by
/// nature. Thread-compatible; Namespace has the locks.
class Table {
 public:
  Table() = default;
  ~Table();
  Table(const Table&) = delete;
  Table& operator=(const Table&) = delete;

  [[nodiscard]] Record* find(const wire::Digest& digest) const;
  /// Takes the record; there must be none of its digest.
  void insert(std::unique_ptr<Record> record);
  /// Empty if there is none.
  std::unique_ptr<Record> remove(const wire::Digest& digest);
  [[nodiscard]] size_t size() const { return count_; }
  /// All records, in no order; stay good until the next change.
  [[nodiscard]] std::vector<Record*> records() const;

 private:
  static uint64_t hash_of(const wire::Digest& digest);
  void grow();

  std::unique_ptr<Record*[]> slots_;
  uint32_t mask_ = 0;  // capacity - 1; 0 = no slots
  uint32_t count_ = 0;
};

/// Counters of one node in one namespace, as shown in its info text.
struct NamespaceCounters {
  std::atomic<int64_t> records{0};
  std::atomic<int64_t> used_bytes{0};
  std::atomic<uint64_t> read_success{0}, read_not_found{0}, read_error{0};
  std::atomic<uint64_t> write_success{0}, write_error{0};
  std::atomic<uint64_t> delete_success{0}, delete_not_found{0}, delete_error{0};
  std::atomic<uint64_t> batch_read_success{0}, batch_read_not_found{0}, batch_read_error{0};
  std::atomic<uint64_t> batch_write_success{0}, batch_write_error{0};
  std::atomic<uint64_t> batch_delete_success{0}, batch_delete_not_found{0}, batch_delete_error{0};
  std::atomic<uint64_t> proxy_complete{0}, proxy_timeout{0};
  std::atomic<uint64_t> expired{0}, record_too_big{0}, generation_error{0}, queries{0};
};

/// What set-config and DevServer may change, for each node by itself.
struct NamespaceSettings {
  std::atomic<uint32_t> nsup_period_s{0};
  std::atomic<uint32_t> max_record_bytes{0};
  std::atomic<uint32_t> default_ttl_s{0};
  std::atomic<bool> allow_ttl_without_nsup{false};
  std::atomic<bool> stop_writes{false};  ///< whatever is stored
};

/// One namespace on all nodes. The lock of a partition covers its copies on all nodes, so a write
/// and its replicas change together. Thread-safe except where said.
class Namespace {
 public:
  /// The pool must outlive the namespace.
  Namespace(const NamespaceOptions& options, int nodes, BufferPool& pool);

  [[nodiscard]] const std::string& name() const { return name_; }
  [[nodiscard]] BufferPool& pool() { return pool_; }

  /// Guards tables(*, partition).
  [[nodiscard]] std::mutex& lock_of(uint32_t partition) {
    return locks_[partition % kLockCount].mutex;
  }
  [[nodiscard]] Table& table(int node, uint32_t partition) {
    return tables_[static_cast<size_t>(node) * kPartitionCount + partition];
  }

  /// Null if there is no such set.
  [[nodiscard]] Set* find_set(std::string_view name);
  /// Null if there are too many sets or the name is too long.
  [[nodiscard]] Set* find_or_add_set(std::string_view name);
  /// In order of creation.
  [[nodiscard]] std::vector<Set*> sets();

  /// True if a reader must not see the record: expired, or truncated.
  [[nodiscard]] bool is_hidden(const Record& record, uint64_t now_ns) const;
  [[nodiscard]] bool is_truncated(const Record& record) const;

  /// Adds, replaces or removes one copy and keeps the counters right. Requires the lock.
  void put_record(int node, uint32_t partition, std::unique_ptr<Record> record);
  void remove_record(int node, uint32_t partition, const wire::Digest& digest);
  /// To be called when a record was changed in place.
  void recount(int node, Record& record, uint32_t stored_bytes);

  /// Takes over a copy of `record` unless the node has a better one: of higher generation, or of
  /// the same and later. Requires the lock.
  void merge_record(const Record& record, uint32_t partition, int node);
  /// Removes the node's copies of one partition. Requires the lock.
  void clear_partition(int node, uint32_t partition);

  /// Removes all copies of a node.
  void clear_node(int node);
  /// Removes truncated records of one node, and expired ones if `expired`. Takes the locks itself.
  void reap(int node, bool expired);

  [[nodiscard]] NamespaceCounters& counters(int node) {
    return counters_[static_cast<size_t>(node)];
  }

  [[nodiscard]] NamespaceSettings& settings(int node) {
    return settings_[static_cast<size_t>(node)];
  }
  [[nodiscard]] uint64_t size_bytes() const { return size_bytes_; }

  std::atomic<uint64_t> truncate_ns{0};  ///< of the whole namespace
  std::atomic<bool> truncating{false};

 private:
  static constexpr size_t kLockCount = 512;
  struct alignas(64) PaddedMutex {
    std::mutex mutex;
  };

  const std::string name_;
  BufferPool& pool_;
  std::vector<Table> tables_;
  std::unique_ptr<PaddedMutex[]> locks_;
  std::vector<NamespaceCounters> counters_;
  std::vector<NamespaceSettings> settings_;
  const uint64_t size_bytes_;

  std::shared_mutex sets_mutex_;
  std::deque<Set> sets_;
  std::unordered_map<std::string_view, Set*> sets_by_name_;
};

/// Nanoseconds since 1970.
uint64_t unix_nanoseconds();
/// Seconds since the server epoch (2010).
uint32_t server_seconds(uint64_t unix_ns);

/// What a record of these parts counts: the storage format of the server, see docs/formats/wire.md.
uint64_t record_bytes(const Record& record);

}  // namespace aerokv::devserver
