// SPDX-License-Identifier: Apache-2.0
// Asks a suspect whether it works again: one header read of a partition that it should have.
#include <algorithm>

#include "client/io_loop.h"
#include "wire/request.h"

namespace aerokv::client {
namespace {

/// Deletes itself.
class Probe final : public Command {
 public:
  Probe(NodePtr node, std::string ns, uint32_t partition, TimePoint deadline) : ns_(std::move(ns)) {
    plan.node = std::move(node);
    plan.partition = partition;
    plan.deadline = deadline;
    plan.alone = true;
    plan.has_alternative = true;
    digest_[0] = static_cast<std::byte>(partition & 0xFF);
    digest_[1] = static_cast<std::byte>(partition >> 8);
  }

  Status encode(uint32_t timeout_ms, Encoded& request) override {
    const wire::RecordRef record{ns_, {}, digest_};
    return wire::encode_record_request(wire::RecordRequest::exists(record, timeout_ms),
                                       wire::Payload::inside, request.head);
  }
  Status unit(const wire::MessageHeader& header) override {
    code_ = header.result_code;
    return {};
  }
  [[nodiscard]] uint8_t result_code() const override { return code_; }
  void done(Status) override {
    // What the answer says about the node was noted before; this only ends the turn.
    plan.node->end_probe(SteadyClock::now());
    delete this;
  }

 private:
  const std::string ns_;
  wire::Digest digest_{};
  uint8_t code_ = 0;
};

}  // namespace

void IoLoop::probe(const NodePtr& node, TimePoint now) {
  const auto owned = std::find_if(map_->partitions.begin(), map_->partitions.end(),
                                  [&](const Replicas& owners) { return owners[0] == node; });
  if (owned == map_->partitions.end()) return node->end_probe(now);  // nobody asks it either
  const auto partition = static_cast<uint32_t>(owned - map_->partitions.begin());
  const TimePoint deadline = now + options_.read_attempt_timeout;
  stats_.probes.fetch_add(1, std::memory_order_relaxed);
  ++command_count_;
  next_deadline_ = std::min(next_deadline_, deadline);
  route(new Probe(node, options_.ns, partition, deadline), now);
}

}  // namespace aerokv::client
