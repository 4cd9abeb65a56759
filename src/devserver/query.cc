// SPDX-License-Identifier: Apache-2.0
// Queries over the primary index: the records of some partitions, in pieces.
#include <algorithm>
#include <bitset>

#include "devserver/service.h"
#include "wire/result.h"

namespace aerokv::devserver {
namespace {

namespace result = wire::result;

constexpr uint64_t kPieceBytes = 1 << 20;
constexpr size_t kTasksRemembered = 128;

/// One partition of a query and where in it to begin.
struct Span {
  uint32_t partition = 0;
  bool resumes = false;
  wire::Digest after{};
};

/// Reads fields 11 and 12. False for an illegal or repeated partition.
bool read_spans(const Request& request, std::vector<Span>& spans) {
  std::bitset<kPartitionCount> seen;
  const auto add = [&](const Span& span) {
    if (span.partition >= kPartitionCount || seen[span.partition]) return false;
    seen[span.partition] = true;
    spans.push_back(span);
    return true;
  };
  if (request.partition_ids) {
    Bytes ids = *request.partition_ids;
    if (ids.size() % 2 != 0) return false;
    for (; !ids.empty(); ids = ids.subspan(2)) {
      if (!add({load_le<uint16_t>(ids.data()), false, {}})) return false;
    }
  }
  if (request.resume_digests) {
    Bytes digests = *request.resume_digests;
    if (digests.size() % kDigestBytes != 0) return false;
    for (; !digests.empty(); digests = digests.subspan(kDigestBytes)) {
      Span span;
      span.resumes = true;
      std::copy_n(digests.begin(), kDigestBytes, span.after.begin());
      span.partition = wire::partition_of(span.after);
      if (!add(span)) return false;
    }
  }
  return true;
}

}  // namespace

/// A query under way. Records are looked up anew for each partition, so writes go on meanwhile.
class QueryRun : public Continuation {
 public:
  QueryRun(Service& service, Namespace& ns, int node, const Request& request,
           std::vector<Span> spans)
      : service_(service),
        ns_(ns),
        node_(node),
        request_(request),
        spans_(std::move(spans)),
        set_(request.set_name().empty() ? nullptr : ns.find_set(request.set_name())),
        set_is_unknown_(!request.set_name().empty() && set_ == nullptr),
        left_(request.max_records.value_or(0) == 0 ? UINT64_MAX : *request.max_records) {}

  Step step(Answer& out, TimePoint) override {
    const uint64_t before = out.size();
    const size_t at = out.begin_frame();
    while (next_ < spans_.size() && left_ > 0 && out.size() - before < kPieceBytes) {
      if (!send_partition(spans_[next_], out, before)) break;
      ++next_;
    }
    if (out.frame_bytes(at) == 0) {
      out.rewind(at);
    } else {
      out.end_frame(at, wire::MessageType::record);
    }
    if (next_ < spans_.size() && left_ > 0) return Step::again;
    const size_t last = out.begin_frame();
    wire::MessageHeader header;
    header.info3 = wire::info3::kLast;
    out.writer().header(header);
    out.end_frame(last, wire::MessageType::record);
    return Step::done;
  }

 private:
  // False if the piece is full before the partition is done; `span` then tells where to go on.
  bool send_partition(Span& span, Answer& out, uint64_t before) {
    if (!service_.cluster.has_copy(node_, span.partition)) {
      wire::MessageHeader header;
      header.result_code = result::kUnavailable;
      header.info3 = wire::info3::kPartitionDone;
      header.generation = span.partition;
      out.writer().header(header);
      return true;
    }
    if (set_is_unknown_) return true;
    const std::scoped_lock lock(ns_.lock_of(span.partition));
    const Table& table = ns_.table(node_, span.partition);
    if (table.size() == 0) return true;
    std::vector<Record*> records = table.records();
    std::sort(records.begin(), records.end(),
              [](const Record* a, const Record* b) { return a->digest > b->digest; });
    const uint64_t now_ns = unix_nanoseconds();
    for (const Record* record : records) {
      if (left_ == 0) return true;
      if (span.resumes && !(record->digest < span.after)) continue;
      if (set_ != nullptr && record->set != set_) continue;
      if (ns_.is_hidden(*record, now_ns) || !has_wanted_bin(*record)) continue;
      if (out.size() - before >= kPieceBytes) return false;
      send_record(*record, out);
      span.resumes = true;
      span.after = record->digest;
      --left_;
    }
    return true;
  }

  void send_record(const Record& record, Answer& out) const {
    const bool no_bins = (request_.header.info1 & wire::info1::kNoBinData) != 0;
    const size_t at = out.begin_unit();
    wire::MessageHeader header;
    header.info1 = no_bins ? wire::info1::kNoBinData : uint8_t{0};
    header.generation = record.generation;
    header.record_ttl = record.void_time;
    header.field_count = 2;
    wire::UnitWriter writer = out.writer();
    writer.field(wire::FieldType::ns, as_bytes(ns_.name()));
    writer.field(wire::FieldType::digest, record.digest);
    if (record.set != nullptr) {
      writer.field(wire::FieldType::set, as_bytes(record.set->name));
      ++header.field_count;
    }
    if (!record.key.empty()) {
      writer.field(wire::FieldType::user_key, as_bytes(record.key));
      ++header.field_count;
    }
    OpSink sink(out);
    if (!no_bins) send_bins(record, sink);
    header.op_count = sink.count();
    out.end_unit(at, header);
  }

  // A record that has none of the bins asked for is left out.
  [[nodiscard]] bool has_wanted_bin(const Record& record) const {
    return request_.ops.empty() || (request_.header.info1 & wire::info1::kNoBinData) != 0 ||
           std::any_of(request_.ops.begin(), request_.ops.end(),
                       [&](const wire::Op& op) { return record.find(op.name) != nullptr; });
  }

  void send_bins(const Record& record, OpSink& sink) const {
    constexpr auto kRead = static_cast<uint8_t>(wire::OpType::read);
    if (request_.ops.empty()) {
      for (const Bin& bin : record.bins) sink.value(kRead, bin);
      return;
    }
    for (const wire::Op& op : request_.ops) {
      if (const Bin* bin = record.find(op.name)) sink.value(kRead, *bin);
    }
  }

  Service& service_;
  Namespace& ns_;
  const int node_;
  const Request& request_;
  std::vector<Span> spans_;
  Set* const set_;
  const bool set_is_unknown_;
  uint64_t left_;
  size_t next_ = 0;
};

bool Service::claim_task(int node, uint64_t task_id) {
  const std::scoped_lock lock(tasks_mutex_);
  auto& tasks = recent_tasks_[static_cast<size_t>(node)];
  if (std::find(tasks.begin(), tasks.end(), task_id) != tasks.end()) return false;
  tasks.push_back(task_id);
  if (tasks.size() > kTasksRemembered) tasks.pop_front();
  return true;
}

std::unique_ptr<Continuation> Service::query(Client& client, Request& request, Answer& out) {
  const auto refuse = [&](uint8_t code) {
    out.header_only(code);
    return nullptr;
  };
  Namespace* ns = request.ns ? find_namespace(*request.ns) : nullptr;
  if (ns == nullptr) return refuse(result::kNamespace);
  if (!cluster.is_member(client.node)) return refuse(result::kUnavailable);
  if (request.has_index_range || request.has_udf || request.has_filter) {
    return refuse(result::kUnsupported);
  }
  if (!request.partition_ids && !request.resume_digests) return refuse(result::kUnsupported);
  if ((request.header.info3 & wire::info3::kPartitionDone) == 0) {
    return refuse(result::kUnsupported);
  }
  if (const uint8_t code = users.admit(client.session, Action::read)) return refuse(code);
  std::vector<Span> spans;
  if (!read_spans(request, spans)) return refuse(result::kParameter);
  if (request.task_id && !claim_task(client.node, *request.task_id)) {
    return refuse(result::kParameter);
  }
  ns->counters(client.node).queries.fetch_add(1, std::memory_order_relaxed);
  auto run = std::make_unique<QueryRun>(*this, *ns, client.node, request, std::move(spans));
  if (run->step(out, TimePoint{}) == Continuation::Step::done) return nullptr;
  return run;
}

}  // namespace aerokv::devserver
