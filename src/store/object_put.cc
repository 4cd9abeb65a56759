// SPDX-License-Identifier: Apache-2.0
#include "store/object_put.h"

#include <algorithm>

#include "store/discovery.h"

namespace aerokv::store {
namespace {

// A clean-up has its own short time: the caller waits for it.
constexpr milliseconds kCleanupTimeout{500};

/// Adds what an operator has to change, where the server's code alone does not tell.
Status explain(Status status, int64_t ttl_seconds, const std::string& ns) {
  if (status.server_result() != wire::result::kForbidden || ttl_seconds <= 0) return status;
  return {status.code(),
          status.message() + "; a TTL of " + std::to_string(ttl_seconds) +
              " s needs nsup-period > 0 in namespace " + ns,
          status.server_result(), status.in_doubt()};
}

}  // namespace

ObjectPut::ObjectPut(std::shared_ptr<Batch> batch, size_t index)
    : batch_(std::move(batch)),
      index_(index),
      context_(batch_->context()),
      payload_(batch_->item(index).payload),
      meta_digest_(context_.meta_digest(batch_->item(index).key)),
      ttl_seconds_(batch_->item(index).pin ? -1
                                           : batch_->item(index).ttl_seconds.value_or(
                                                 context_.options.default_ttl_seconds)),
      meta_(context_, *this),
      remove_(context_, *this) {}

void ObjectPut::start(std::shared_ptr<Batch> batch, size_t index,
                      std::vector<client::Command*>& commands) {
  auto* object = new ObjectPut(std::move(batch), index);  // deleted by finish()
  Result<SegmentPlan> plan =
      plan_segments(object->payload_.size(), object->context_.limits()->segments);
  if (!plan) return object->finish(plan.error());
  object->plan_ = *plan;
  if (plan->is_inline()) {
    commands.push_back(object->prepare_meta());
    return;
  }
  const std::string& key = object->batch_->item(index).key;
  CommandOwner& owner = *object;
  const uint32_t ttl = object->context_.segment_wire_ttl(object->ttl_seconds_);
  const std::vector<wire::Digest> digests =
      object->context_.segment_digests(key, plan->segment_count);
  object->segments_.reserve(plan->segment_count);
  for (uint32_t i = 0; i < plan->segment_count; ++i) {
    SegmentPut& segment = object->segments_.emplace_back(object->context_, owner);
    segment.prepare(digests[i], true, object->batch_->store_deadline(), plan->bytes(i));
    segment.set_slice(object->payload_.subspan(static_cast<size_t>(plan->offset(i)),
                                               static_cast<size_t>(plan->bytes(i))),
                      ttl);
    commands.push_back(&segment);
  }
  object->commands_left_.store(plan->segment_count, std::memory_order_release);
}

void ObjectPut::command_done() {
  if (commands_left_.fetch_sub(1, std::memory_order_acq_rel) > 1) return;
  context_.counters.of(Operation::put).round_trips.fetch_add(1, std::memory_order_relaxed);
  switch (step_) {
    case Step::segments:
      return segments_done();
    case Step::meta:
      return meta_done();
    case Step::cleanup:
      return finish(std::move(failure_));
  }
}

void ObjectPut::segments_done() {
  for (uint32_t i = 0; i < segments_.size(); ++i) {
    Status status = segments_[i].outcome("store segment " + std::to_string(i));
    if (!status) return withdraw(std::move(status));
  }
  context_.client->submit(prepare_meta());
}

client::Command* ObjectPut::prepare_meta() {
  const Item& item = batch_->item(index_);
  step_ = Step::meta;
  MetaRecord& record = meta_.record;
  record.plan = plan_;
  record.created_at = unix_seconds();
  record.pin = item.pin;
  record.metadata.assign(item.metadata.begin(), item.metadata.end());
  record.serde = item.serde;
  record.raw_bytes = item.serde.empty() ? 0 : item.raw_bytes;
  if (context_.options.enable_crc32) record.crc32 = store::crc32(payload_);
  for (const SegmentPut& segment : segments_) record.sums.push_back(segment.sum());
  if (plan_.is_inline()) meta_.payload = payload_;
  if (context_.options.send_key) meta_.user_key = meta_user_key(item.key);
  meta_.wire_ttl = Context::wire_ttl(ttl_seconds_);
  meta_.prepare(meta_digest_, true, batch_->store_deadline(),
                plan_.is_inline() ? plan_.total_bytes : 0);
  commands_left_.store(1, std::memory_order_release);
  return &meta_;
}

void ObjectPut::meta_done() {
  Status status = meta_.outcome("store the meta record");
  if (!status) return withdraw(std::move(status));
  context_.damaged.remove(meta_digest_);
  context_.counters.stored_segment_counts.add(plan_.segment_count);
  context_.counters.stored_segment_bytes.add(plan_.segment_bytes);
  // Generation 1 is a new record: nothing older can have left segments behind.
  if (meta_.header().generation != 1) {
    batch_->note_overwrite(index_, plan_.is_inline() ? 0 : plan_.segment_count);
  }
  finish({});
}

/// Whether the server may have seen anything of this store.
bool ObjectPut::was_sent() const {
  return meta_.was_sent() ||
         std::any_of(segments_.begin(), segments_.end(),
                     [](const SegmentPut& segment) { return segment.was_sent(); });
}

/// Its time was over before the first request had a turn: an older object under the key stays.
void ObjectPut::shed() {
  context_.count_shed(ShedReason::deadline, 1);
  is_shed_ = true;
  finish({Code::overloaded, "store: shed: the deadline passed before its turn came"});
}

/// After a failure: no reader may find the object, neither this nor an older one whose segments
/// were overwritten.
void ObjectPut::withdraw(Status status) {
  if (!was_sent()) {
    return status.code() == Code::timeout ? shed() : finish(std::move(status));
  }
  failure_ = explain(std::move(status), ttl_seconds_, context_.options.ns);
  context_.damaged.add(meta_digest_);
  if (failure_.code() == Code::too_big) refresh_limits(batch_->context_ptr());
  if (failure_.server_result() == wire::result::kOutOfSpace) {
    context_.admission.stop_writes("store failed: " + failure_.message());
  }
  if (failure_.code() == Code::closed) return finish(std::move(failure_));
  step_ = Step::cleanup;
  const TimePoint end = std::min(batch_->deadline(), SteadyClock::now() + kCleanupTimeout);
  remove_.prepare(meta_digest_, true, end, 0);
  commands_left_.store(1, std::memory_order_release);
  context_.client->submit(&remove_);
}

void ObjectPut::finish(Status status) {
  ItemResult result;
  result.outcome = status.ok() ? Outcome::hit : Outcome::error;
  result.bytes = status.ok() ? payload_.size() : 0;
  result.status = std::move(status);
  const std::shared_ptr<Batch> batch = batch_;
  const size_t index = index_;
  const bool is_shed = is_shed_;
  delete this;
  batch->context().admission.ended(*batch, index, result.status);
  if (is_shed) return batch->shed(index, std::move(result.status));
  batch->finish(index, std::move(result));
}

}  // namespace aerokv::store
