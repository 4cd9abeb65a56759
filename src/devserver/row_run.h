// SPDX-License-Identifier: Apache-2.0
// One request for one record on its way through the cluster: executed by the node that owns the
// partition, copied to the replicas, held back while a node that must take part is dead.
#pragma once

#include "base/clock.h"
#include "devserver/cluster.h"
#include "devserver/execute.h"

namespace aerokv::devserver {

class RowRun {
 public:
  /// `index` comes back in the unit (batch rows). The request must outlive the run.
  RowRun(Cluster& cluster, Namespace& ns, int asked, const RecordRequest& request, uint32_t index);

  /// True if another node than the one asked executes it.
  [[nodiscard]] bool is_passed_on() const { return target_ != asked_; }

  /// False if it certainly finishes at once: then `now` and the deadline do not matter.
  [[nodiscard]] bool needs_time() const { return cluster_->size() > 1; }

  /// Goes as far as possible. True when the unit stands in `out`; else call again later.
  /// Appends nothing before it returns true.
  bool advance(Answer& out, TimePoint now);

  /// Goes on with an equal request in another place.
  void rebind(const RecordRequest& request) { request_ = &request; }

  void set_deadline(TimePoint deadline) { deadline_ = deadline; }
  [[nodiscard]] TimePoint deadline() const { return deadline_; }
  [[nodiscard]] const Outcome& outcome() const { return outcome_; }

  /// Answers `code` without executing.
  void refuse(uint8_t code, Answer& out);

 private:
  void execute(Answer& out);
  void copy_to_replicas();
  void copy_record(int replica);
  void wait_for_replicas();
  void resolve_duplicate();
  void count(NamespaceCounters& counters) const;

  Cluster* cluster_;
  const RecordRequest* request_;
  Place place_;
  int asked_;
  int target_;
  uint64_t target_life_;
  uint32_t index_;
  TimePoint deadline_{};
  Outcome outcome_;
  bool executed_ = false;
  NodeMask waiting_ = 0;  // replicas that have not got their copy
  Answer held_;           // the unit of a write that waits for its replicas
};

}  // namespace aerokv::devserver
