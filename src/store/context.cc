// SPDX-License-Identifier: Apache-2.0
#include "store/context.h"

#include "store/orphans.h"
#include "store/outcome_log.h"

namespace aerokv::store {

uint64_t DamagedKeys::identity(const wire::Digest& digest) {
  return load_be<uint64_t>(digest.data() + 8);
}

void DamagedKeys::add(const wire::Digest& meta) {
  const std::scoped_lock lock(mutex_);
  if (keys_.size() >= kKeysMax) keys_.clear();
  keys_.insert(identity(meta));
  count_.store(keys_.size());
}

void DamagedKeys::remove(const wire::Digest& meta) {
  if (count_.load() == 0) return;
  const std::scoped_lock lock(mutex_);
  keys_.erase(identity(meta));
  count_.store(keys_.size());
}

bool DamagedKeys::contains(const wire::Digest& meta) const {
  if (count_.load() == 0) return false;
  const std::scoped_lock lock(mutex_);
  return keys_.contains(identity(meta));
}

namespace {

/// Hashes user keys that were appended to one text, `ends` marking where each one ends.
std::vector<wire::Digest> digests_of(std::string_view set, std::string_view text,
                                     const std::vector<size_t>& ends) {
  std::vector<std::string_view> keys;
  keys.reserve(ends.size());
  size_t begin = 0;
  for (const size_t end : ends) {
    keys.push_back(text.substr(begin, end - begin));
    begin = end;
  }
  std::vector<wire::Digest> digests(keys.size());
  wire::compute_digests(set, keys, digests);
  return digests;
}

}  // namespace

std::vector<wire::Digest> Context::segment_digests(std::string_view key, uint32_t count) const {
  std::string text;
  std::vector<size_t> ends;
  text.reserve(count * (key.size() + 8));
  ends.reserve(count);
  for (uint32_t i = 0; i < count; ++i) {
    text += segment_user_key(key, i);
    ends.push_back(text.size());
  }
  return digests_of(options.set_name, text, ends);
}

std::vector<wire::Digest> Batch::meta_digests(size_t from, size_t to) const {
  std::string text;
  std::vector<size_t> ends;
  text.reserve((to - from) * 128);
  ends.reserve(to - from);
  for (size_t i = from; i < to; ++i) {
    text += meta_user_key(items_[i].key);
    ends.push_back(text.size());
  }
  return digests_of(context_->options.set_name, text, ends);
}

std::shared_ptr<const NamespaceLimits> Context::limits() const {
  const std::scoped_lock lock(mutex_);
  return limits_;
}

void Context::set_limits(std::shared_ptr<const NamespaceLimits> limits) {
  const std::scoped_lock lock(mutex_);
  limits_ = std::move(limits);
}

bool Context::begin_limits_refresh(Duration interval) {
  const TimePoint now = SteadyClock::now();
  const std::scoped_lock lock(mutex_);
  if (refreshed_at_ != TimePoint{} && now - refreshed_at_ < interval) return false;
  refreshed_at_ = now;
  return true;
}

uint32_t Context::wire_ttl(int64_t ttl_seconds) {
  return static_cast<uint32_t>(ttl_seconds);
}

uint32_t Context::segment_wire_ttl(int64_t ttl_seconds) const {
  if (ttl_seconds == 0) ttl_seconds = limits()->default_ttl_seconds;
  if (ttl_seconds <= 0) return wire_ttl(ttl_seconds);
  return static_cast<uint32_t>(
      std::min<int64_t>(kTtlSecondsMax, ttl_seconds + options.segment_ttl_grace_seconds));
}

Batch::Batch(std::shared_ptr<Context> context, Operation operation, std::vector<Item> items,
             TimePoint deadline, BatchDone done)
    : context_(std::move(context)),
      operation_(operation),
      items_(std::move(items)),
      deadline_(deadline),
      done_(std::move(done)),
      results_(items_.size()),
      left_(items_.size()) {
  for (const Item& item : items_) payload_bytes_ += item.target.size() + item.payload.size();
  open_bytes().fetch_add(payload_bytes_, std::memory_order_relaxed);
  context_->counters.of(operation_).begun.fetch_add(items_.size(), std::memory_order_relaxed);
}

std::atomic<uint64_t>& Batch::open_bytes() const {
  return operation_ == Operation::put ? context_->open_store_bytes : context_->open_load_bytes;
}

void Batch::finish(size_t index, ItemResult result) {
  if (result.outcome == Outcome::error) log_error(context_->options, operation_, result.status);
  set_result(index, std::move(result));
}

void Batch::shed(size_t index, Status why) {
  ItemResult result;
  result.status = std::move(why);
  set_result(index, std::move(result));
}

void Batch::set_result(size_t index, ItemResult result) {
  Counters::PerOperation& counter = context_->counters.of(operation_);
  counter.items.fetch_add(1, std::memory_order_relaxed);
  if (result.outcome == Outcome::hit) {
    counter.bytes.fetch_add(result.bytes, std::memory_order_relaxed);
  } else if (result.outcome == Outcome::error) {
    const auto code = static_cast<size_t>(result.status.code());
    counter.errors_by_code[code].fetch_add(1, std::memory_order_relaxed);
  }
  std::atomic<uint64_t>& outcome = result.outcome == Outcome::hit    ? counter.hits
                                   : result.outcome == Outcome::miss ? counter.misses
                                                                     : counter.errors;
  outcome.fetch_add(1, std::memory_order_relaxed);
  results_[index] = std::move(result);
  // acq_rel: the thread that takes the last one sees every result and every received byte.
  if (left_.fetch_sub(1, std::memory_order_acq_rel) > 1) return;
  std::vector<Orphans> orphans;
  for (const auto& [item_index, first] : overwrites_) {
    orphans.push_back({items_[item_index].key, first});
  }
  if (orphans.empty()) return report();
  remove_orphans(context_, orphans, deadline_, [self = shared_from_this()] { self->report(); });
}

void Batch::note_overwrite(size_t index, uint32_t first_orphan) {
  const std::scoped_lock lock(mutex_);
  overwrites_.emplace_back(index, first_orphan);
}

void Batch::report() {
  open_bytes().fetch_sub(payload_bytes_, std::memory_order_relaxed);
  const auto took =
      std::chrono::duration_cast<std::chrono::microseconds>(SteadyClock::now() - begun_);
  context_->counters.of(operation_).batch_microseconds.add(static_cast<uint64_t>(took.count()));
  const BatchDone done = std::move(done_);
  done(std::move(results_));
}

}  // namespace aerokv::store
