// SPDX-License-Identifier: Apache-2.0
#include "store/object_get.h"

#include "store/outcome_log.h"

namespace aerokv::store {
namespace {

// The layout of a live object can change once more between two waves; a third says that writers
// are at work right now, and the answer is a miss.
constexpr int kWavesMax = 3;

std::string name_of(std::string_view serde) {
  return serde.empty() ? "none" : "\"" + std::string(serde) + "\"";
}

}  // namespace

ObjectGet::ObjectGet(std::shared_ptr<Batch> batch, size_t index)
    : batch_(std::move(batch)),
      index_(index),
      context_(batch_->context()),
      target_(batch_->item(index).target),
      meta_digest_(context_.meta_digest(batch_->item(index).key)),
      meta_(context_, *this) {}

void ObjectGet::start(std::shared_ptr<Batch> batch, size_t index,
                      std::vector<client::Command*>& commands) {
  auto* object = new ObjectGet(std::move(batch), index);  // deleted by finish()
  const uint64_t bytes = object->target_.size();
  if (object->batch_->item(index).size_is_unknown) {
    return object->plan_wave({1, bytes, bytes}, commands);
  }
  Result<SegmentPlan> plan = plan_segments(bytes, object->context_.limits()->segments);
  if (!plan) return object->fail(plan.error());
  object->plan_wave(*plan, commands);
}

void ObjectGet::plan_wave(const SegmentPlan& plan, std::vector<client::Command*>& commands) {
  ++wave_;
  plan_ = plan;
  segments_.clear();
  const std::string& key = batch_->item(index_).key;
  CommandOwner& owner = *this;
  const uint32_t segment_count = plan.is_inline() ? 0 : plan.segment_count;
  const std::vector<wire::Digest> digests = context_.segment_digests(key, segment_count);
  segments_.reserve(segment_count);
  meta_.set_target(target_, plan.is_inline());
  meta_.prepare(meta_digest_, false, batch_->deadline(), plan.is_inline() ? plan.total_bytes : 0);
  commands.push_back(&meta_);
  for (uint32_t i = 0; i < segment_count; ++i) {
    SegmentGet& segment = segments_.emplace_back(context_, owner);
    segment.prepare(digests[i], false, batch_->deadline(), plan.bytes(i));
    segment.set_slice(
        target_.subspan(static_cast<size_t>(plan.offset(i)), static_cast<size_t>(plan.bytes(i))));
    commands.push_back(&segment);
  }
  commands_left_.store(static_cast<uint32_t>(1 + segments_.size()), std::memory_order_release);
}

void ObjectGet::command_done() {
  // acq_rel: the last one sees what the others received.
  if (commands_left_.fetch_sub(1, std::memory_order_acq_rel) == 1) evaluate();
}

void ObjectGet::evaluate() {
  if (meta_.is_missing()) {
    return miss(MissReason::not_found, {}, false);
  }
  if (Status status = meta_.outcome("load the meta record"); !status)
    return fail(std::move(status));
  Result<MetaRecord> meta = meta_.decode();
  if (!meta) {
    const bool is_other_state = meta.error().code() == Code::not_found;
    return miss(is_other_state ? MissReason::not_ready : MissReason::bad_meta, meta.error(), true);
  }
  // Known absent from now on: a lookup that finds what no load can use costs more than a miss.
  if (const std::string_view serde = batch_->item(index_).serde; meta->serde != serde) {
    return miss(MissReason::other_serde,
                {Code::corruption, "load: stored with serde " + name_of(meta->serde) +
                                       ", this reader has " + name_of(serde)},
                true);
  }
  if (meta->plan.total_bytes > target_.size()) return miss_too_large(*meta);
  if (meta->plan.is_inline()) return evaluate_inline(*meta);
  evaluate_segments(*meta);
}

/// Starts another wave by the meta record's own plan; false if there were enough.
bool ObjectGet::next_wave(const MetaRecord& meta) {
  if (wave_ >= kWavesMax || SteadyClock::now() >= batch_->deadline()) return false;
  std::vector<client::Command*> commands;
  plan_wave(meta.plan, commands);
  context_.client->submit(commands);
  return true;
}

/// Whether the object is there is not known if only the time is over.
void ObjectGet::no_other_wave() {
  if (wave_ < kWavesMax) {
    return fail(
        {Code::timeout, "load: the deadline passed before the object's own layout was asked"});
  }
  miss(MissReason::segment_sum, {Code::corruption, "load: the object keeps changing"}, false);
}

void ObjectGet::miss_too_large(const MetaRecord& meta) {
  const uint64_t bytes = meta.plan.total_bytes;
  context_.count_miss(MissReason::too_large);
  ItemResult result;
  result.metadata = meta.metadata;
  result.outcome = Outcome::miss;
  result.bytes = bytes;
  result.raw_bytes = meta.raw_bytes;
  result.status = {Code::corruption, "load: the object has " + std::to_string(bytes) +
                                         " bytes, the buffer " + std::to_string(target_.size())};
  log_miss(context_.options, MissReason::too_large, result.status);
  finish(std::move(result));
}

void ObjectGet::evaluate_inline(const MetaRecord& meta) {
  if (!meta_.payload_received()) {  // segments were expected, so the payload was skipped
    if (next_wave(meta)) return;
    return no_other_wave();
  }
  if (!payload_is_intact(meta, meta.plan)) {
    return miss(MissReason::payload_hash,
                {Code::corruption, "load: the payload does not match its sum"}, true);
  }
  hit(meta);
}

/// True if the segment was written by another store than the meta record.
bool ObjectGet::is_foreign(const SegmentGet& segment, const MetaRecord& meta, uint32_t index) {
  if (!meta.sums.empty()) return segment.sum() != meta.sums[index];
  // A writer without sums made the meta record. A sum in a segment is either ours, then the segment
  // is too, or an older one that this writer left beside its own payload.
  return segment.sum() && *segment.sum() == segment_sum(segment.slice());
}

void ObjectGet::evaluate_segments(const MetaRecord& meta) {
  if (plan_ != meta.plan) {
    if (next_wave(meta)) return;
    return no_other_wave();
  }
  for (uint32_t i = 0; i < segments_.size(); ++i) {
    const SegmentGet& segment = segments_[i];
    const std::string what = "load segment " + std::to_string(i);
    if (segment.is_missing()) {
      return miss(MissReason::segment_missing, {Code::corruption, what + ": not there"}, true);
    }
    if (Status status = segment.outcome(what); !status) return fail(std::move(status));
    if (!segment.is_complete()) {
      return miss(MissReason::segment_size,
                  {Code::corruption,
                   what + ": not one blob of " + std::to_string(segment.slice().size()) + " bytes"},
                  true);
    }
    if (context_.options.verify != Verify::none && is_foreign(segment, meta, i)) {
      return miss(MissReason::segment_sum,
                  {Code::corruption, what + ": it belongs to another write of the object"}, true);
    }
  }
  if (!payload_is_intact(meta, meta.plan)) {
    return miss(MissReason::payload_hash,
                {Code::corruption, "load: the payload does not match its sums"}, true);
  }
  hit(meta);
}

/// Hashes what was received, as far as the options ask for it.
bool ObjectGet::payload_is_intact(const MetaRecord& meta, const SegmentPlan& plan) const {
  const Bytes payload = target_.first(static_cast<size_t>(plan.total_bytes));
  if (context_.options.verify == Verify::full && !meta.sums.empty()) {
    for (uint32_t i = 0; i < plan.segment_count; ++i) {
      const Bytes slice =
          payload.subspan(static_cast<size_t>(plan.offset(i)), static_cast<size_t>(plan.bytes(i)));
      if (segment_sum(slice) != meta.sums[i]) return false;
    }
  }
  const bool check_crc = context_.options.enable_crc32 || context_.options.verify == Verify::full;
  if (!check_crc) return true;
  for (const SegmentGet& segment : segments_) {
    if (segment.crc32() && store::crc32(segment.slice()) != *segment.crc32()) return false;
  }
  return !meta.crc32 || store::crc32(payload) == *meta.crc32;
}

void ObjectGet::hit(MetaRecord meta) {
  ItemResult result;
  result.outcome = Outcome::hit;
  result.bytes = meta.plan.total_bytes;
  result.raw_bytes = meta.raw_bytes;
  result.metadata = std::move(meta.metadata);
  context_.damaged.remove(meta_digest_);
  finish(std::move(result));
}

void ObjectGet::miss(MissReason reason, Status why, bool damaged) {
  context_.count_miss(reason);
  log_miss(context_.options, reason, why);
  if (damaged) context_.damaged.add(meta_digest_);
  ItemResult result;
  result.outcome = Outcome::miss;
  result.status = std::move(why);
  finish(std::move(result));
}

void ObjectGet::fail(Status status) {
  ItemResult result;
  result.status = std::move(status);
  finish(std::move(result));
}

void ObjectGet::finish(ItemResult result) {
  context_.counters.of(Operation::get)
      .round_trips.fetch_add(static_cast<uint64_t>(wave_), std::memory_order_relaxed);
  const std::shared_ptr<Batch> batch = batch_;
  const size_t index = index_;
  delete this;  // before the batch may report: then nothing of this object touches the target
  batch->finish(index, std::move(result));
}

}  // namespace aerokv::store
