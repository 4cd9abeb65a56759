// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <memory>
#include <vector>

#include "store/context.h"
#include "store/record_commands.h"

namespace aerokv::store {

/// Loads one object. Deletes itself when its result is given to the batch.
///
/// The layout of an object follows from its size and the limits, so the meta record and the
/// segments that are expected for the size of the target are asked for in one wave. If the meta
/// record tells another layout (another writer's limits, a shorter payload) a second wave follows
/// after the first has ended completely, since both write into the same target.
class ObjectGet final : private CommandOwner {
 public:
  /// Appends the commands of the first wave; the caller submits them.
  static void start(std::shared_ptr<Batch> batch, size_t index,
                    std::vector<client::Command*>& commands);

 private:
  ObjectGet(std::shared_ptr<Batch> batch, size_t index);

  void command_done() override;
  void plan_wave(const SegmentPlan& plan, std::vector<client::Command*>& commands);
  void evaluate();
  void evaluate_inline(const MetaRecord& meta);
  void evaluate_segments(const MetaRecord& meta);
  static bool is_foreign(const SegmentGet& segment, const MetaRecord& meta, uint32_t index);
  bool next_wave(const MetaRecord& meta);
  void no_other_wave();
  [[nodiscard]] bool payload_is_intact(const MetaRecord& meta, const SegmentPlan& plan) const;

  void hit(MetaRecord meta);
  /// `damaged`: the records contradict each other, and a lookup must not find them again.
  void miss(MissReason reason, Status why, bool damaged);
  void miss_too_large(const MetaRecord& meta);
  void fail(Status status);
  void finish(ItemResult result);

  const std::shared_ptr<Batch> batch_;
  const size_t index_;
  Context& context_;
  const MutableBytes target_;
  const wire::Digest meta_digest_;

  MetaGet meta_;
  SegmentPlan plan_;                  // of the current wave
  std::vector<SegmentGet> segments_;  // of the current wave; empty for an inline plan
  std::atomic<uint32_t> commands_left_{0};
  int wave_ = 0;
};

}  // namespace aerokv::store
