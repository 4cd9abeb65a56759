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
constexpr size_t kPipelineDepthWithoutPayload = 2;

// If all answers take longer than this to begin, requests are not lined up behind each other.
constexpr std::chrono::microseconds kLatencyBound{4000};
// Requests wait, and the node sends nothing on any connection: that is latency, not a busy link.
constexpr std::chrono::microseconds kGrowAfterSilence{3000};
constexpr std::chrono::microseconds kGrowInterval{1000};
constexpr std::chrono::microseconds kFlowing{1000};
constexpr uint32_t kSlowAnswersPerStep = 4;

size_t pipeline_depth(uint64_t payload_bytes) {
  if (payload_bytes == 0) return kPipelineDepthWithoutPayload;
  return std::clamp(kPipelineBytes / payload_bytes, kPipelineDepthMin, kPipelineDepthMax);
}

}  // namespace

Lane lane_of(const Command::Plan& plan) {
  if (plan.is_write) return plan.payload_bytes > 0 ? Lane::store : Lane::small_write;
  return plan.payload_bytes > 0 ? Lane::load : Lane::small_read;
}

size_t connection_share(Lane lane, int connections_max) {
  const bool has_payload = lane == Lane::load || lane == Lane::store;
  return static_cast<size_t>(std::max(1, connections_max * (has_payload ? 3 : 1) / 8));
}

bool Pool::is_far() const {
  const size_t known = std::min(wait_count_, waits_.size());
  return known >= 2 && *std::min_element(waits_.begin(), waits_.begin() + known) > kLatencyBound;
}

void Pool::add_wait(const Connection::Wait& wait) {
  waits_[wait_count_++ % waits_.size()] = wait.wait;
  if (wait.node_silence >= kFlowing) return;
  // While the node sends, more connections only share what it sends. Answers that were long in
  // coming prove less: they may be one of several rounds of a far node.
  const bool is_quick = wait.wait < kLatencyBound / 2;
  if (!is_quick && ++slow_answers_ % kSlowAnswersPerStep != 0) return;
  usable_ = std::max(kBaseConnections, usable_ - 1);
}

uint64_t Pool::payload_bytes() const {
  uint64_t bytes = 0;
  for (const auto& connection : connections) bytes += connection->payload_bytes();
  return bytes;
}

Pool::Choice Pool::choose(const Command& command, size_t share, bool was_late, TimePoint now) {
  const bool far = is_far();
  const size_t depth = far || command.plan.alone ? 1 : pipeline_depth(command.plan.payload_bytes);
  const size_t usable = std::min(usable_, share);
  Connection* best = nullptr;
  size_t silent = 0;
  for (size_t i = 0; i < connections.size(); ++i) {
    Connection& connection = *connections[i];
    if (connection.silence(now) >= kGrowAfterSilence) ++silent;
    if (i >= usable || connection.is_reserved() || !connection.has_room(depth)) continue;
    if (best == nullptr || connection.flights() < best->flights()) best = &connection;
  }
  if (best != nullptr && (best->flights() == 0 || !far)) return {best, 0};
  if (connections.size() < usable) return {nullptr, 1};
  if (best != nullptr || usable >= share) return {best, 0};
  // Growth doubles at most once per interval, so that a burst against a near node does not open a
  // connection for every request.
  // Half of them: the other half was opened a moment ago.
  const bool is_silent = 2 * silent >= usable && node->silence(now) >= kGrowAfterSilence;
  if (is_silent && !was_late && now - grown_at_ >= kGrowInterval) {
    grown_at_ = now;
    usable_ = std::min(share, 2 * usable);
    return choose(command, share, was_late, now);
  }
  return {};
}

}  // namespace aerokv::client
