// SPDX-License-Identifier: Apache-2.0
#include "tests/chaos/traffic.h"

#include <poll.h>

#include <algorithm>
#include <future>
#include <mutex>
#include <utility>

#include "aerokv/serde_store.h"

namespace aerokv::chaos {
namespace {

using std::chrono::duration_cast;
using std::chrono::milliseconds;
using testing::kSlowness;

// A batch that ends behind its deadline by more than this is late: the time is for a busy machine.
constexpr milliseconds kMargin{400 * kSlowness};
constexpr int kFailuresMax = 2;  // of one key, without a success between them
constexpr size_t kGuardBytes = 64;
constexpr std::byte kGuard{0xC5};

size_t index_of(Operation operation) {
  return static_cast<size_t>(operation);
}

}  // namespace

void Counts::add(const Counts& other) {
  for (size_t i = 0; i < kOperations; ++i) {
    hits[i] += other.hits[i];
    misses[i] += other.misses[i];
    errors[i] += other.errors[i];
  }
  for (size_t i = 0; i < kCodes; ++i) codes[i] += other.codes[i];
  batches += other.batches;
  calm_checks += other.calm_checks;
  late_ms_max = std::max(late_ms_max, other.late_ms_max);
  opened += other.opened;
  not_opened += other.not_opened;
}

Worker::Worker(Profile profile, uint64_t seed, Stage& stage, Model& model, Problems& problems,
               Wrap wrap)
    : profile_(std::move(profile)),
      random_(seed),
      stage_(stage),
      model_(model),
      problems_(problems),
      wrap_(std::move(wrap)) {}

Worker::~Worker() {
  stop();
  join();
}

void Worker::start() {
  thread_ = std::thread([this] { run(); });
}

void Worker::join() {
  if (thread_.joinable()) thread_.join();
}

bool Worker::open() {
  StoreOptions options = stage_.options();
  options.set_name = model_.set();
  if (profile_.adapt) profile_.adapt(options);
  Result<std::unique_ptr<Store>> store =
      profile_.serde ? open_serde_store(options, *profile_.serde) : Store::open(options);
  if (!store) {
    ++counts_.not_opened;
    if (stage_.calm() != 0) problem("open in calm weather: " + store.error().message());
    return false;
  }
  ++counts_.opened;
  std::shared_ptr<Store> shared = *std::move(store);
  if (wrap_) shared = wrap_(std::move(shared), stage_);
  Result<std::unique_ptr<Connector>> connector = Connector::create(shared);
  if (!connector) {
    problem("connector: " + connector.error().message());
    return false;
  }
  connector_ = *std::move(connector);
  stage_.join(std::move(shared));
  reopen_at_ = Clock::now() + milliseconds(random_.between(700, 1500));
  return true;
}

void Worker::close() {
  if (!connector_) return;
  stage_.leave(connector_->store().get());
  if (stranded_) return abandon({});
  std::future<void> closed =
      std::async(std::launch::async, [connector = connector_.get()] { connector->close(); });
  if (closed.wait_for(profile_.stranded_after) != std::future_status::ready) {
    stranded_ = true;
    problem("close() does not return: a batch is stranded");
    return abandon(std::move(closed));
  }
  drain(true);
  for (Slot& slot : slots_) {
    if (slot.id) problem("batch " + std::to_string(*slot.id) + " did not end by close()");
    slot.id.reset();
  }
  connector_.reset();
}

/// A connector waits for all its batches; one that lost a batch is left alone with its memory.
void Worker::abandon(std::future<void> closed) {
  struct Abandoned {
    std::unique_ptr<Connector> connector;
    std::array<Slot, kSlots> slots;
    std::future<void> closed;
  };
  static std::mutex mutex;
  static auto& graveyard = *new std::vector<Abandoned>;
  const std::scoped_lock lock(mutex);
  graveyard.push_back({std::move(connector_), std::move(slots_), std::move(closed)});
}

size_t Worker::open_slots() const {
  return static_cast<size_t>(
      std::count_if(slots_.begin(), slots_.end(), [](const Slot& slot) { return !!slot.id; }));
}

void Worker::run() {
  while (!stopping_ && !problems_.any()) {
    if (!connector_ && !open()) {
      std::this_thread::sleep_for(milliseconds(20));
      continue;
    }
    const auto free =
        std::find_if(slots_.begin(), slots_.end(), [](const Slot& slot) { return !slot.id; });
    if (free != slots_.end() && !stranded_) submit_something(*free);
    // Users that never rest would only show how busy this machine is.
    pollfd fd{connector_->event_fd(), POLLIN, 0};
    ::poll(&fd, 1, static_cast<int>(random_.between(1, 12)));
    drain(false);
    check_stranded();
    if (profile_.reopens && Clock::now() >= reopen_at_) close();
  }
  const auto end = Clock::now() + profile_.stranded_after;
  while (connector_ && open_slots() > 0 && Clock::now() < end && !problems_.any()) {
    pollfd fd{connector_->event_fd(), POLLIN, 0};
    ::poll(&fd, 1, 10);
    drain(false);
    check_stranded();
  }
  if (connector_ && !problems_.any()) check_idle();
  close();
}

void Worker::choose_keys(uint64_t max) {
  keys_.clear();
  const size_t count = random_.between(1, max);
  while (keys_.size() < count) {
    const size_t key = random_.below(model_.size());
    if (std::find(keys_.begin(), keys_.end(), key) == keys_.end()) keys_.push_back(key);
  }
}

Item Worker::prepare(Slot& slot, size_t index, size_t key) {
  Item item;
  item.key = model_.name(key);
  switch (slot.operation) {
    case Operation::put: {
      slot.mutations.push_back(model_.begin_put(key, stage_.calm()));
      const uint64_t version = slot.mutations.back().version;
      std::vector<std::byte>& buffer = slot.buffers[index];
      buffer.resize(model_.contents(key).size(version));
      model_.contents(key).fill(version, buffer);
      item.payload = buffer;
      break;
    }
    case Operation::remove:
      slot.mutations.push_back(model_.begin_remove(key, stage_.calm()));
      break;
    case Operation::get: {
      slot.loads.push_back(model_.begin_load(key, stage_.calm()));
      // Some users know the size, others have a buffer for all.
      const uint64_t newest = model_.newest(key);
      const bool knows = newest > 0 && random_.one_in(2);
      const size_t bytes = knows ? model_.contents(key).size(newest) : Contents::kBytesMax;
      std::vector<std::byte>& buffer = slot.buffers[index];
      buffer.assign(bytes + kGuardBytes, kGuard);
      item.target = MutableBytes(buffer).first(bytes);
      item.size_is_unknown = !knows && random_.one_in(2);
      slot.targets.push_back(item.target);
      break;
    }
    default:
      slot.loads.push_back(model_.begin_load(key, stage_.calm()));
  }
  return item;
}

void Worker::submit_something(Slot& slot) {
  const uint64_t draw = random_.below(100);
  const auto& [puts, gets, lookups] = profile_.shares;
  if (draw < puts) {
    slot.operation = Operation::put;
    choose_keys(std::max<uint64_t>(profile_.keys_max / 2, 1));
  } else if (draw < puts + gets) {
    slot.operation = Operation::get;
    choose_keys(profile_.keys_max);
  } else if (draw < puts + gets + lookups) {
    slot.operation = Operation::exists;
    choose_keys(model_.size());
  } else {
    slot.operation = Operation::remove;
    choose_keys(2);
  }
  slot.mutations.clear();
  slot.loads.clear();
  slot.targets.clear();
  if (slot.buffers.size() < keys_.size()) slot.buffers.resize(keys_.size());
  std::vector<Item> items;
  for (size_t i = 0; i < keys_.size(); ++i) items.push_back(prepare(slot, i, keys_[i]));
  slot.calm = stage_.calm();
  slot.submitted = Clock::now();
  slot.deadline = connector_->store()->deadline(slot.operation, items);
  const Result<uint64_t> id = connector_->submit(slot.operation, std::move(items));
  if (!id) return problem("submit: " + id.error().message());
  slot.id = *id;
  ++counts_.batches;
}

void Worker::drain(bool closing) {
  for (const Completion& completion : connector_->drain()) take(completion, closing);
}

void Worker::take(const Completion& completion, bool closing) {
  const auto found = std::find_if(slots_.begin(), slots_.end(),
                                  [&](const Slot& slot) { return slot.id == completion.id; });
  if (found == slots_.end()) {
    return problem("batch " + std::to_string(completion.id) + " completed twice, or never begun");
  }
  Slot& slot = *found;
  slot.id.reset();
  const size_t keys = slot.mutations.size() + slot.loads.size();
  if (completion.results.size() != keys || completion.bits.size() != keys) {
    return problem("a batch of " + std::to_string(keys) + " keys has " +
                   std::to_string(completion.results.size()) + " results");
  }
  check_time(slot, closing);
  for (size_t i = 0; i < keys; ++i) judge(slot, i, completion.results[i], closing);
}

void Worker::judge(Slot& slot, size_t index, const ItemResult& result, bool closing) {
  const Calm now = stage_.calm();
  const size_t operation = index_of(slot.operation);
  const std::array<std::array<uint64_t, kOperations>*, 3> counters = {
      &counts_.hits, &counts_.misses, &counts_.errors};
  ++(*counters[static_cast<size_t>(result.outcome)])[operation];
  const bool calm = now != 0 && now == slot.calm;
  const size_t key = slot.mutations.empty() ? slot.loads[index].key : slot.mutations[index].key;
  if (calm) ++counts_.calm_checks;
  if (result.outcome == Outcome::error) {
    ++counts_.codes[static_cast<size_t>(result.status.code())];
    if (calm && !closing) note_failure(slot, key, result);
  } else if (calm) {
    failures_.erase({slot.operation, key});
  }
  if (!slot.mutations.empty()) return model_.end(slot.mutations[index], result.outcome, now);
  std::string wrong;
  if (slot.operation == Operation::get) {
    const std::vector<std::byte>& buffer = slot.buffers[index];
    if (std::any_of(buffer.end() - kGuardBytes, buffer.end(),
                    [](std::byte byte) { return byte != kGuard; })) {
      problem("bytes were written behind the buffer of a load");
    }
    wrong = model_.judge(slot.loads[index], result, slot.targets[index], now);
  } else {
    wrong = model_.judge_lookup(slot.loads[index], result, now);
  }
  if (!wrong.empty()) problem(wrong);
}

/// A machine that gives no time to its threads makes time-outs of its own, but not the same again
/// and again.
void Worker::note_failure(const Slot& slot, size_t key, const ItemResult& result) {
  if (failures_calm_ != slot.calm) failures_.clear();
  failures_calm_ = slot.calm;
  const int times = ++failures_[{slot.operation, key}];
  if (times < kFailuresMax) return;
  if (!testing::LagMeter::instance().was_calm_since(slot.submitted)) return;
  problem("operation " + std::to_string(index_of(slot.operation)) + " of " + model_.name(key) +
          " failed " + std::to_string(times) +
          " times in calm weather: " + result.status.message());
}

void Worker::check_time(const Slot& slot, bool closing) {
  if (closing) return;
  const auto now = Clock::now();
  if (now <= slot.deadline) return;
  const auto late = duration_cast<milliseconds>(now - slot.deadline);
  counts_.late_ms_max = std::max(counts_.late_ms_max, static_cast<uint64_t>(late.count()));
  if (late < kMargin) return;
  if (late < profile_.stranded_after &&
      !testing::LagMeter::instance().was_calm_since(slot.submitted))
    return;
  problem("a batch of operation " + std::to_string(index_of(slot.operation)) + " ended " +
          std::to_string(late.count()) + " ms after its deadline");
}

void Worker::check_stranded() {
  const auto now = Clock::now();
  for (const Slot& slot : slots_) {
    if (!slot.id || now < slot.deadline + profile_.stranded_after) continue;
    problem("batch " + std::to_string(*slot.id) + " of operation " +
            std::to_string(index_of(slot.operation)) + " is stranded");
    stranded_ = true;
  }
}

/// Nothing is open any more, and the store knows it.
void Worker::check_idle() {
  if (connector_->pending() != 0) problem(std::to_string(connector_->pending()) + " pending");
  const StoreStats stats = connector_->store()->stats();
  for (size_t i = 0; i < kOperations; ++i) {
    if (stats.operations[i].in_flight == 0) continue;
    problem(std::to_string(stats.operations[i].in_flight) + " objects of operation " +
            std::to_string(i) + " are still in flight");
  }
}

}  // namespace aerokv::chaos
