// SPDX-License-Identifier: Apache-2.0
#include "tests/chaos/run.h"

#include <malloc.h>
#include <unistd.h>

#include <algorithm>
#include <bit>
#include <filesystem>
#include <fstream>
#include <future>
#include <optional>
#include <thread>

#include "tests/chaos/stage.h"
#include "tests/fault/world.h"

namespace aerokv::chaos {
namespace {

using std::chrono::milliseconds;
using std::chrono::steady_clock;
using testing::kSlowness;

constexpr size_t kKeys = 40;
// A node that comes back is used again within a second; migration and a busy machine come on top.
constexpr milliseconds kCalmAfter{20'000 * kSlowness};
constexpr milliseconds kLastCalm{700};
// What the allocator keeps differs; one buffer lost for each event would be more.
constexpr size_t kMemoryMargin = 64 << 20;
constexpr milliseconds kVanishTime{3000 * kSlowness};

std::vector<Profile> profiles(const Recipe& recipe) {
  std::vector<Profile> all;
  all.push_back({"writer", [hedges = recipe.seed % 2 == 0](StoreOptions& options) {
                   options.hedge_reads = hedges;
                 }});
  all.back().shares = {40, 35, 15};
  all.push_back({"reader", [in_rack = recipe.has_racks()](StoreOptions& options) {
                   options.replica = in_rack ? Replica::prefer_rack : Replica::any;
                   if (in_rack) options.rack_id = 1;
                   options.num_io_threads = 1;
                 }});
  all.back().shares = {10, 65, 20};
  all.push_back({"visitor", [](StoreOptions& options) { options.enable_crc32 = true; }});
  all.back().reopens = true;
  return all;
}

Profile hashing(const char* name, Replica replica) {
  return {name, [replica](StoreOptions& options) {
            options.verify = Verify::full;
            options.replica = replica;
            options.hedge_reads = replica == Replica::sequence;
          }};
}

Profile with_serde(const char* name) {
  SerdeConfig config{"chain", {}};
  config.params["dtype"] = std::string("bfloat16");
  config.params["max_workers"] = int64_t{2};
  config.params["stages"] =
      std::vector<SerdeConfig>{SerdeConfig{"lossless", {}}, SerdeConfig{"checksum", {}}};
  return {name, [](StoreOptions& options) { options.num_io_threads = 1; }, config};
}

/// Stage, models and workers, in the order in which they depend on each other.
class Play {
 public:
  Play(const Plan& plan, Problems& problems)
      : problems_(problems), stranded_after_(plan.stranded_after), stage_(plan.recipe, problems) {
    add(plain_, profiles(plan.recipe), plan);
    add(hashed_, {hashing("hasher", Replica::sequence), hashing("checker", Replica::master)}, plan);
    add(coded_, {with_serde("coder")}, plan);
    for (Model* model : {&plain_, &hashed_, &coded_}) {
      stage_.on_loss([model] { model->all_is_lost(); });
    }
  }

  Report perform(const std::vector<Event>& events) {
    Report report;
    report.events_planned = events.size();
    const auto begin = steady_clock::now();
    stage_.wait_until(begin);
    for (const auto& worker : workers_) worker->start();
    for (const Event& event : events) {
      stage_.wait_until(begin + milliseconds(event.at_ms));
      if (problems_.any()) break;
      stage_.apply(event);
      ++report.events;
    }
    if (!problems_.any()) finish();
    for (const auto& worker : workers_) worker->stop();
    for (const auto& worker : workers_) worker->join();
    for (const auto& worker : workers_) report.counts.add(worker->counts());
    report.calms = stage_.calms();
    report.problems = problems_.texts();
    const std::chrono::duration<double> took = steady_clock::now() - begin;
    report.seconds = took.count();
    return report;
  }

 private:
  void add(Model& model, std::vector<Profile> profiles, const Plan& plan) {
    for (Profile& profile : profiles) {
      profile.stranded_after = plan.stranded_after;
      const uint64_t seed = Random::mix(plan.recipe.seed * 31 + workers_.size());
      workers_.push_back(
          std::make_unique<Worker>(std::move(profile), seed, stage_, model, problems_, plan.wrap));
    }
  }

  /// After the last event everything has to work again, on the stores that went through it all.
  void finish() {
    stage_.restore();
    stage_.await_calm(kCalmAfter);
    for (const std::shared_ptr<Store>& store : stage_.stores()) probe(store);
    stage_.wait_until(steady_clock::now() + kLastCalm);
  }

  void probe(const std::shared_ptr<Store>& store) {
    for (const Operation operation :
         {Operation::put, Operation::exists, Operation::get, Operation::remove}) {
      const auto begin = steady_clock::now();
      const std::string what =
          "after the last event operation " + std::to_string(static_cast<int>(operation));
      const std::optional<ItemResult> result = ask(store, operation);
      if (problems_.any()) return;
      if (!result) return problems_.add(what + " is stranded");
      // The visitor's store may have been closed just now.
      if (result->outcome == Outcome::hit || result->status.code() == Code::closed) continue;
      if (result->outcome == Outcome::error &&
          !testing::LagMeter::instance().was_calm_since(begin)) {
        return;  // this machine gave it no time; what follows stands on it
      }
      problems_.add(what + " does not work: " + result->status.message());
    }
  }

  /// One operation on an object of its own for each store; nothing if it does not end.
  std::optional<ItemResult> ask(const std::shared_ptr<Store>& store, Operation operation) {
    struct Call {
      std::vector<std::byte> payload = std::vector<std::byte>(200'000, std::byte{7});
      std::vector<std::byte> target = std::vector<std::byte>(200'000);
      std::promise<ItemResult> result;
    };
    const auto call = std::make_shared<Call>();
    Item item;
    item.key = "probe/" + std::to_string(std::bit_cast<uintptr_t>(store.get()));
    if (operation == Operation::put) item.payload = call->payload;
    if (operation == Operation::get) item.target = call->target;
    std::future<ItemResult> result = call->result.get_future();
    store->submit(operation, {item}, [call](std::vector<ItemResult> results) {
      call->result.set_value(std::move(results.front()));
    });
    const auto limit = store->deadline(operation, {item}) + stranded_after_;
    if (result.wait_until(limit) != std::future_status::ready) return std::nullopt;
    return result.get();
  }

  Problems& problems_;
  const milliseconds stranded_after_;
  Stage stage_;
  Model plain_{"plain", kKeys};
  Model hashed_{kHashedSet, kKeys};
  Model coded_{"coded", kKeys};
  std::vector<std::unique_ptr<Worker>> workers_;
};

size_t entries(const char* directory) {
  size_t count = 0;
  for ([[maybe_unused]] const auto& entry : std::filesystem::directory_iterator(directory)) ++count;
  return count;
}

bool measures_memory() {
  return kSlowness == 1;  // sanitizers keep what was freed
}

std::string difference(const Resources& before, const Resources& after) {
  std::string text;
  const auto compare = [&](const char* what, size_t from, size_t to) {
    if (to <= from) return;
    text += std::to_string(to - from) + " more " + what + " than before the run; ";
  };
  compare("descriptors", before.descriptors, after.descriptors);
  compare("threads", before.threads, after.threads);
  if (measures_memory()) {
    compare("bytes of memory", before.resident_bytes + kMemoryMargin, after.resident_bytes);
  }
  return text;
}

}  // namespace

Report run(const Plan& plan) {
  testing::LagMeter::instance();
  std::vector<Event> events = make_schedule(plan.recipe);
  if (events.size() > plan.events_max) events.resize(plan.events_max);
  Problems problems;
  return Play(plan, problems).perform(events);
}

Resources resources() {
  ::malloc_trim(0);
  Resources now;
  size_t pages = 0;
  std::ifstream("/proc/self/statm") >> pages >> pages;
  now.resident_bytes = pages * static_cast<size_t>(::sysconf(_SC_PAGESIZE));
  now.descriptors = entries("/proc/self/fd");
  now.threads = entries("/proc/self/task");
  return now;
}

Report run_and_count(const Plan& plan) {
  Plan warm_up = plan;
  warm_up.events_max = 0;
  Report report = run(warm_up);
  if (!report.problems.empty()) return report;
  const Resources before = resources();
  report = run(plan);
  if (!report.problems.empty()) return report;
  // Threads that were joined leave /proc a moment later.
  const auto end = steady_clock::now() + kVanishTime;
  std::string left = difference(before, resources());
  while (!left.empty() && steady_clock::now() < end) {
    std::this_thread::sleep_for(milliseconds(20));
    left = difference(before, resources());
  }
  if (!left.empty()) report.problems.push_back(left);
  return report;
}

std::string text_of(const Report& report) {
  constexpr const char* kNames[] = {"load", "store", "lookup", "remove", "touch"};
  const Counts& counts = report.counts;
  std::string text =
      std::to_string(report.events) + " of " + std::to_string(report.events_planned) + " events, " +
      std::to_string(report.calms) + " calms, " +
      std::to_string(static_cast<int>(report.seconds * 10)) + " tenths of seconds, " +
      std::to_string(counts.batches) + " batches, " + std::to_string(counts.calm_checks) +
      " keys by the strict rules, latest " + std::to_string(counts.late_ms_max) +
      " ms behind its deadline, " + std::to_string(counts.opened) + " stores opened, " +
      std::to_string(counts.not_opened) + " not\n";
  for (size_t i = 0; i < kOperations; ++i) {
    if (counts.hits[i] + counts.misses[i] + counts.errors[i] == 0) continue;
    text += std::string("  ") + kNames[i] + ": " + std::to_string(counts.hits[i]) + " hits, " +
            std::to_string(counts.misses[i]) + " misses, " + std::to_string(counts.errors[i]) +
            " errors\n";
  }
  text += "  errors:";
  for (size_t i = 0; i < kCodes; ++i) {
    if (counts.codes[i] == 0) continue;
    text +=
        " " + std::string(code_name(static_cast<Code>(i))) + " " + std::to_string(counts.codes[i]);
  }
  text += "\n";
  for (const std::string& problem : report.problems) text += "  PROBLEM: " + problem + "\n";
  return text;
}

}  // namespace aerokv::chaos
