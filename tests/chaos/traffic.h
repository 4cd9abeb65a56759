// SPDX-License-Identifier: Apache-2.0
// Users of the cluster: each a thread with a store of its own and a random stream of its own, all
// of a set on the same keys.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <functional>
#include <future>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "aerokv/connector.h"
#include "aerokv/serde.h"
#include "tests/chaos/model.h"
#include "tests/chaos/problems.h"
#include "tests/chaos/random.h"
#include "tests/chaos/stage.h"
#include "tests/fault/world.h"

namespace aerokv::chaos {

inline constexpr std::chrono::milliseconds kStrandedAfter{6000 * testing::kSlowness};

/// One kind of user.
struct Profile {
  std::string name;
  std::function<void(StoreOptions&)> adapt;  ///< what differs from Stage::options()
  std::optional<SerdeConfig> serde{};
  /// Of 100 batches: stores, loads, lookups; the rest removes.
  std::array<uint64_t, 3> shares{25, 50, 20};
  uint64_t keys_max = 6;  ///< of a batch of loads or stores
  bool reopens = false;   ///< with a new store every second or so, also while batches are open
  /// A batch that is later than this is so on any machine: it will never end.
  std::chrono::milliseconds stranded_after = kStrandedAfter;
};

/// Wraps a store that was opened; the identity, or a planted defect.
using Wrap = std::function<std::shared_ptr<Store>(std::shared_ptr<Store>, const Stage&)>;

struct Counts {
  std::array<uint64_t, kOperations> hits{}, misses{}, errors{};
  std::array<uint64_t, kCodes> codes{};  ///< of the errors
  uint64_t batches = 0;
  uint64_t calm_checks = 0;  ///< results that the strict rules applied to
  uint64_t late_ms_max = 0;  ///< behind the deadline
  uint64_t opened = 0, not_opened = 0;

  void add(const Counts& other);
};

class Worker {
 public:
  Worker(Profile profile, uint64_t seed, Stage& stage, Model& model, Problems& problems, Wrap wrap);
  ~Worker();
  Worker(const Worker&) = delete;
  Worker& operator=(const Worker&) = delete;

  void start();
  /// Tells it to end all batches and to close the store.
  void stop() { stopping_ = true; }
  void join();
  [[nodiscard]] const Counts& counts() const { return counts_; }  // after join()

 private:
  using Clock = std::chrono::steady_clock;

  /// One batch that is open, and the memory that it works on.
  struct Slot {
    std::optional<uint64_t> id;
    Operation operation = Operation::get;
    Clock::time_point submitted, deadline;
    Calm calm = 0;
    std::vector<Model::Mutation> mutations;
    std::vector<Model::Load> loads;
    std::vector<std::vector<std::byte>> buffers;
    std::vector<MutableBytes> targets;
  };
  static constexpr size_t kSlots = 3;

  void run();
  bool open();
  void close();
  void abandon(std::future<void> closed);
  void submit_something(Slot& slot);
  void choose_keys(uint64_t max);
  Item prepare(Slot& slot, size_t index, size_t key);
  void drain(bool closing);
  void take(const Completion& completion, bool closing);
  void judge(Slot& slot, size_t index, const ItemResult& result, bool closing);
  void note_failure(const Slot& slot, size_t key, const ItemResult& result);
  void check_time(const Slot& slot, bool closing);
  void check_stranded();
  void check_idle();
  [[nodiscard]] size_t open_slots() const;
  void problem(const std::string& text) { problems_.add(profile_.name + ": " + text); }

  const Profile profile_;
  Random random_;
  Stage& stage_;
  Model& model_;
  Problems& problems_;
  const Wrap wrap_;
  std::unique_ptr<Connector> connector_;
  std::array<Slot, kSlots> slots_;
  std::vector<size_t> keys_;
  Clock::time_point reopen_at_;
  bool stranded_ = false;
  std::map<std::pair<Operation, size_t>, int> failures_;  // in calm weather, of each key
  Calm failures_calm_ = 0;
  Counts counts_;
  std::atomic<bool> stopping_{false};
  std::thread thread_;
};

}  // namespace aerokv::chaos
