// SPDX-License-Identifier: Apache-2.0
// Batches with one completion each, announced through a file descriptor: the shape that LMCache's
// native L2 adapters drive.
#pragma once

#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "aerokv/status.h"
#include "aerokv/store.h"

namespace aerokv {

/// The end of one batch.
struct Completion {
  uint64_t id = 0;
  bool ok = false;
  std::string error;          ///< why not ok; empty otherwise
  std::vector<uint8_t> bits;  ///< one per key in submit order: 1 = hit; same length as the batch
  std::vector<ItemResult> results;  ///< of each key, in submit order
};

/// Submits batches to a store and collects their completions. Thread-safe.
///
/// Every submitted batch completes exactly once, within its deadline, whatever fails, also on
/// close(). `ok` of the operations: put is ok if every key was stored; exists is ok unless nothing
/// could be asked at all, since the host drops the bits of a lookup that is not; get, remove and
/// touch are ok if no key ended in an error (a miss is none).
class Connector {
 public:
  /// Errors: overloaded (no file descriptor).
  static Result<std::unique_ptr<Connector>> create(std::shared_ptr<Store> store);

  /// Calls close(); in a forked child it only lets go of memory.
  ~Connector();

  /// Non-blocking, close-on-exec, the same for the life of the object. Readable while completions
  /// wait. A wake-up without a completion is possible.
  [[nodiscard]] int event_fd() const;

  /// Starts a batch and returns its id (1, 2, ...). Never blocks on the network. Buffers of the
  /// items must stay valid until the batch was drained.
  /// Errors: invalid (no items), closed (after close(), or in a forked child). A key that is empty
  /// or too long fails alone, in the completion.
  Result<uint64_t> submit(Operation operation, std::vector<Item> items);

  /// Takes all completions that have happened, oldest first.
  std::vector<Completion> drain();

  /// Ends open batches with Code::closed and releases the store (the last user of a store closes
  /// it). When it returns no buffer of any batch is touched any more. Idempotent. Bounded: nothing
  /// is waited for but the I/O threads' current step.
  void close();

  /// Batches submitted and not yet drained.
  [[nodiscard]] uint64_t pending() const;

  [[nodiscard]] const std::shared_ptr<Store>& store() const;

 private:
  struct State;
  Connector(std::shared_ptr<Store> store, std::shared_ptr<State> state);

  // Not part of State: a batch holds its State until the very end, and the store must never be
  // destroyed on one of its own threads.
  std::shared_ptr<Store> store_;
  std::shared_ptr<State> state_;
};

}  // namespace aerokv
