// SPDX-License-Identifier: Apache-2.0
#include "devserver/row_run.h"

#include <algorithm>

#include "wire/result.h"

namespace aerokv::devserver {
namespace {

namespace result = wire::result;

void write_unit(Answer& out, size_t at, const Outcome& outcome, uint32_t index, uint16_t ops) {
  wire::MessageHeader header;
  header.result_code = outcome.code;
  header.generation = outcome.generation;
  header.record_ttl = outcome.void_time;
  header.transaction_ttl = index;
  header.op_count = ops;
  out.end_unit(at, header);
}

void add_one(std::atomic<uint64_t>& counter) {
  counter.fetch_add(1, std::memory_order_relaxed);
}

}  // namespace

RowRun::RowRun(Cluster& cluster, Namespace& ns, int asked, const RecordRequest& request,
               uint32_t index)
    : cluster_(&cluster), request_(&request), asked_(asked), index_(index) {
  place_.ns = &ns;
  std::copy(request.digest->begin(), request.digest->end(), place_.digest.begin());
  place_.partition = wire::partition_of(place_.digest);
  target_ = cluster.target(asked, place_.partition, request.is_write());
  target_life_ = cluster.life(target_);
  place_.node = target_;
}

void RowRun::refuse(uint8_t code, Answer& out) {
  outcome_ = {code, 0, 0};
  write_unit(out, out.begin_unit(), outcome_, index_, 0);
}

bool RowRun::advance(Answer& out, TimePoint now) {
  if (!executed_) {
    const bool there = cluster_->life(target_) == target_life_ && cluster_->takes_part(target_);
    if (!there) {
      if (now < deadline_) return false;
      add_one(place_.ns->counters(asked_).proxy_timeout);
      refuse(result::kTimeout, out);
      return true;
    }
    execute(out);
    if (waiting_ == 0) return true;
  }
  wait_for_replicas();
  if (waiting_ == 0) {
    out.append(std::move(held_));
    return true;
  }
  if (now < deadline_) return false;
  refuse(result::kTimeout, out);
  return true;
}

void RowRun::execute(Answer& out) {
  executed_ = true;
  const uint64_t now_ns = unix_nanoseconds();
  const size_t at = out.begin_unit();
  OpSink sink(out);
  {
    const std::scoped_lock lock(place_.ns->lock_of(place_.partition));
    if (cluster_->size() > 1) {
      // The partition may have been handed over since the target was chosen.
      const int target = cluster_->target(asked_, place_.partition, request_->is_write());
      if (cluster_->takes_part(target)) place_.node = target_ = target;
      resolve_duplicate();
    }
    if (request_->is_delete()) {
      outcome_ = execute_delete(place_, *request_);
    } else if (request_->is_write()) {
      outcome_ = execute_write(place_, *request_, now_ns, sink);
    } else {
      outcome_ = execute_read(place_, *request_, now_ns, sink);
    }
    if (outcome_.code == result::kOk && request_->is_write()) copy_to_replicas();
  }
  if (outcome_.code != result::kOk) out.drop_ops(at);
  write_unit(out, at, outcome_, index_, outcome_.code == result::kOk ? sink.count() : uint16_t{0});
  count(place_.ns->counters(target_));
  if (is_passed_on()) add_one(place_.ns->counters(asked_).proxy_complete);
  if (waiting_ != 0) {
    held_ = out.cut(at);
  }
}

// Requires the partition's lock.
void RowRun::copy_record(int replica) {
  const Record* record = place_.ns->table(target_, place_.partition).find(place_.digest);
  if (record == nullptr) {
    place_.ns->remove_record(replica, place_.partition, place_.digest);
  } else {
    place_.ns->put_record(replica, place_.partition, std::make_unique<Record>(*record));
  }
}

// Requires the partition's lock.
void RowRun::copy_to_replicas() {
  const NodeMask replicas = cluster_->replicas(target_, place_.partition);
  const bool waits = (request_->header.info3 & wire::info3::kCommitMaster) == 0;
  for (int node = 0; node < cluster_->size() && replicas != 0; ++node) {
    if ((replicas & mask_of_node(node)) == 0) continue;
    if (cluster_->takes_part(node)) {
      copy_record(node);
    } else if (waits) {
      waiting_ |= mask_of_node(node);
    }
  }
}

// A dead replica is waited for until it goes on, or the cluster has given its place away.
void RowRun::wait_for_replicas() {
  const NodeMask replicas = cluster_->replicas(target_, place_.partition);
  waiting_ &= replicas;
  for (int node = 0; node < cluster_->size() && waiting_ != 0; ++node) {
    const NodeMask bit = mask_of_node(node);
    if ((waiting_ & bit) == 0 || !cluster_->takes_part(node)) continue;
    const std::scoped_lock lock(place_.ns->lock_of(place_.partition));
    copy_record(node);
    waiting_ = static_cast<NodeMask>(waiting_ & ~bit);
  }
}

// Requires the partition's lock. A master that came back with old data looks at the other holder
// before it writes, and on reads that ask for it.
void RowRun::resolve_duplicate() {
  const int duplicate = cluster_->duplicate(target_, place_.partition);
  if (duplicate < 0 || !cluster_->takes_part(duplicate)) return;
  if (!request_->is_write() && (request_->header.info1 & wire::info1::kReadModeAll) == 0) return;
  const Record* other = place_.ns->table(duplicate, place_.partition).find(place_.digest);
  if (other != nullptr) place_.ns->merge_record(*other, place_.partition, target_);
}

void RowRun::count(NamespaceCounters& c) const {
  const bool in_batch = (request_->header.info1 & wire::info1::kBatch) != 0;
  const bool ok = outcome_.code == result::kOk;
  const bool missing = outcome_.code == result::kNotFound;
  if (request_->is_delete()) {
    if (ok) return add_one(in_batch ? c.batch_delete_success : c.delete_success);
    if (missing) return add_one(in_batch ? c.batch_delete_not_found : c.delete_not_found);
    return add_one(in_batch ? c.batch_delete_error : c.delete_error);
  }
  if (request_->is_write()) {
    if (ok) return add_one(in_batch ? c.batch_write_success : c.write_success);
    return add_one(in_batch ? c.batch_write_error : c.write_error);
  }
  if (ok) return add_one(in_batch ? c.batch_read_success : c.read_success);
  if (missing) return add_one(in_batch ? c.batch_read_not_found : c.read_not_found);
  add_one(in_batch ? c.batch_read_error : c.read_error);
}

}  // namespace aerokv::devserver
