// SPDX-License-Identifier: Apache-2.0
#include "store/admission.h"

#include <algorithm>

#include "base/log.h"
#include "store/context.h"
#include "store/discovery.h"
#include "store/object_put.h"
#include "wire/result.h"

namespace aerokv::store {
namespace {

// Twice what the nodes take at once is begun, and never less than this: the rest waits here, where
// it can be shed without a trace.
constexpr uint64_t kStartedBytesMin = 16 << 20;
// Objects of any size that are always begun: while one's meta record travels, the other's segments
// do.
constexpr size_t kStartedCountMin = 2;
// Planning a store takes about a microsecond for each of its records; more than so many at once
// would keep the thread from loads.
constexpr uint64_t kPlannedAtOnce = 64;

constexpr milliseconds kProbeInterval{500};

std::string text_of_bytes(uint64_t bytes) {
  return std::to_string(bytes) + " bytes";
}

}  // namespace

void Admission::submit(const std::shared_ptr<Batch>& batch) {
  std::vector<Entry> refused_full;
  std::vector<Entry> refused_stopped;
  std::vector<Entry> at_once;
  uint64_t records = 0;
  {
    const std::scoped_lock lock(mutex_);
    for (size_t i = 0; i < batch->size(); ++i) {
      Entry entry{batch, i, batch->item(i).payload.size()};
      if (const std::optional<ShedReason> reason = refuse(entry)) {
        auto& refused = *reason == ShedReason::queue_full ? refused_full : refused_stopped;
        refused.push_back(std::move(entry));
        continue;
      }
      records += 1 + entry.bytes / kTargetSegmentBytes;
      if (closed_) {
        started_bytes_ += entry.bytes;
        ++started_count_;
        at_once.push_back(std::move(entry));
      } else {
        waiting_bytes_ += entry.bytes;
        waiting_.push_back(std::move(entry));
      }
    }
    bytes_peak_ = std::max(bytes_peak_, waiting_bytes_ + started_bytes_);
  }
  shed(refused_full, ShedReason::queue_full);
  shed(refused_stopped, ShedReason::stop_writes);
  if (!at_once.empty()) return start(std::move(at_once));  // the closed client refuses them
  if (records >= kPlannedAtOnce) {
    post(&Admission::start_waiting);
  } else {
    start_waiting();
  }
  TimePoint expiry = TimePoint::max();
  {
    const std::scoped_lock lock(mutex_);
    if (waiting_.empty() || batch->deadline() >= expiry_) return;
    expiry = expiry_ = batch->deadline();
  }
  post(&Admission::expire, expiry);
}

std::optional<ShedReason> Admission::refuse(const Entry& entry) {
  if (closed_) return std::nullopt;
  const uint64_t bytes_max = context_.options.max_store_bytes_queued;
  const uint64_t bytes = waiting_bytes_ + started_bytes_;
  if (bytes > bytes_max || entry.bytes > bytes_max - bytes) return ShedReason::queue_full;
  if (!stopped_) return std::nullopt;
  if (!may_try_one_ || trial_) return ShedReason::stop_writes;
  may_try_one_ = false;
  trial_ = {entry.batch.get(), entry.index};
  return std::nullopt;
}

uint64_t Admission::started_bytes_max() const {
  uint64_t windows = 0;
  const std::shared_ptr<const client::ClusterMap> map = context_.client->map();
  for (const client::NodePtr& node : map->nodes) windows += node->stores.bytes();
  return std::max(kStartedBytesMin,
                  std::min(2 * windows, context_.options.max_bytes_in_flight / 2));
}

bool Admission::is_startable(uint64_t started_max) const {
  return !waiting_.empty() && (started_count_ < kStartedCountMin || started_bytes_ < started_max);
}

std::vector<Admission::Entry> Admission::take_startable(uint64_t started_max,
                                                        std::vector<Entry>& late) {
  std::vector<Entry> taken;
  const TimePoint now = SteadyClock::now();
  uint64_t records = 0;
  while (is_startable(started_max) && records < kPlannedAtOnce) {
    Entry entry = std::move(waiting_.front());
    waiting_.pop_front();
    waiting_bytes_ -= entry.bytes;
    if (entry.batch->deadline() <= now) {
      late.push_back(std::move(entry));
      continue;
    }
    started_bytes_ += entry.bytes;
    ++started_count_;
    records += 1 + entry.bytes / kTargetSegmentBytes;
    taken.push_back(std::move(entry));
  }
  return taken;
}

/// Begins what may be begun. Only one thread at a time does so: a store that ends at once, on the
/// same stack, leaves the next to the loop below.
void Admission::start_waiting() {
  const uint64_t started_max = started_bytes_max();
  std::unique_lock lock(mutex_);
  if (starting_) {
    again_ = true;
    return;
  }
  // Not one by one, but some when an eighth of what is begun has ended.
  if (started_count_ >= kStartedCountMin && started_bytes_ > started_max - started_max / 8) return;
  starting_ = true;
  do {
    again_ = false;
    std::vector<Entry> late;
    std::vector<Entry> taken = take_startable(started_max, late);
    lock.unlock();
    shed(late, ShedReason::deadline);
    start(std::move(taken));
    lock.lock();
  } while (again_ && is_startable(started_max));
  starting_ = false;
  const bool is_more = is_startable(started_max);
  lock.unlock();
  if (is_more) post(&Admission::start_waiting);
}

void Admission::start(std::vector<Entry> entries) {
  std::vector<client::Command*> commands;
  for (Entry& entry : entries) ObjectPut::start(std::move(entry.batch), entry.index, commands);
  if (!commands.empty()) context_.client->submit(commands);
}

void Admission::ended(const Batch& batch, size_t index, const Status& status) {
  bool is_over = false;
  bool is_more = false;
  {
    const std::scoped_lock lock(mutex_);
    started_bytes_ -= batch.item(index).payload.size();
    --started_count_;
    if (trial_ == std::pair(&batch, index)) {
      trial_.reset();
      is_over = status.ok();
    }
    is_more = !waiting_.empty();
  }
  if (is_over) resume();
  if (is_more) start_waiting();
}

void Admission::shed(const std::vector<Entry>& entries, ShedReason reason) {
  if (entries.empty()) return;
  const StoreOptions& options = context_.options;
  Status status;
  std::string remedy;
  switch (reason) {
    case ShedReason::queue_full:
      status = {Code::overloaded, "store: shed: max_store_bytes_queued (" +
                                      text_of_bytes(options.max_store_bytes_queued) +
                                      ") are waiting already"};
      remedy = "more is stored than the cluster takes: add nodes or devices";
      break;
    case ShedReason::stop_writes:
      status = {Code::overloaded, "store: shed: the namespace takes no more writes",
                wire::result::kOutOfSpace};
      break;
    case ShedReason::deadline:
      status = {Code::overloaded, "store: shed: the deadline passed before its turn came"};
      remedy =
          "more is stored than the cluster takes: add nodes or devices, or lower "
          "max_store_bytes_queued";
      break;
  }
  {
    const std::scoped_lock lock(mutex_);
    if (reason == ShedReason::stop_writes) shed_since_ += entries.size();
    for (const Entry& entry : entries) {
      if (trial_ == std::pair<const Batch*, size_t>(entry.batch.get(), entry.index)) trial_.reset();
    }
  }
  const uint64_t count = context_.count_shed(reason, entries.size());
  // Stop-writes has its own two lines.
  if (reason != ShedReason::stop_writes) {
    log(LogLevel::warning, std::string("shed ") + shed_reason_name(reason), [&] {
      return "namespace " + options.ns + ", set " + options.set_name + ": " + status.message() +
             "; " + std::to_string(count) + " so far; " + remedy;
    });
  }
  for (const Entry& entry : entries) entry.batch->shed(entry.index, status);
}

/// Sheds what has waited too long, though nothing ends that would give it its turn.
void Admission::expire() {
  std::vector<Entry> late;
  TimePoint next = TimePoint::max();
  {
    const std::scoped_lock lock(mutex_);
    const TimePoint now = SteadyClock::now();
    if (expiry_ > now) return;  // an earlier one has taken its place
    const auto is_late = [now](const Entry& entry) { return entry.batch->deadline() <= now; };
    for (const Entry& entry : waiting_) {
      if (is_late(entry)) {
        waiting_bytes_ -= entry.bytes;
        late.push_back(entry);
      } else {
        next = std::min(next, entry.batch->deadline());
      }
    }
    std::erase_if(waiting_, is_late);
    expiry_ = next;
  }
  shed(late, ShedReason::deadline);
  if (next != TimePoint::max()) post(&Admission::expire, next);
}

void Admission::stop_writes(const std::string& why) {
  std::vector<Entry> waiting;
  {
    const std::scoped_lock lock(mutex_);
    if (stopped_ || closed_) return;
    stopped_ = true;
    stopped_at_ = SteadyClock::now();
    node_says_so_ = may_try_one_ = false;
    shed_since_ = 0;
    waiting.assign(std::make_move_iterator(waiting_.begin()),
                   std::make_move_iterator(waiting_.end()));
    waiting_.clear();
    waiting_bytes_ = 0;
    probe_due_ = stopped_at_;
  }
  log(LogLevel::warning, "stop-writes",
      "namespace " + context_.options.ns + " takes no more writes: " + why +
          "; stores are shed until it does, loads and removals go on; give it room, or let "
          "objects live shorter (default_ttl_seconds)");
  shed(waiting, ShedReason::stop_writes);
  post(&Admission::probe);  // it may have been one record of one device
}

/// Asks the nodes; where they never said that they had stopped, the next store has to tell.
void Admission::probe() {
  TimePoint due;
  {
    const std::scoped_lock lock(mutex_);
    const TimePoint now = SteadyClock::now();
    // Of an earlier stop there may be one that has yet to come.
    if (!stopped_ || closed_ || now < probe_due_) return;
    due = probe_due_ = now + kProbeInterval;
  }
  const std::shared_ptr<Context> context = context_.shared_from_this();
  ask_stop_writes(context, [weak = std::weak_ptr(context)](std::optional<bool> is_stopped) {
    if (const std::shared_ptr<Context> alive = weak.lock()) alive->admission.probed(is_stopped);
  });
  post(&Admission::probe, due);
}

void Admission::probed(std::optional<bool> is_stopped) {
  {
    const std::scoped_lock lock(mutex_);
    if (!stopped_ || !is_stopped) return;
    node_says_so_ |= *is_stopped;
    if (*is_stopped || !node_says_so_) {
      may_try_one_ = !*is_stopped;
      return;
    }
  }
  resume();
}

void Admission::resume() {
  uint64_t count = 0;
  Duration time{};
  {
    const std::scoped_lock lock(mutex_);
    if (!stopped_) return;
    stopped_ = may_try_one_ = false;
    trial_.reset();
    count = shed_since_;
    time = SteadyClock::now() - stopped_at_;
  }
  log(LogLevel::warning, "stop-writes over",
      "namespace " + context_.options.ns + " takes stores again, after " +
          std::to_string(std::chrono::duration_cast<std::chrono::seconds>(time).count()) + " s; " +
          std::to_string(count) + " were shed");
}

void Admission::close() {
  std::deque<Entry> waiting;
  {
    const std::scoped_lock lock(mutex_);
    closed_ = true;
    waiting.swap(waiting_);
    waiting_bytes_ = 0;
  }
  for (const Entry& entry : waiting) {
    ItemResult result;
    result.status = {Code::closed, "store: the store was closed"};
    entry.batch->finish(entry.index, std::move(result));
  }
}

Admission::Snapshot Admission::snapshot() const {
  const std::scoped_lock lock(mutex_);
  return {waiting_bytes_ + started_bytes_, bytes_peak_, stopped_};
}

/// Does `step` on an I/O thread, unless the store has ended by then.
void Admission::post(void (Admission::*step)(), TimePoint due) {
  context_.client->post(
      [weak = context_.weak_from_this(), step] {
        if (const std::shared_ptr<Context> alive = weak.lock()) (alive->admission.*step)();
      },
      due);
}

}  // namespace aerokv::store
