// SPDX-License-Identifier: Apache-2.0
#include "tests/chaos/defects.h"

#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstring>
#include <mutex>
#include <thread>
#include <vector>

namespace aerokv::chaos {
namespace {

using std::chrono::steady_clock;

constexpr uint64_t kOneOf = 4;  // batches: most are good
constexpr std::chrono::milliseconds kLate{600 * testing::kSlowness};

/// What the caller of a load sees of one item.
struct Seen {
  std::string key;
  MutableBytes target;
};

uint64_t version_of(const Seen& seen) {
  uint64_t version = 0;
  std::memcpy(&version, seen.target.data(), sizeof version);
  return version;
}

void spoil(Defect defect, const Seen& seen, ItemResult& result) {
  if (result.outcome != Outcome::hit || result.bytes < 16) return;
  const MutableBytes payload = seen.target.first(static_cast<size_t>(result.bytes));
  const uint64_t version = version_of(seen);
  const Contents contents(seen.key);
  switch (defect) {
    case Defect::flipped_byte:
      if (payload.size() > 16) payload.back() ^= std::byte{1};
      return;
    case Defect::stale_half: {
      if (version < 2 || payload.size() < 100) return;
      std::vector<std::byte> old(payload.size());
      contents.fill(version - 1, old);
      std::copy(old.begin() + 64, old.end(), payload.begin() + 64);
      return;
    }
    case Defect::foreign_object:
      Contents(seen.key + "0").fill(version, payload);
      return;
    case Defect::old_version: {
      if (version < 2 || contents.size(version - 1) > seen.target.size()) return;
      result.bytes = contents.size(version - 1);
      contents.fill(version - 1, seen.target.first(static_cast<size_t>(result.bytes)));
      return;
    }
    case Defect::overrun:
      // Where it ends somebody else's memory begins: Worker keeps a guard there.
      *(seen.target.data() + seen.target.size()) = std::byte{0};
      return;
    default:
      return;
  }
}

class Defective final : public Store {
 public:
  Defective(std::shared_ptr<Store> inner, const Stage& stage, Defect defect, bool at_once)
      : inner_(std::move(inner)), stage_(stage), defect_(defect), at_once_(at_once) {
    if (defect_ == Defect::leaked_descriptor && is_on()) {
      static_cast<void>(::open("/dev/null", O_RDONLY | O_CLOEXEC));
    }
  }
  ~Defective() override { close(); }

  using Store::submit;
  void submit(Operation operation, std::vector<Item> items, BatchDone done,
              std::optional<steady_clock::time_point> end) override {
    if (!is_on() || turn_++ % kOneOf != 0) {
      return inner_->submit(operation, std::move(items), std::move(done), end);
    }
    const bool pretends = (defect_ == Defect::lost_store && operation == Operation::put) ||
                          (defect_ == Defect::ghost && operation == Operation::remove);
    if (pretends) {
      std::vector<ItemResult> results(items.size());
      for (ItemResult& result : results) result.outcome = Outcome::hit;
      return done(std::move(results));
    }
    const auto deadline = inner_->deadline(operation, items);
    inner_->submit(operation, items, spoiled(operation, items, std::move(done), deadline), end);
  }

  [[nodiscard]] steady_clock::time_point deadline(Operation operation,
                                                  const std::vector<Item>& items) const override {
    return inner_->deadline(operation, items);
  }
  void report_damaged(const std::string& key) override { inner_->report_damaged(key); }
  Result<std::vector<ObjectInfo>> list(uint32_t& cursor, size_t count) override {
    return inner_->list(cursor, count);
  }
  Result<ObjectDetails> inspect(const std::string& key) override { return inner_->inspect(key); }
  Result<std::vector<NodeAnswer>> info(const std::string& command) override {
    return inner_->info(command);
  }
  [[nodiscard]] StoreStats stats() const override { return inner_->stats(); }
  [[nodiscard]] StoreLimits limits() const override { return inner_->limits(); }
  [[nodiscard]] const StoreOptions& options() const override { return inner_->options(); }
  void close() override {
    inner_->close();
    std::vector<std::thread> threads;
    {
      const std::scoped_lock lock(mutex_);
      threads.swap(threads_);
    }
    for (std::thread& thread : threads) thread.join();
  }

 private:
  [[nodiscard]] bool is_on() const { return at_once_ || stage_.was_hurt(); }

  BatchDone spoiled(Operation operation, const std::vector<Item>& items, BatchDone done,
                    steady_clock::time_point deadline) {
    if (defect_ == Defect::lost_completion) return [](const std::vector<ItemResult>&) {};
    if (defect_ == Defect::late_completion) {
      return [this, done = std::move(done), deadline](const std::vector<ItemResult>& results) {
        const std::scoped_lock lock(mutex_);
        threads_.emplace_back([done, results, deadline] {
          std::this_thread::sleep_until(deadline + kLate);
          done(results);
        });
      };
    }
    if (operation != Operation::get) return done;
    std::vector<Seen> seen;
    for (const Item& item : items) seen.push_back({item.key, item.target});
    return [defect = defect_, seen = std::move(seen),
            done = std::move(done)](std::vector<ItemResult> results) {
      for (size_t i = 0; i < results.size(); ++i) spoil(defect, seen[i], results[i]);
      done(std::move(results));
    };
  }

  const std::shared_ptr<Store> inner_;
  const Stage& stage_;
  const Defect defect_;
  const bool at_once_;
  std::atomic<uint64_t> turn_{0};
  std::mutex mutex_;
  std::vector<std::thread> threads_;  // guarded by mutex_
};

}  // namespace

Wrap plant(Defect defect, bool at_once) {
  return [defect, at_once](std::shared_ptr<Store> inner, const Stage& stage) {
    return std::make_shared<Defective>(std::move(inner), stage, defect, at_once);
  };
}

}  // namespace aerokv::chaos
