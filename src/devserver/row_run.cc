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
    const bool there = cluster_->life(target_) == target_life_ && cluster_->is_alive(target_);
    if (!there) {
      if (now < deadline_) return false;
      add_one(place_.ns->counters(asked_).proxy_timeout);
      refuse(result::kTimeout, out);
      return true;
    }
    execute(out);
    if (!waiting_) return true;
  }
  wait_for_replicas();
  if (!waiting_) {
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
  if (waiting_) {
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
  const NodeList replicas = cluster_->replicas(target_, place_.partition);
  const bool waits = (request_->header.info3 & wire::info3::kCommitMaster) == 0;
  for (uint8_t i = 0; i < replicas.count; ++i) {
    const int replica = replicas.nodes[i];
    if (cluster_->is_alive(replica)) {
      copy_record(replica);
    } else if (waits) {
      waiting_life_[static_cast<size_t>(replica)] = cluster_->life(replica);
      waiting_ = true;
    }
  }
}

// A dead replica is waited for until it goes on, or the cluster has given its place away.
void RowRun::wait_for_replicas() {
  const NodeList replicas = cluster_->replicas(target_, place_.partition);
  waiting_ = false;
  for (int node = 0; node < cluster_->size(); ++node) {
    uint64_t& life = waiting_life_[static_cast<size_t>(node)];
    if (life == 0) continue;
    if (cluster_->life(node) == life && cluster_->is_alive(node)) {
      const std::scoped_lock lock(place_.ns->lock_of(place_.partition));
      copy_record(node);
      life = 0;
    } else if (!replicas.contains(node)) {
      life = 0;
    } else {
      waiting_ = true;
    }
  }
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
