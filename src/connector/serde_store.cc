// SPDX-License-Identifier: Apache-2.0
#include "connector/serde_store.h"

#include <algorithm>
#include <array>
#include <thread>
#include <utility>

#include "base/limits.h"
#include "store/outcome_log.h"

namespace aerokv {
namespace {

// Small neighbours share a request batch and a task; an object of this size has its own.
constexpr uint64_t kGroupBytes = 1 << 20;
constexpr size_t kGroupItemsMax = 64;

constexpr uint64_t kIdleScratchBytesMax = 128 << 20;

// Frames of one scratch buffer lie cache lines apart.
constexpr uint64_t kAlignment = 64;

uint64_t aligned(uint64_t bytes) {
  return (bytes + kAlignment - 1) / kAlignment * kAlignment;
}

constexpr size_t index_of(Operation operation) {
  return static_cast<size_t>(operation);
}

/// What a transform says, also if it throws: a pool's thread must not take the process down.
template <typename T, typename Transform>
T guarded(const Transform& transform) {
  try {
    return transform();
  } catch (const std::exception& error) {
    return Status(Code::internal, std::string("serde: ") + error.what());
  } catch (...) {
    return Status(Code::internal, "serde: an exception of unknown type");
  }
}

}  // namespace

/// A submitted batch; its groups report item by item, from any thread.
class SerdeStore::OpenBatch {
 public:
  OpenBatch(std::vector<Item> submitted, TimePoint deadline, BatchDone done)
      : items(std::move(submitted)),
        due(deadline),
        done_(std::move(done)),
        results_(items.size()),
        left_(items.size()) {}

  void finish(size_t index, ItemResult result) {
    results_[index] = std::move(result);
    // acq_rel: the thread that takes the last one sees every result and every decoded byte.
    if (left_.fetch_sub(1, std::memory_order_acq_rel) > 1) return;
    const BatchDone done = std::move(done_);
    done(std::exchange(results_, {}));
  }
  void fail(size_t index, Status status) {
    ItemResult result;
    result.status = std::move(status);
    finish(index, std::move(result));
  }

  const std::vector<Item> items;
  const TimePoint due;

 private:
  BatchDone done_;
  std::vector<ItemResult> results_;
  std::atomic<size_t> left_;
};

/// Neighbours of one batch that go the way together. Lives until its last item was reported.
class SerdeStore::Group : public std::enable_shared_from_this<Group> {
 public:
  Group(SerdeStore& store, std::shared_ptr<OpenBatch> batch, Operation operation)
      : store_(store), batch_(std::move(batch)), operation_(operation) {}
  virtual ~Group() = default;

  struct Member {
    size_t index;     // in the batch
    uint64_t offset;  // of its encoded bytes in the scratch buffer
    uint64_t bytes_max;
  };

  void add(size_t index, uint64_t bytes_max, uint64_t raw_bytes) {
    members_.push_back({index, bytes_, bytes_max});
    bytes_ += aligned(bytes_max);
    raw_bytes_ += raw_bytes;
  }
  [[nodiscard]] bool is_store() const { return operation_ == Operation::put; }
  [[nodiscard]] uint64_t raw_bytes() const { return raw_bytes_; }
  [[nodiscard]] uint64_t bytes() const { return bytes_; }
  [[nodiscard]] size_t size() const { return members_.size(); }
  [[nodiscard]] bool is_late() const { return SteadyClock::now() >= batch_->due; }

  /// Begins; the bytes of the group are counted as used until it calls release().
  virtual void start() = 0;

  /// Ends what was never started.
  void fail_all(const Status& status) {
    if (is_store()) store_.release_store(raw_bytes_);
    for (const Member& member : members_) batch_->fail(member.index, status);
  }

 protected:
  [[nodiscard]] const Item& item(const Member& member) const { return batch_->items[member.index]; }
  [[nodiscard]] MutableBytes frame(const Member& member) const {
    return {loan_.data() + member.offset, static_cast<size_t>(member.bytes_max)};
  }
  Status borrow() {
    loan_ = store_.scratch_.borrow(bytes_);
    if (loan_.data() != nullptr) return {};
    return {Code::overloaded, "serde: no memory for " + std::to_string(bytes_) + " encoded bytes"};
  }
  void release() { store_.release(*this, std::move(loan_)); }

  SerdeStore& store_;
  const std::shared_ptr<OpenBatch> batch_;
  std::vector<Member> members_;
  serde::ScratchPool::Loan loan_;

 private:
  const Operation operation_;
  uint64_t bytes_ = 0;
  uint64_t raw_bytes_ = 0;
};

/// Encodes, then stores.
class SerdeStore::PutGroup final : public Group {
 public:
  using Group::Group;

  void start() override {
    encoded_.resize(members_.size(), Status(Code::closed, "store: the store was closed"));
    auto task = std::make_shared<Encoding>(std::static_pointer_cast<PutGroup>(shared_from_this()));
    if (store_.pool_->post(task).ok()) return;
    stored();  // the pool is closed: nothing was encoded
  }

 private:
  class Encoding final : public serde::PoolTask {
   public:
    explicit Encoding(std::shared_ptr<PutGroup> group)
        : PoolTask(group->members_.size()), group_(std::move(group)) {}
    void run(size_t unit, Parallel& parallel) noexcept override {
      std::call_once(once_, [this] { borrowed_ = group_->borrow(); });
      group_->encode(unit, borrowed_, parallel);
    }
    void cancel(size_t) noexcept override {}
    void finish() noexcept override { group_->stored(); }

   private:
    const std::shared_ptr<PutGroup> group_;
    std::once_flag once_;
    Status borrowed_;  // set under once_
  };

  void encode(size_t unit, const Status& borrowed, Parallel& parallel) {
    if (!borrowed) {
      encoded_[unit] = borrowed;
      return;
    }
    const Item& source = item(members_[unit]);
    const Layout layout = store_.layout_of(source.payload.size());
    encoded_[unit] = guarded<Result<size_t>>([&] {
      return store_.serde_.serializer->serialize({layout, source.payload}, frame(members_[unit]),
                                                 serde_key_of(source.key), parallel);
    });
  }

  /// Stores what was encoded.
  void stored() {
    std::vector<Item> items;
    std::vector<size_t> units;
    for (size_t i = 0; i < members_.size(); ++i) {
      if (!encoded_[i]) continue;
      Item out = item(members_[i]);
      out.raw_bytes = out.payload.size();
      out.payload = frame(members_[i]).first(*encoded_[i]);
      out.serde = store_.serde_.tag;
      items.push_back(std::move(out));
      units.push_back(i);
    }
    if (items.empty()) return report({}, units);
    store_.inner_->submit(
        Operation::put, std::move(items),
        [self = std::static_pointer_cast<PutGroup>(shared_from_this()),
         units](std::vector<ItemResult> results) { self->report(std::move(results), units); },
        batch_->due);
  }

  void report(std::vector<ItemResult> results, const std::vector<size_t>& units) {
    release();  // before the batch may report: after that the store may end
    for (size_t i = 0; i < members_.size(); ++i) {
      if (!encoded_[i]) store_.count_refused(Operation::put, encoded_[i].error());
    }
    for (size_t i = 0; i < results.size(); ++i) {
      const Member& member = members_[units[i]];
      if (results[i].outcome == Outcome::hit) results[i].bytes = item(member).payload.size();
      batch_->finish(member.index, std::move(results[i]));
    }
    for (size_t i = 0; i < members_.size(); ++i) {
      if (!encoded_[i]) batch_->fail(members_[i].index, encoded_[i].error());
    }
  }

  std::vector<Result<size_t>> encoded_;  // one for each member
};

/// Loads, then decodes.
class SerdeStore::GetGroup final : public Group {
 public:
  using Group::Group;

  void start() override {
    if (const Status borrowed = borrow(); !borrowed) {
      results_.resize(members_.size());
      for (ItemResult& result : results_) result.status = borrowed;
      return report();
    }
    std::vector<Item> items;
    for (const Member& member : members_) {
      Item& out = items.emplace_back();
      out.key = item(member).key;
      out.target = frame(member);
      out.serde = store_.serde_.tag;
      out.size_is_unknown = !store_.serde_.serializer->is_exact_size();
    }
    store_.inner_->submit(
        Operation::get, std::move(items),
        [self = std::static_pointer_cast<GetGroup>(shared_from_this())](
            std::vector<ItemResult> results) { self->loaded(std::move(results)); },
        batch_->due);
  }

 private:
  class Decoding final : public serde::PoolTask {
   public:
    explicit Decoding(std::shared_ptr<GetGroup> group)
        : PoolTask(group->hits_.size()), group_(std::move(group)) {}
    void run(size_t unit, Parallel& parallel) noexcept override { group_->decode(unit, parallel); }
    void cancel(size_t first) noexcept override { group_->cancel(first); }
    void finish() noexcept override { group_->report(); }

   private:
    const std::shared_ptr<GetGroup> group_;
  };

  void loaded(std::vector<ItemResult> results) {
    results_ = std::move(results);
    for (size_t i = 0; i < results_.size(); ++i) {
      ItemResult& result = results_[i];
      if (result.outcome == Outcome::hit && result.raw_bytes <= item(members_[i]).target.size()) {
        hits_.push_back(i);
      } else if (result.outcome == Outcome::hit) {
        refuse(result, MissReason::too_large,
               {Code::corruption, "load: the object has " + std::to_string(result.raw_bytes) +
                                      " bytes, the buffer " +
                                      std::to_string(item(members_[i]).target.size())});
        result.bytes = result.raw_bytes;
      } else if (result.bytes > 0) {
        result.bytes = result.raw_bytes;
      }
    }
    if (hits_.empty()) return report();
    auto task = std::make_shared<Decoding>(std::static_pointer_cast<GetGroup>(shared_from_this()));
    if (store_.pool_->post(task).ok()) return;
    cancel(0);
    report();
  }

  void decode(size_t unit, Parallel& parallel) {
    ItemResult& result = results_[hits_[unit]];
    const Member& member = members_[hits_[unit]];
    const uint64_t raw = result.raw_bytes;
    const Layout layout = store_.layout_of(raw);
    Status status;
    if (raw % dtype_bytes(store_.dtype_) != 0) {
      status = {Code::corruption, std::to_string(raw) + " bytes are no whole number of " +
                                      std::string(dtype_name(store_.dtype_)) + " elements"};
    } else {
      status = guarded<Status>([&] {
        return store_.serde_.deserializer->deserialize(
            frame(member).first(static_cast<size_t>(result.bytes)),
            {layout, item(member).target.first(static_cast<size_t>(raw))},
            serde_key_of(item(member).key), parallel);
      });
    }
    if (status.ok()) {
      result.bytes = raw;
      return;
    }
    refuse(result, MissReason::undecodable, status.with_context("load"));
    store_.inner_->report_damaged(item(member).key);
  }

  void refuse(ItemResult& result, MissReason reason, Status why) {
    auto& counter = reason == MissReason::too_large ? store_.too_large_ : store_.undecodable_;
    counter.fetch_add(1, std::memory_order_release);
    store::log_miss(store_.options(), reason, why);
    result.outcome = Outcome::miss;
    result.bytes = 0;
    result.status = std::move(why);
  }

  void cancel(size_t first) {
    for (size_t i = first; i < hits_.size(); ++i) {
      results_[hits_[i]] = {};
      results_[hits_[i]].status = {Code::closed, "load: the store was closed"};
    }
  }

  void report() {
    release();  // before the batch may report: after that the store may end
    for (size_t i = 0; i < members_.size(); ++i) {
      batch_->finish(members_[i].index, std::move(results_[i]));
    }
  }

  std::vector<ItemResult> results_;  // one for each member
  std::vector<size_t> hits_;         // members to decode
};

SerdeStore::SerdeStore(std::unique_ptr<Store> inner, Serde serde, DType dtype,
                       std::unique_ptr<serde::WorkerPool> pool)
    : inner_(std::move(inner)),
      serde_(std::move(serde)),
      dtype_(dtype),
      bytes_max_(inner_->options().max_bytes_in_flight),
      scratch_(std::min(kIdleScratchBytesMax, bytes_max_)),
      pool_(std::move(pool)) {}

SerdeStore::~SerdeStore() {
  close();
}

void SerdeStore::close() {
  std::deque<std::shared_ptr<Group>> waiting;
  {
    const std::scoped_lock lock(mutex_);
    closed_ = true;
    waiting.swap(waiting_loads_);
    waiting.insert(waiting.end(), waiting_stores_.begin(), waiting_stores_.end());
    waiting_stores_.clear();
  }
  for (const auto& group : waiting) {
    group->fail_all({Code::closed, "the store was closed"});
  }
  inner_->close();
  pool_->close();
}

Layout SerdeStore::layout_of(uint64_t raw_bytes) const {
  return {{dtype_, {static_cast<int64_t>(raw_bytes / dtype_bytes(dtype_))}}};
}

Result<uint64_t> SerdeStore::encoded_bytes_max(uint64_t raw_bytes) const {
  if (raw_bytes % dtype_bytes(dtype_) != 0) {
    return Status(Code::invalid, std::to_string(raw_bytes) + " bytes, expected a multiple of " +
                                     std::to_string(dtype_bytes(dtype_)) + " for dtype " +
                                     std::string(dtype_name(dtype_)));
  }
  if (raw_bytes > kChunkBytesMax) {
    return Status(Code::invalid, "more than " + std::to_string(kChunkBytesMax) + " bytes");
  }
  const Result<size_t> bytes = serde_.serializer->estimate_serialized_size(layout_of(raw_bytes));
  if (!bytes) return bytes.error();
  return *bytes;
}

void SerdeStore::submit(Operation operation, std::vector<Item> items, BatchDone done,
                        std::optional<TimePoint> end) {
  if ((operation != Operation::get && operation != Operation::put) || items.empty()) {
    return inner_->submit(operation, std::move(items), std::move(done), end);
  }
  TimePoint due = inner_->deadline(operation, items);
  if (end) due = std::min(due, *end);
  const auto batch = std::make_shared<OpenBatch>(std::move(items), due, std::move(done));
  std::vector<std::pair<size_t, Status>> refused;
  std::vector<std::shared_ptr<Group>> groups;
  uint64_t raw_in_group = 0;
  for (size_t i = 0; i < batch->items.size(); ++i) {
    const Item& item = batch->items[i];
    const uint64_t raw = operation == Operation::put ? item.payload.size() : item.target.size();
    const Result<uint64_t> bytes_max = encoded_bytes_max(raw);
    if (!bytes_max) {
      refused.emplace_back(i, bytes_max.error().with_context("item " + std::to_string(i)));
      continue;
    }
    if (operation == Operation::put && !reserve_store(raw)) {
      refused.emplace_back(
          i, Status(Code::overloaded, "store: shed: max_store_bytes_queued are waiting already"));
      continue;
    }
    if (groups.empty() || raw_in_group >= kGroupBytes || groups.back()->size() >= kGroupItemsMax) {
      raw_in_group = 0;
      if (operation == Operation::put) {
        groups.push_back(std::make_shared<PutGroup>(*this, batch, operation));
      } else {
        groups.push_back(std::make_shared<GetGroup>(*this, batch, operation));
      }
    }
    groups.back()->add(i, *bytes_max, raw);
    raw_in_group += raw;
  }
  for (auto& [index, status] : refused) {
    count_refused(operation, status);
    batch->fail(index, std::move(status));
  }
  for (std::shared_ptr<Group>& group : groups) admit(std::move(group));
}

void SerdeStore::admit(std::shared_ptr<Group> group) {
  {
    const std::scoped_lock lock(mutex_);
    if (!closed_) {
      (group->is_store() ? waiting_stores_ : waiting_loads_).push_back(std::move(group));
      group = nullptr;
    }
  }
  if (group != nullptr) return group->fail_all({Code::closed, "the store is closed"});
  start_waiting();
}

bool SerdeStore::reserve_store(uint64_t raw_bytes) {
  const uint64_t bytes_max = options().max_store_bytes_queued;
  const std::scoped_lock lock(mutex_);
  if (raw_bytes > bytes_max || store_raw_bytes_ > bytes_max - raw_bytes) {
    shed_[static_cast<size_t>(ShedReason::queue_full)].fetch_add(1, std::memory_order_relaxed);
    return false;
  }
  store_raw_bytes_ += raw_bytes;
  store_raw_bytes_peak_ = std::max(store_raw_bytes_peak_, store_raw_bytes_);
  return true;
}

void SerdeStore::release_store(uint64_t raw_bytes) {
  const std::scoped_lock lock(mutex_);
  store_raw_bytes_ -= raw_bytes;
}

/// The next group that fits, if any: loads first, and stores in half of the budget; one of each
/// kind that is larger goes alone. Requires mutex_.
std::shared_ptr<SerdeStore::Group> SerdeStore::take_startable() {
  const uint64_t used = load_bytes_ + store_bytes_;
  const auto take = [](auto& waiting) {
    std::shared_ptr<Group> group = std::move(waiting.front());
    waiting.pop_front();
    return group;
  };
  if (!waiting_loads_.empty()) {
    const uint64_t bytes = waiting_loads_.front()->bytes();
    if (load_bytes_ == 0 || used + bytes <= bytes_max_) return take(waiting_loads_);
  }
  if (waiting_stores_.empty()) return nullptr;
  const uint64_t bytes = waiting_stores_.front()->bytes();
  const bool fits = store_bytes_ + bytes <= bytes_max_ / 2 && used + bytes <= bytes_max_;
  return store_bytes_ == 0 || fits ? take(waiting_stores_) : nullptr;
}

/// Starts groups while they fit. Only one thread at a time does so: a group that ends at once, on
/// the same stack, leaves the next to the loop below.
void SerdeStore::start_waiting() {
  std::unique_lock lock(mutex_);
  if (starting_) return;
  starting_ = true;
  while (const std::shared_ptr<Group> group = take_startable()) {
    const bool late = group->is_late();
    if (!late) (group->is_store() ? store_bytes_ : load_bytes_) += group->bytes();
    lock.unlock();
    if (late) {
      end_late(*group);
    } else {
      group->start();
    }
    lock.lock();
  }
  starting_ = false;
}

void SerdeStore::end_late(Group& group) {
  Status status(group.is_store() ? Code::overloaded : Code::timeout,
                "the deadline passed before the object's turn came");
  if (group.is_store()) {
    status = status.with_context("store: shed");
    shed_[static_cast<size_t>(ShedReason::deadline)].fetch_add(group.size(),
                                                               std::memory_order_relaxed);
  }
  for (size_t i = 0; i < group.size(); ++i) {
    count_refused(group.is_store() ? Operation::put : Operation::get, status);
  }
  group.fail_all(status);
}

void SerdeStore::release(Group& group, serde::ScratchPool::Loan loan) {
  scratch_.give_back(std::move(loan));
  {
    const std::scoped_lock lock(mutex_);
    (group.is_store() ? store_bytes_ : load_bytes_) -= group.bytes();
    if (group.is_store()) store_raw_bytes_ -= group.raw_bytes();
  }
  start_waiting();
}

void SerdeStore::count_refused(Operation operation, const Status& status) {
  refused_[index_of(operation)][static_cast<size_t>(status.code())].fetch_add(
      1, std::memory_order_relaxed);
  store::log_error(options(), operation, status);
}

StoreStats SerdeStore::stats() const {
  // Before the hits, of which these are a part: an object that is decoded meanwhile must not be
  // taken away without having been counted.
  const uint64_t undecodable = undecodable_.load(std::memory_order_acquire);
  const uint64_t too_large = too_large_.load(std::memory_order_acquire);
  StoreStats stats = inner_->stats();
  for (size_t i = 0; i < kOperations; ++i) {
    for (size_t code = 0; code < kCodes; ++code) {
      const uint64_t refused = refused_[i][code].load(std::memory_order_relaxed);
      stats.operations[i].items += refused;
      stats.operations[i].errors += refused;
      stats.operations[i].errors_by_code[code] += refused;
    }
  }
  for (size_t i = 0; i < kShedReasons; ++i) {
    stats.stores_shed_by_reason[i] += shed_[i].load(std::memory_order_relaxed);
  }
  {
    // What waits is held as the caller has it, not as the inner store does.
    const std::scoped_lock lock(mutex_);
    stats.store_bytes_queued = store_raw_bytes_;
    stats.store_bytes_queued_peak = store_raw_bytes_peak_;
  }
  StoreStats::PerOperation& gets = stats.operations[index_of(Operation::get)];
  gets.hits -= undecodable + too_large;
  gets.misses += undecodable + too_large;
  stats.misses_by_reason[static_cast<size_t>(MissReason::undecodable)] += undecodable;
  stats.misses_by_reason[static_cast<size_t>(MissReason::too_large)] += too_large;
  return stats;
}

}  // namespace aerokv
