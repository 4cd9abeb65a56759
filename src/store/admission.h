// SPDX-License-Identifier: Apache-2.0
// Which stores are begun, which wait, and which are shed: memory that waits to be stored is memory
// that the caller cannot use, and a store that comes too late helps nobody.
#pragma once

#include <deque>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "aerokv/store.h"
#include "base/clock.h"

namespace aerokv::store {

class Batch;
class Context;

/// The stores of one Store, oldest first. Thread-safe.
///
/// Bounded: never more than StoreOptions::max_store_bytes_queued of payload wait or are under way;
/// what comes on top is shed at once. So is everything while the namespace takes no writes, which
/// is found out anew twice a second; and what has waited until its deadline is shed unsent.
class Admission {
 public:
  explicit Admission(Context& context) : context_(context) {}

  /// Begins the stores of `batch`, now or when their turn comes, or sheds them.
  void submit(const std::shared_ptr<Batch>& batch);

  /// An object that was begun has ended.
  void ended(const Batch& batch, size_t index, const Status& status);

  /// The namespace takes no more writes; `why` goes to the log.
  void stop_writes(const std::string& why);

  /// Ends what waits, with Code::closed.
  void close();

  struct Snapshot {
    uint64_t bytes = 0, bytes_peak = 0;
    bool is_stopped = false;
  };
  [[nodiscard]] Snapshot snapshot() const;

 private:
  struct Entry {
    std::shared_ptr<Batch> batch;
    size_t index = 0;
    uint64_t bytes = 0;
  };

  [[nodiscard]] std::optional<ShedReason> refuse(const Entry& entry);
  void start_waiting();
  [[nodiscard]] bool is_startable(uint64_t started_max) const;
  [[nodiscard]] std::vector<Entry> take_startable(uint64_t started_max, std::vector<Entry>& late);
  [[nodiscard]] uint64_t started_bytes_max() const;
  void start(std::vector<Entry> entries);
  void shed(const std::vector<Entry>& entries, ShedReason reason);
  void expire();
  void probe();
  void probed(std::optional<bool> is_stopped);
  void resume();
  void post(void (Admission::*step)(), TimePoint due = {});

  Context& context_;
  mutable std::mutex mutex_;
  std::deque<Entry> waiting_;  // guarded by mutex_, as is all below
  uint64_t waiting_bytes_ = 0;
  uint64_t started_bytes_ = 0;
  size_t started_count_ = 0;
  uint64_t bytes_peak_ = 0;
  bool starting_ = false;  // some thread begins stores
  bool again_ = false;     // and shall look once more
  bool closed_ = false;
  TimePoint expiry_ = TimePoint::max();  // when expire() is due

  bool stopped_ = false;
  bool node_says_so_ = false;                             // not only code 8
  bool may_try_one_ = false;                              // the next store shall tell
  std::optional<std::pair<const Batch*, size_t>> trial_;  // that one
  TimePoint stopped_at_{};
  TimePoint probe_due_{};
  uint64_t shed_since_ = 0;
};

}  // namespace aerokv::store
