// SPDX-License-Identifier: Apache-2.0
// How many connections a thread uses, and how many requests each carries at once. Decisions only:
// no socket is touched here. docs/internals/decisions/005-connections-and-lanes.md has the reasons.
#pragma once

#include <array>
#include <deque>
#include <memory>
#include <vector>

#include "client/command.h"
#include "client/connection.h"
#include "client/latency.h"

namespace aerokv::client {

/// Requests that share connections. Payloads and small requests, reads and writes are kept apart:
/// a lookup does not queue behind megabytes, and a read's short patience is not stretched by writes
/// on the same connection.
enum class Lane : uint8_t { load, small_read, store, small_write };

Lane lane_of(const Command::Plan& plan);

/// Loads and lookups: somebody waits for them. They go before stores and removals.
inline bool is_read_lane(Lane lane) {
  return lane == Lane::load || lane == Lane::small_read;
}

/// The most connections of a lane, of the `connections_max` that a thread may have to one node. A
/// fixed share for each lane, at least one: nobody takes what another will need.
size_t connection_share(Lane lane, int connections_max);

/// One thread's connections of one lane to one node, and what waits for them. Owned by the thread.
struct Pool {
  /// Where the next request goes: on `connection`; or, if that is null, on a connection still to
  /// be opened, of which `open` are wanted; or nowhere yet (both empty).
  struct Choice {
    Connection* connection = nullptr;
    size_t open = 0;
  };

  NodePtr node;
  Lane lane = Lane::load;
  std::vector<std::unique_ptr<Connection>> connections;
  std::deque<Command*> waiting;
  Latency latency;           ///< of the first bytes of answers
  bool was_suspect = false;  ///< the node, when the loop looked last

  /// `share` is the most connections that this pool may have; `was_late` tells that the thread has
  /// not looked for a while, so that silence proves nothing.
  Choice choose(const Command& command, size_t share, bool was_late, TimePoint now);

  /// Of all requests under way.
  [[nodiscard]] uint64_t payload_bytes() const;

  /// Notes how long an answer took to begin.
  void add_wait(const Connection::Wait& wait);

 private:
  /// True if none of the last answers began soon: latency, not a busy moment of this machine.
  [[nodiscard]] bool is_far() const;

  // A server gives its connections to its threads in turn. Two of one lane, opened one right after
  // the other, are served by two threads; single ones may all end up with the same.
  static constexpr size_t kBaseConnections = 2;

  // Only so many connections take requests: more while the node sends nothing at all, fewer again
  // with each answer that comes while it sends. The others fall idle and are closed.
  size_t usable_ = kBaseConnections;
  uint32_t slow_answers_ = 0;
  std::array<Duration, 6> waits_{};
  size_t wait_count_ = 0;
  TimePoint grown_at_{};
};

}  // namespace aerokv::client
