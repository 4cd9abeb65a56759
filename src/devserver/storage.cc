// SPDX-License-Identifier: Apache-2.0
#include "devserver/storage.h"

#include <time.h>

#include <algorithm>
#include <cstring>

namespace aerokv::devserver {
namespace {

constexpr uint64_t kStorageUnit = 16;

uint64_t rounded_up(uint64_t bytes) {
  return (bytes + kStorageUnit - 1) / kStorageUnit * kStorageUnit;
}

uint64_t varint_bytes(uint64_t value) {
  uint64_t count = 1;
  for (; value >= 128; value >>= 7) ++count;
  return count;
}

uint64_t integer_bytes(Bytes value) {
  if (value.size() != 8) return value.size();
  const auto v = load_be<uint64_t>(value.data());
  if (v < (1ULL << 8)) return 1;
  if (v < (1ULL << 16)) return 2;
  return v < (1ULL << 32) ? 4 : 8;
}

uint64_t value_bytes(const Bin& bin) {
  switch (static_cast<wire::Particle>(bin.particle)) {
    case wire::Particle::integer:
      return 2 + integer_bytes(bin.value.bytes());
    case wire::Particle::floating:
      return 1 + 8;
    case wire::Particle::boolean:
      return 1 + 1;
    default:
      return 5 + uint64_t{bin.value.size};
  }
}

}  // namespace

BinName::BinName(std::string_view name) : size(static_cast<uint8_t>(name.size())) {
  std::memcpy(text.data(), name.data(), name.size());
}

Bin* Record::find(std::string_view name) {
  for (Bin& bin : bins) {
    if (bin.name.view() == name) return &bin;
  }
  return nullptr;
}

uint64_t unix_nanoseconds() {
  timespec now{};
  ::clock_gettime(CLOCK_REALTIME, &now);
  return static_cast<uint64_t>(now.tv_sec) * 1'000'000'000ULL + static_cast<uint64_t>(now.tv_nsec);
}

uint32_t server_seconds(uint64_t unix_ns) {
  return static_cast<uint32_t>(unix_ns / 1'000'000'000ULL - uint64_t{kServerEpochSeconds});
}

uint64_t record_bytes(const Record& record) {
  uint64_t bytes = 35 + 4;
  if (record.void_time != 0) bytes += 4;
  if (record.set != nullptr) bytes += 1 + record.set->name.size();
  if (!record.key.empty()) bytes += varint_bytes(record.key.size()) + record.key.size();
  bytes += varint_bytes(record.bins.size());
  for (const Bin& bin : record.bins) bytes += 1 + uint64_t{bin.name.size} + value_bytes(bin);
  return bytes;
}

Table::~Table() {
  for (Record* record : records()) delete record;
}

// The low bytes choose the partition and are alike within a table; the bytes from 8 on are not.
uint64_t Table::hash_of(const wire::Digest& digest) {
  return load_le<uint64_t>(digest.data() + 8);
}

Record* Table::find(const wire::Digest& digest) const {
  if (mask_ == 0) return nullptr;
  for (uint64_t i = hash_of(digest) & mask_; slots_[i] != nullptr; i = (i + 1) & mask_) {
    if (slots_[i]->digest == digest) return slots_[i];
  }
  return nullptr;
}

void Table::grow() {
  const uint32_t old_capacity = mask_ == 0 ? 0 : mask_ + 1;
  const uint32_t capacity = old_capacity == 0 ? 4 : old_capacity * 2;
  auto old = std::move(slots_);
  slots_ = std::make_unique<Record*[]>(capacity);
  mask_ = capacity - 1;
  for (uint32_t i = 0; i < old_capacity; ++i) {
    if (old[i] == nullptr) continue;
    uint64_t at = hash_of(old[i]->digest) & mask_;
    while (slots_[at] != nullptr) at = (at + 1) & mask_;
    slots_[at] = old[i];
  }
}

void Table::insert(std::unique_ptr<Record> record) {
  if (mask_ == 0 || (count_ + 1) * 4 > (mask_ + 1) * 3) grow();
  uint64_t at = hash_of(record->digest) & mask_;
  while (slots_[at] != nullptr) at = (at + 1) & mask_;
  slots_[at] = record.release();
  ++count_;
}

std::unique_ptr<Record> Table::remove(const wire::Digest& digest) {
  if (mask_ == 0) return nullptr;
  uint64_t hole = hash_of(digest) & mask_;
  while (slots_[hole] != nullptr && slots_[hole]->digest != digest) hole = (hole + 1) & mask_;
  if (slots_[hole] == nullptr) return nullptr;
  std::unique_ptr<Record> removed(slots_[hole]);
  slots_[hole] = nullptr;
  --count_;
  // Close the gap: move back every later record of the run that the hole would cut off.
  for (uint64_t i = (hole + 1) & mask_; slots_[i] != nullptr; i = (i + 1) & mask_) {
    const uint64_t home = hash_of(slots_[i]->digest) & mask_;
    if (((i - home) & mask_) < ((i - hole) & mask_)) continue;
    slots_[hole] = slots_[i];
    slots_[i] = nullptr;
    hole = i;
  }
  return removed;
}

std::vector<Record*> Table::records() const {
  std::vector<Record*> found;
  found.reserve(count_);
  for (uint64_t i = 0; mask_ != 0 && i <= mask_; ++i) {
    if (slots_[i] != nullptr) found.push_back(slots_[i]);
  }
  return found;
}

Namespace::Namespace(const NamespaceOptions& options, int nodes, BufferPool& pool)
    : name_(options.name),
      pool_(pool),
      tables_(static_cast<size_t>(nodes) * kPartitionCount),
      locks_(std::make_unique<PaddedMutex[]>(kLockCount)),
      counters_(static_cast<size_t>(nodes)),
      settings_(static_cast<size_t>(nodes)),
      size_bytes_(options.size_bytes) {
  for (NamespaceSettings& s : settings_) {
    s.nsup_period_s = options.nsup_period_s;
    s.max_record_bytes = options.max_record_bytes;
    s.default_ttl_s = options.default_ttl_s;
    s.allow_ttl_without_nsup = options.allow_ttl_without_nsup;
  }
}

Set* Namespace::find_set(std::string_view name) {
  const std::shared_lock lock(sets_mutex_);
  const auto it = sets_by_name_.find(name);
  return it == sets_by_name_.end() ? nullptr : it->second;
}

Set* Namespace::find_or_add_set(std::string_view name) {
  if (Set* set = find_set(name)) return set;
  if (name.size() > kSetBytesMax) return nullptr;
  const std::unique_lock lock(sets_mutex_);
  const auto it = sets_by_name_.find(name);
  if (it != sets_by_name_.end()) return it->second;
  if (sets_.size() >= kSetsMax) return nullptr;
  Set& set = sets_.emplace_back();
  set.name = name;
  set.index = static_cast<uint32_t>(sets_.size());
  sets_by_name_.emplace(set.name, &set);
  return &set;
}

std::vector<Set*> Namespace::sets() {
  const std::shared_lock lock(sets_mutex_);
  std::vector<Set*> all;
  for (Set& set : sets_) all.push_back(&set);
  return all;
}

bool Namespace::is_truncated(const Record& record) const {
  if (record.updated_ns < truncate_ns.load(std::memory_order_relaxed)) return true;
  return record.set != nullptr &&
         record.updated_ns < record.set->truncate_ns.load(std::memory_order_relaxed);
}

bool Namespace::is_hidden(const Record& record, uint64_t now_ns) const {
  return (record.void_time != 0 && record.void_time <= server_seconds(now_ns)) ||
         is_truncated(record);
}

void Namespace::recount(int node, Record& record, uint32_t stored_bytes) {
  const int64_t change = int64_t{stored_bytes} - int64_t{record.stored_bytes};
  record.stored_bytes = stored_bytes;
  counters(node).used_bytes.fetch_add(change, std::memory_order_relaxed);
  if (record.set != nullptr) {
    record.set->bytes[static_cast<size_t>(node)].fetch_add(change, std::memory_order_relaxed);
  }
}

void Namespace::put_record(int node, uint32_t partition, std::unique_ptr<Record> record) {
  remove_record(node, partition, record->digest);
  record->stored_bytes = 0;
  recount(node, *record, static_cast<uint32_t>(rounded_up(record_bytes(*record))));
  counters(node).records.fetch_add(1, std::memory_order_relaxed);
  if (record->set != nullptr) {
    record->set->objects[static_cast<size_t>(node)].fetch_add(1, std::memory_order_relaxed);
  }
  table(node, partition).insert(std::move(record));
}

void Namespace::remove_record(int node, uint32_t partition, const wire::Digest& digest) {
  const std::unique_ptr<Record> removed = table(node, partition).remove(digest);
  if (removed == nullptr) return;
  recount(node, *removed, 0);
  counters(node).records.fetch_sub(1, std::memory_order_relaxed);
  if (removed->set != nullptr) {
    removed->set->objects[static_cast<size_t>(node)].fetch_sub(1, std::memory_order_relaxed);
  }
}

void Namespace::merge_record(const Record& record, uint32_t partition, int node) {
  const Record* own = table(node, partition).find(record.digest);
  const bool keeps_own = own != nullptr && (own->generation != record.generation
                                                ? own->generation > record.generation
                                                : own->updated_ns >= record.updated_ns);
  if (!keeps_own) put_record(node, partition, std::make_unique<Record>(record));
}

void Namespace::clear_partition(int node, uint32_t partition) {
  for (const Record* record : table(node, partition).records()) {
    const wire::Digest digest = record->digest;
    remove_record(node, partition, digest);
  }
}

void Namespace::clear_node(int node) {
  for (uint32_t partition = 0; partition < kPartitionCount; ++partition) {
    const std::scoped_lock lock(lock_of(partition));
    clear_partition(node, partition);
  }
}

void Namespace::reap(int node, bool expired) {
  for (uint32_t partition = 0; partition < kPartitionCount; ++partition) {
    const std::scoped_lock lock(lock_of(partition));
    if (table(node, partition).size() == 0) continue;
    const uint64_t now_ns = unix_nanoseconds();
    for (const Record* record : table(node, partition).records()) {
      const bool truncated = is_truncated(*record);
      if (!truncated && !(expired && is_hidden(*record, now_ns))) continue;
      if (!truncated) counters(node).expired.fetch_add(1, std::memory_order_relaxed);
      const wire::Digest digest = record->digest;
      remove_record(node, partition, digest);
    }
  }
}

}  // namespace aerokv::devserver
