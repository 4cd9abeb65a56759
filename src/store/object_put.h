// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <memory>
#include <vector>

#include "store/context.h"
#include "store/record_commands.h"

namespace aerokv::store {

/// Stores one object. Deletes itself when its result is given to the batch.
///
/// Commit order: all segments at once, then the meta record, which makes the object visible. After
/// a failure the meta record is removed, because an earlier store may have left one over segments
/// that this store has overwritten; readers would refuse the mixture anyway by its sums.
class ObjectPut final : private CommandOwner {
 public:
  /// Appends the first commands; the caller submits them.
  static void start(std::shared_ptr<Batch> batch, size_t index,
                    std::vector<client::Command*>& commands);

 private:
  enum class Step : uint8_t { segments, meta, cleanup };

  ObjectPut(std::shared_ptr<Batch> batch, size_t index);

  void command_done() override;
  void segments_done();
  void meta_done();
  client::Command* prepare_meta();
  [[nodiscard]] bool was_sent() const;
  void withdraw(Status status);
  void shed();
  void finish(Status status);

  const std::shared_ptr<Batch> batch_;
  const size_t index_;
  Context& context_;
  const Bytes payload_;
  const wire::Digest meta_digest_;
  const int64_t ttl_seconds_;

  SegmentPlan plan_;
  std::vector<SegmentPut> segments_;
  MetaPut meta_;
  RecordRemove remove_;
  Status failure_;
  bool is_shed_ = false;
  Step step_ = Step::segments;
  std::atomic<uint32_t> commands_left_{0};
};

}  // namespace aerokv::store
