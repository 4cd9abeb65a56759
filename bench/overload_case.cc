// SPDX-License-Identifier: Apache-2.0
#include <atomic>
#include <condition_variable>
#include <cstdio>
#include <mutex>
#include <thread>

#include "cases.h"
#include "workload.h"

namespace aerokv::bench {
namespace {

using Clock = std::chrono::steady_clock;
using std::chrono::milliseconds;

constexpr size_t kObjectBytes = 1'000'000;
constexpr size_t kLoadKeys = 64;
constexpr size_t kStoreKeys = 512;
constexpr std::chrono::seconds kCapacityTime{2};
constexpr std::chrono::seconds kPhaseTime{4};
constexpr double kOfferedRatio = 2;

/// One server and what limits it.
struct Mode {
  const char* name;
  uint64_t link_bytes_per_second;  ///< 0 = the machine
  milliseconds load_interval;
};

/// What became of the operations of one phase.
struct Tally {
  Samples load_ms;
  uint64_t loads_failed = 0;
  uint64_t stored = 0, shed = 0, failed = 0;
  uint64_t bytes_open_max = 0;
  double seconds = 0;
};

/// Loads and stores that arrive by the clock, whatever became of those before them.
class Arrivals {
 public:
  Arrivals(Store& store, const Memory& memory) : store_(store), memory_(memory) {}

  /// Runs for `time`; without `store_interval` there are loads alone. Waits for the last answer.
  Tally run(Clock::duration time, Clock::duration load_interval,
            std::optional<Clock::duration> store_interval) {
    const auto begin = Clock::now();
    std::thread storing;
    if (store_interval) {
      storing = std::thread([&] { arrive(begin, time, *store_interval, [this] { store_one(); }); });
    }
    arrive(begin, time, load_interval, [this] { load_one(); });
    if (storing.joinable()) storing.join();
    tally_.seconds = std::chrono::duration<double>(Clock::now() - begin).count();
    std::unique_lock lock(mutex_);
    idle_.wait(lock, [this] { return open_ == 0; });
    return std::exchange(tally_, {});
  }

  /// Bytes a second that are stored if `depth` objects are always under way.
  double capacity(size_t depth) {
    const auto begin = Clock::now();
    std::unique_lock lock(mutex_);
    while (Clock::now() - begin < kCapacityTime) {
      idle_.wait(lock, [&] { return open_ < depth; });
      lock.unlock();
      store_one();
      lock.lock();
    }
    idle_.wait(lock, [this] { return open_ == 0; });
    const Tally tally = std::exchange(tally_, {});
    return static_cast<double>(tally.stored * kObjectBytes) / seconds_since(begin);
  }

 private:
  template <typename Start>
  static void arrive(Clock::time_point begin, Clock::duration time, Clock::duration interval,
                     Start start) {
    for (auto due = begin; due < begin + time; due += interval) {
      std::this_thread::sleep_until(due);
      start();
    }
  }

  void begin_one(uint64_t bytes) {
    const std::scoped_lock lock(mutex_);
    ++open_;
    bytes_open_ += bytes;
    tally_.bytes_open_max = std::max(tally_.bytes_open_max, bytes_open_);
  }

  template <typename Count>
  void end_one(uint64_t bytes, Count count) {
    const std::scoped_lock lock(mutex_);
    count();
    bytes_open_ -= bytes;
    --open_;
    idle_.notify_all();
  }

  void load_one() {
    const size_t index = next_load_++;
    std::vector<Item> items(1);
    items[0].key = key_of("load", index % kLoadKeys);
    items[0].target = memory_.bytes().subspan((index % kLoadKeys) * kObjectBytes, kObjectBytes);
    begin_one(0);
    const auto begin = Clock::now();
    store_.submit(Operation::get, std::move(items), [this, begin](const auto& results) {
      const double ms = seconds_since(begin) * 1e3;
      end_one(0, [&] {
        tally_.load_ms.add(ms);
        tally_.loads_failed += results[0].outcome == Outcome::hit ? 0 : 1;
      });
    });
  }

  void store_one() {
    const size_t index = next_store_++;
    std::vector<Item> items(1);
    items[0].key = key_of("store", index % kStoreKeys);
    items[0].payload = memory_.bytes().subspan(kLoadKeys * kObjectBytes, kObjectBytes);
    begin_one(kObjectBytes);
    store_.submit(Operation::put, std::move(items), [this](const auto& results) {
      const bool stored = results[0].outcome == Outcome::hit;
      const bool shed = results[0].status.code() == Code::overloaded;
      end_one(kObjectBytes, [&] {
        ++(stored ? tally_.stored : shed ? tally_.shed : tally_.failed);
      });
    });
  }

  Store& store_;
  const Memory& memory_;
  std::atomic<size_t> next_load_{0}, next_store_{0};
  std::mutex mutex_;
  std::condition_variable idle_;
  size_t open_ = 0;          // guarded by mutex_
  uint64_t bytes_open_ = 0;  // guarded by mutex_
  Tally tally_;              // guarded by mutex_
};

void merge(const Tally& from, Tally& into) {
  into.load_ms.add(from.load_ms);
  into.loads_failed += from.loads_failed;
  into.stored += from.stored;
  into.shed += from.shed;
  into.failed += from.failed;
  into.bytes_open_max = std::max(into.bytes_open_max, from.bytes_open_max);
  into.seconds += from.seconds;
}

Status one_mode(const Mode& mode, const Settings& settings, const Memory& memory,
                std::vector<Json>& rows) {
  Result<Server> server = Server::start(mode.link_bytes_per_second);
  if (!server) return server.error();
  StoreOptions options;
  options.hosts = server->hosts();
  if (settings.io_threads > 0) options.num_io_threads = settings.io_threads;
  Result<std::unique_ptr<Engine>> engine = Engine::open(options);
  if (!engine) return engine.error();
  AEROKV_TRY((*engine)->put("load", as_sources(memory.slices(kObjectBytes, kLoadKeys))));
  Arrivals arrivals((*engine)->store(), memory);
  const double capacity = arrivals.capacity(32);
  const std::chrono::duration<double> interval(static_cast<double>(kObjectBytes) /
                                               (kOfferedRatio * capacity));
  const auto store_interval = std::chrono::duration_cast<Clock::duration>(interval);
  Tally alone;
  Tally under;
  for (int round = 0; round < settings.rounds; ++round) {
    merge(arrivals.run(kPhaseTime, mode.load_interval, std::nullopt), alone);
    merge(arrivals.run(kPhaseTime, mode.load_interval, store_interval), under);
  }
  const double ratio = under.load_ms.percentile(99) / alone.load_ms.percentile(99);
  const StoreStats stats = (*engine)->store().stats();
  const double taken = static_cast<double>(under.stored * kObjectBytes) / under.seconds;
  std::fprintf(stderr,
               "overload %-7s: server takes %4.0f MB/s; loads alone p50 %.1f p99 %.1f max %.1f ms; "
               "with stores at %.0f MB/s p50 %.1f p99 %.1f max %.1f ms: p99 x %.2f; %zu loads, "
               "%llu failed; stores: %llu stored (%.0f MB/s), %llu shed, %llu failed, %.0f MB open "
               "at most\n",
               mode.name, capacity / 1e6, alone.load_ms.median(), alone.load_ms.percentile(99),
               alone.load_ms.max(), kOfferedRatio * capacity / 1e6, under.load_ms.median(),
               under.load_ms.percentile(99), under.load_ms.max(), ratio, under.load_ms.count(),
               static_cast<unsigned long long>(alone.loads_failed + under.loads_failed),
               static_cast<unsigned long long>(under.stored), taken / 1e6,
               static_cast<unsigned long long>(under.shed),
               static_cast<unsigned long long>(under.failed),
               static_cast<double>(under.bytes_open_max) / 1e6);
  Json row;
  row.add("mode", mode.name).add("capacity_bytes_per_second", capacity);
  row.add("offered_ratio", kOfferedRatio)
      .add("loads", static_cast<uint64_t>(under.load_ms.count()));
  row.add("loads_failed", alone.loads_failed + under.loads_failed);
  const auto add = [&row](const std::string& name, const Samples& ms) {
    row.add(name + "_p50_ms", ms.median()).add(name + "_p99_ms", ms.percentile(99));
    row.add(name + "_max_ms", ms.max());
  };
  add("alone", alone.load_ms);
  add("overload", under.load_ms);
  row.add("stored_bytes_per_second", taken).add("stored", under.stored).add("shed", under.shed);
  row.add("failed", under.failed).add("open_bytes_max", under.bytes_open_max);
  row.add("p99_ratio", ratio).add("goal", kOverloadRatioMax);
  row.add("goal_met", ratio <= kOverloadRatioMax);
  rows.push_back(row);
  std::fprintf(stderr, "         window %.1f MB, %lld connections\n",
               static_cast<double>(stats.nodes.at(0).store_window_bytes) / 1e6,
               static_cast<long long>(stats.nodes.at(0).connections));
  return {};
}

}  // namespace

Status run_overload(const Settings& settings, Json& report) {
  const Memory memory((kLoadKeys + 1) * kObjectBytes, 5);
  std::vector<Json> rows;
  const Mode modes[] = {{"link", 100'000'000, milliseconds(40)}, {"machine", 0, milliseconds(20)}};
  for (const Mode& mode : modes) AEROKV_TRY(one_mode(mode, settings, memory, rows));
  report.add("overload", rows);
  return {};
}

}  // namespace aerokv::bench
