// SPDX-License-Identifier: Apache-2.0
// Reads the records of some partitions of the set, without payloads.
#pragma once

#include <condition_variable>
#include <functional>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "store/context.h"
#include "store/meta_record.h"

namespace aerokv::store {

/// Lets a caller wait for work on I/O threads. The count is fixed before the work starts.
class Latch {
 public:
  explicit Latch(size_t count) : left_(count) {}
  void count_down() {
    const std::scoped_lock lock(mutex_);
    if (--left_ == 0) condition_.notify_all();
  }
  void wait() {
    std::unique_lock lock(mutex_);
    condition_.wait(lock, [this] { return left_ == 0; });
  }

 private:
  std::mutex mutex_;
  std::condition_variable condition_;
  size_t left_;
};

/// One record as a scan shows it. What is in it comes from a stranger.
struct ScannedRecord {
  struct Bin {
    std::string name;
    uint8_t particle = 0;
    std::vector<std::byte> value;  ///< empty if it was longer than the scan takes
    uint64_t value_bytes = 0;
  };
  wire::Digest digest{};
  std::string user_key;  ///< empty if the record does not carry it
  uint32_t generation = 0;
  uint32_t void_time = 0;  ///< seconds since 2010, 0 = never
  std::vector<Bin> bins;

  /// Valid as long as the record.
  [[nodiscard]] std::vector<BinView> views() const;
};

/// What of each record is asked for.
struct ScanForm {
  std::span<const std::string_view> bins;  ///< records with none of them are left out
  bool header_only = false;                ///< every record, no bins
  uint64_t value_bytes_max = 0;            ///< longer values are skipped
};

/// Calls `visit` for every record of `partitions`, in no order, on this thread. Blocks. Each
/// partition is read from the node that owns it; what a node could not give is asked for elsewhere,
/// and no record comes twice. Errors: unavailable and what a node answered.
Status scan_partitions(Context& context, std::vector<uint16_t> partitions, const ScanForm& form,
                       const std::function<void(ScannedRecord&&)>& visit);

/// Seconds from now until a record's void-time; -1 = never.
int64_t expires_in(uint32_t void_time);

}  // namespace aerokv::store
