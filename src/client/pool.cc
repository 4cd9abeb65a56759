// SPDX-License-Identifier: Apache-2.0
#include "client/pool.h"

#include <algorithm>

namespace aerokv::client {
namespace {

// Requests that may be under way on one connection: two large ones, or as many small ones as make
// up a useful amount. More would only wait inside the server, which answers one after the other,
// where they can no longer be moved to another connection.
// Source: measured on a real server, two to four connections with a few requests each are best.
constexpr uint64_t kPipelineDepthMin = 2;
constexpr uint64_t kPipelineDepthMax = 8;
constexpr uint64_t kPipelineBytes = 512 << 10;
constexpr size_t kPipelineDepthWithoutPayload = 4;

// A server gives its connections to its threads in turn. Two of one lane, opened one right after
// the other, are served by two threads; single ones may all end up with the same.
constexpr size_t kBaseConnections = 2;

// A wait for the first byte that is longer than this is latency, not a busy link: then requests
// are spread over more connections instead of being lined up.
constexpr std::chrono::microseconds kLatencyBound{4000};
constexpr std::chrono::microseconds kGrowAfterSilence{3000};
constexpr std::chrono::microseconds kGrowInterval{1000};

size_t pipeline_depth(uint64_t payload_bytes) {
  if (payload_bytes == 0) return kPipelineDepthWithoutPayload;
  return std::clamp(kPipelineBytes / payload_bytes, kPipelineDepthMin, kPipelineDepthMax);
}

}  // namespace

Lane lane_of(const Command::Plan& plan) {
  if (plan.is_write) return plan.payload_bytes > 0 ? Lane::store : Lane::small_write;
  return plan.payload_bytes > 0 ? Lane::load : Lane::small_read;
}

bool Pool::is_far() const {
  const size_t known = std::min(wait_count_, waits_.size());
  return known >= 2 && *std::min_element(waits_.begin(), waits_.begin() + known) > kLatencyBound;
}

Pool::Choice Pool::choose(const Command& command, size_t share, bool was_late, TimePoint now) {
  const bool far = is_far();
  const size_t depth = far || command.plan.alone ? 1 : pipeline_depth(command.plan.payload_bytes);
  Connection* best = nullptr;
  size_t silent = 0;
  for (const auto& connection : connections) {
    if (connection->silence(now) >= kGrowAfterSilence) ++silent;
    if (connection->is_reserved() || !connection->has_room(depth)) continue;
    if (best == nullptr || connection->flights() < best->flights()) best = connection.get();
  }
  const bool may_grow = connections.size() < share;
  if (!may_grow || (best != nullptr && (best->flights() == 0 || !far))) return {best, 0};
  if (connections.size() < kBaseConnections || far) return {nullptr, 1};
  // Growth doubles at most once per interval, so that a burst against a near node does not open a
  // connection for every request.
  const bool mostly_silent = 2 * silent >= connections.size();
  if (!mostly_silent || was_late || now - grown_at_ < kGrowInterval) return {};
  grown_at_ = now;
  return {nullptr, std::max<size_t>(1, std::min({connections.size(), waiting.size(),
                                                 share - connections.size()}))};
}

}  // namespace aerokv::client
