// SPDX-License-Identifier: Apache-2.0
#include "devserver/fault_plan.h"

#include <algorithm>
#include <string>

namespace aerokv::devserver {
namespace {

constexpr std::array<std::string_view, kRequestKinds> kKindNames = {
    "info",   "login",   "authenticate", "get",       "exists", "put",  "touch",
    "remove", "operate", "batch",        "batch_row", "query",  "other"};

constexpr std::array<std::string_view, kFaultActions> kActionNames = {
    "delay",  "latency",           "drop",        "drop_answer",
    "close",  "close_after_bytes", "result_code", "result_after_execute",
    "damage", "freeze_node",       "stop_node"};

constexpr std::array<std::string_view, kDamages> kDamageNames = {
    "garbage_body",     "garbage_frame",   "flip_value_bit",   "shorter_value",
    "longer_value",     "wrong_bin_name",  "wrong_particle",   "op_size_over",
    "op_count_over",    "op_count_under",  "field_count_over", "frame_size_over",
    "frame_size_under", "frame_size_huge", "wrong_type",       "index_out_of_range",
    "index_duplicate",  "missing_row",     "extra_row",        "no_final_unit",
    "empty_frame"};

template <typename Enum, size_t N>
std::optional<Enum> from_name(const std::array<std::string_view, N>& names, std::string_view name) {
  const auto it = std::find(names.begin(), names.end(), name);
  if (it == names.end()) return std::nullopt;
  return static_cast<Enum>(it - names.begin());
}

template <typename Enum, size_t N>
std::string_view name_of(const std::array<std::string_view, N>& names, Enum value) {
  const auto index = static_cast<size_t>(value);
  return index < N ? names[index] : "unknown";
}

}  // namespace

std::string_view request_kind_name(RequestKind kind) {
  return name_of(kKindNames, kind);
}
std::optional<RequestKind> request_kind_from_name(std::string_view name) {
  return from_name<RequestKind>(kKindNames, name);
}
std::string_view fault_action_name(FaultAction action) {
  return name_of(kActionNames, action);
}
std::optional<FaultAction> fault_action_from_name(std::string_view name) {
  return from_name<FaultAction>(kActionNames, name);
}
std::string_view damage_name(Damage damage) {
  return name_of(kDamageNames, damage);
}
std::optional<Damage> damage_from_name(std::string_view name) {
  return from_name<Damage>(kDamageNames, name);
}

uint64_t FaultPlan::add(Fault fault) {
  const std::scoped_lock lock(mutex_);
  entries_.push_back({++last_id_, std::make_shared<const Fault>(std::move(fault)), 0, 0});
  recount();
  return last_id_;
}

bool FaultPlan::remove(uint64_t id) {
  const std::scoped_lock lock(mutex_);
  const bool removed = std::erase_if(entries_, [id](const Entry& e) { return e.id == id; }) > 0;
  recount();
  changed_.notify_all();
  return removed;
}

void FaultPlan::clear() {
  const std::scoped_lock lock(mutex_);
  entries_.clear();
  recount();
  changed_.notify_all();
}

void FaultPlan::recount() {
  uint32_t rows = 0;
  for (const Entry& e : entries_) {
    if ((e.fault->kinds & mask_of(RequestKind::batch_row)) != 0) ++rows;
  }
  row_faults_.store(rows, std::memory_order_relaxed);
  active_.store(static_cast<uint32_t>(entries_.size()), std::memory_order_relaxed);
}

std::vector<FaultCounter> FaultPlan::counters() const {
  const std::scoped_lock lock(mutex_);
  std::vector<FaultCounter> all;
  for (const Entry& e : entries_) all.push_back({e.id, e.matched, e.applied});
  return all;
}

Status FaultPlan::await(uint64_t id, uint64_t count, std::chrono::milliseconds timeout) {
  std::unique_lock lock(mutex_);
  const auto find_entry = [&] {
    return std::find_if(entries_.begin(), entries_.end(),
                        [id](const Entry& e) { return e.id == id; });
  };
  const bool reached = changed_.wait_for(lock, timeout, [&] {
    const auto it = find_entry();
    return it == entries_.end() || it->applied >= count;
  });
  const auto it = find_entry();
  if (it == entries_.end()) {
    return {Code::not_found, "await fault " + std::to_string(id) + ": no such fault"};
  }
  if (reached) return {};
  return {Code::timeout, "await fault " + std::to_string(id) + ": applied " +
                             std::to_string(it->applied) + " times, expected " +
                             std::to_string(count)};
}

bool FaultPlan::concerns(const Fault& fault, const FaultSubject& subject) {
  if (fault.node >= 0 && fault.node != subject.node) return false;
  if ((fault.kinds & mask_of(subject.kind)) == 0) return false;
  const RecordRequest* request = subject.request;
  if (!fault.set.empty() && (request == nullptr || request->set_name() != fault.set)) return false;
  if (!fault.key_contains.empty() &&
      (request == nullptr ||
       as_text(request->key).find(fault.key_contains) == std::string_view::npos)) {
    return false;
  }
  if (fault.digests.empty()) return true;
  if (request == nullptr || !request->digest || request->digest->size() != kDigestBytes) {
    return false;
  }
  return std::any_of(fault.digests.begin(), fault.digests.end(), [&](const wire::Digest& d) {
    return std::equal(d.begin(), d.end(), request->digest->begin());
  });
}

std::shared_ptr<const Fault> FaultPlan::find(const FaultSubject& subject) {
  const std::scoped_lock lock(mutex_);
  std::shared_ptr<const Fault> found;
  for (Entry& e : entries_) {
    if (!concerns(*e.fault, subject)) continue;
    ++e.matched;
    if (found != nullptr || e.matched <= e.fault->skip) continue;
    if (e.fault->count != 0 && e.applied >= e.fault->count) continue;
    ++e.applied;
    found = e.fault;
  }
  if (found != nullptr) changed_.notify_all();
  return found;
}

}  // namespace aerokv::devserver
