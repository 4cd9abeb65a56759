// SPDX-License-Identifier: Apache-2.0
// A development server, a store whose requests meet the faults, and a second store that looks at
// what is left behind as another process would.
#pragma once

#include <atomic>
#include <map>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "tests/integration/cluster_fixture.h"
#include "wire/digest.h"

namespace aerokv::testing {

/// Sanitizers make everything slower; time limits grow with them.
#if defined(__SANITIZE_THREAD__) || defined(__SANITIZE_ADDRESS__)
inline constexpr int kSlowness = 4;
#elif defined(__has_feature)
#if __has_feature(thread_sanitizer) || __has_feature(address_sanitizer)
inline constexpr int kSlowness = 4;
#else
inline constexpr int kSlowness = 1;
#endif
#else
inline constexpr int kSlowness = 1;
#endif

inline constexpr std::chrono::milliseconds kRequestTimeout{80 * kSlowness};

/// Segments of all tests here: the largest that a namespace with the smallest record limit takes.
inline constexpr size_t kSegment = 64 << 10;

/// One namespace with the smallest record limit.
devserver::Options small_record_server(int nodes = 1);

/// Short times, so that a fault that hangs costs little.
StoreOptions impatient_options(const devserver::DevServer& server);

/// A target buffer between two canaries.
class Guarded {
 public:
  explicit Guarded(size_t size) : size_(size), bytes_(size + 2 * kGuard, kCanary) {}

  [[nodiscard]] MutableBytes target() { return MutableBytes(bytes_).subspan(kGuard, size_); }
  [[nodiscard]] bool is_intact() const;
  /// True if the front of the buffer is `payload`.
  [[nodiscard]] bool holds(Bytes payload) const;
  void reset() { bytes_.assign(size_ + 2 * kGuard, kCanary); }

 private:
  static constexpr size_t kGuard = 256;
  static constexpr std::byte kCanary{0xC5};
  size_t size_;
  Buffer bytes_;
};

Item get_into(std::string key, Guarded& buffer);

/// Waits on the event descriptor for the completion of batch `id`. Completions of other batches
/// are kept in `others`. Fails the test if it does not come within `timeout`.
Completion await_completion(Connector& connector, uint64_t id, std::chrono::milliseconds timeout,
                            std::map<uint64_t, Completion>* others = nullptr);

/// Submits one batch and waits for its completion; checks that it is the only one.
Completion complete(Connector& connector, Operation operation, std::vector<Item> items);

std::string text_of(const std::vector<uint8_t>& bits);

/// The most memory that this process has had so far.
size_t peak_resident_bytes();

/// Tells whether this machine gave its threads their time. What must not happen is tested always;
/// what must succeed within a time is only tested while it is calm.
class LagMeter {
 public:
  static LagMeter& instance();
  /// True if there was no long lag since `begin`.
  [[nodiscard]] bool was_calm_since(std::chrono::steady_clock::time_point begin) const;

 private:
  LagMeter();
  ~LagMeter();

  std::atomic<int64_t> last_lag_{0};  // ticks of the steady clock
  std::atomic<bool> stopping_{false};
  std::thread thread_;
};

/// What a store finds under a key.
enum class Sight : uint8_t { miss, first, second, wrong, failed };
const char* sight_name(Sight sight);

class World {
 public:
  World();

  devserver::DevServer& server() { return *server_; }
  Connector& writer() { return *writer_; }
  Store& writer_store() { return *writer_->store(); }
  /// Hashes what it loads.
  Connector& verifier() { return *verifier_; }
  Store& observer() { return *observer_; }

  /// Digests of the meta record of `key` and of its segments 0 to `segments` - 1.
  [[nodiscard]] std::vector<wire::Digest> digests(const std::string& key, size_t segments) const;

  /// Loads `key` through the observer and compares it with two contents (empty = not possible).
  Sight look(const std::string& key, const Buffer& first, const Buffer& second);

  /// Waits until the server has no connection left that its clients have given up: whatever it
  /// still had to execute for them is done.
  /// With `trusted`, also until all stores take the node for healthy again.
  void await_quiet(bool trusted);

 private:
  std::unique_ptr<devserver::DevServer> server_;
  std::unique_ptr<Connector> writer_;
  std::unique_ptr<Connector> verifier_;
  std::unique_ptr<Store> observer_;
};

}  // namespace aerokv::testing
