// SPDX-License-Identifier: Apache-2.0
// Batches: many rows in one message, one unit for each in the answer.
#include <algorithm>
#include <list>

#include "devserver/row_run.h"
#include "devserver/service.h"
#include "wire/result.h"

namespace aerokv::devserver {
namespace {

namespace result = wire::result;

constexpr milliseconds kLookInterval{2};

// Answers of rows leave in frames of about this size; a larger row has a frame of its own.
constexpr uint64_t kFrameBytesMax = 128 << 10;

constexpr uint8_t kAnswerAll = 0x04;
constexpr uint8_t kReportFailing = 0x08;

namespace row_bits {
constexpr uint8_t kRepeat = 0x01, kExtraInfo = 0x02, kGeneration = 0x04, kTtl = 0x08, kInfo4 = 0x10;
}

/// Reads the rows of field 41 one by one.
class RowReader {
 public:
  explicit RowReader(Bytes rows) : rest_(rows) {}

  /// Fills `row` and `index`; a repeat row keeps what `row` had. False if malformed.
  bool next(RecordRequest& row, uint32_t& index) {
    if (rest_.size() < 4 + kDigestBytes + 1) return false;
    index = load_be<uint32_t>(rest_.data());
    row.digest = rest_.subspan(4, kDigestBytes);
    const auto bits = std::to_integer<uint8_t>(rest_[4 + kDigestBytes]);
    rest_ = rest_.subspan(4 + kDigestBytes + 1);
    if (bits == row_bits::kRepeat) return have_row_ && row.key.empty();
    have_row_ = true;
    return header(row, bits) && fields(row) && ops(row);
  }

 private:
  template <typename T>
  bool number(T& value) {
    if (rest_.size() < sizeof(T)) return false;
    value = load_be<T>(rest_.data());
    rest_ = rest_.subspan(sizeof(T));
    return true;
  }

  bool header(RecordRequest& row, uint8_t bits) {
    wire::MessageHeader h;
    if (!number(h.info1)) return false;
    if ((bits & row_bits::kExtraInfo) != 0 && !(number(h.info2) && number(h.info3))) return false;
    if ((bits & row_bits::kInfo4) != 0 && !number(h.info4)) return false;
    if ((bits & row_bits::kGeneration) != 0) {
      uint16_t generation = 0;
      if (!number(generation)) return false;
      h.generation = generation;
    }
    if ((bits & row_bits::kTtl) != 0 && !number(h.record_ttl)) return false;
    if (!number(h.field_count) || !number(h.op_count)) return false;
    // Bits that mean nothing in a row are ignored; the batch bit marks rows for the counters.
    h.info1 = static_cast<uint8_t>((h.info1 & ~0x90) | wire::info1::kBatch);
    row.header = h;
    return true;
  }

  bool fields(RecordRequest& row) {
    row.ns.reset();
    row.set.reset();
    row.key = {};
    row.has_filter = false;
    const uint32_t count = std::max<uint32_t>(row.header.field_count, 1);
    for (uint32_t i = 0; i < count; ++i) {
      wire::UnitReader reader(rest_);
      const auto field = reader.field();
      if (!field) return false;
      rest_ = reader.rest();
      const auto type = static_cast<wire::FieldType>(field->type);
      if (i == 0 && type != wire::FieldType::ns) return false;
      if (type == wire::FieldType::ns) row.ns = as_text(field->value);
      if (type == wire::FieldType::set) row.set = as_text(field->value);
      if (type == wire::FieldType::user_key) row.key = field->value;
      if (type == wire::FieldType::filter) row.has_filter = true;
    }
    return true;
  }

  bool ops(RecordRequest& row) {
    row.ops.clear();
    for (uint32_t i = 0; i < row.header.op_count; ++i) {
      wire::UnitReader reader(rest_);
      const auto op = reader.op();
      if (!op) return false;
      rest_ = reader.rest();
      row.ops.push_back(*op);
    }
    return true;
  }

  Bytes rest_;
  bool have_row_ = false;
};

/// Collects row units into frames and knows when a failed row ends the answer.
class RowFrames {
 public:
  explicit RowFrames(uint8_t flags) : flags_(flags) {}

  /// Makes `out` ready for the next unit.
  void open(Answer& out) {
    if (open_) return;
    at_ = out.begin_frame();
    open_ = true;
  }

  /// To be called after each unit.
  void added(Answer& out, uint8_t code) {
    const bool fails =
        code != result::kOk && code != result::kNotFound && code != result::kFilteredOut;
    if (fails && !stopped_ && (flags_ & kAnswerAll) == 0) {
      stopped_ = true;
      stop_code_ = code;
    }
    if (out.frame_bytes(at_) >= kFrameBytesMax) close(out);
  }

  /// False once no further unit is to be sent; rows are executed all the same.
  [[nodiscard]] bool wants_more() const { return !stopped_ || open_; }

  void close(Answer& out) {
    if (!open_) return;
    open_ = false;
    const bool dropped = stopped_ && (flags_ & kReportFailing) == 0;
    if (dropped || out.frame_bytes(at_) == 0) {
      out.rewind(at_);
    } else {
      out.end_frame(at_, wire::MessageType::record);
    }
  }

  /// Ends the batch with the code of the row that stopped it, if any.
  void finish(Answer& out) {
    close(out);
    send_final(out, stop_code_);
  }

  static void send_final(Answer& out, uint8_t code) {
    const size_t at = out.begin_frame();
    wire::MessageHeader header;
    header.info3 = wire::info3::kLast;
    header.result_code = code;
    out.writer().header(header);
    out.end_frame(at, wire::MessageType::record);
  }

 private:
  const uint8_t flags_;
  size_t at_ = 0;
  bool open_ = false;
  bool stopped_ = false;
  uint8_t stop_code_ = 0;
};

/// A row that another node executes, or that waits for one.
struct LaterRow {
  LaterRow(const RecordRequest& r, RowRun started) : request(r), run(std::move(started)) {
    run.rebind(request);
  }
  RecordRequest request;
  RowRun run;
};

/// What is decided about a row before it is executed.
struct RowVerdict {
  uint8_t code = 0;            ///< answered in place of the outcome, if not 0
  bool execute_first = false;  ///< all the same
  bool unanswered = false;
};

RowVerdict judge(Service& service, const Client& client, const RecordRequest& row) {
  if (!service.cluster.is_member(client.node)) return {result::kUnavailable, false, false};
  if (row.has_filter) return {result::kUnsupported, false, false};
  if (!row.is_read() && !row.is_write()) return {result::kParameter, false, false};
  if (const uint8_t code = service.permission(client, kind_of(row))) return {code, false, false};
  if (!service.faults.has_row_faults()) return {};
  const auto fault = service.faults.match({client.node, RequestKind::batch_row, &row});
  if (fault == nullptr) return {};
  switch (fault->action) {
    case FaultAction::result_code:
      return {fault->code, false, false};
    case FaultAction::result_after_execute:
      return {fault->code, true, false};
    case FaultAction::drop:
      return {0, false, true};
    default:
      return {};
  }
}

}  // namespace

/// The rows of a batch that were not finished at once.
class BatchRun : public Continuation {
 public:
  explicit BatchRun(uint8_t flags) : frames_(flags) {}

  RowFrames& frames() { return frames_; }
  std::list<LaterRow>& rows() { return rows_; }

  Step step(Answer& out, TimePoint now) override {
    for (auto it = rows_.begin(); it != rows_.end();) {
      Answer unit;
      if (!it->run.advance(unit, now)) {
        ++it;
        continue;
      }
      if (frames_.wants_more()) {
        frames_.open(out);
        out.append(std::move(unit));
        frames_.added(out, it->run.outcome().code);
      }
      it = rows_.erase(it);
    }
    if (rows_.empty()) {
      frames_.finish(out);
      return Step::done;
    }
    frames_.close(out);
    wake_at_ = now + kLookInterval;
    for (const LaterRow& row : rows_) wake_at_ = std::min(wake_at_, row.run.deadline());
    wake_at_ = std::max(wake_at_, now);
    return Step::wait;
  }

 private:
  RowFrames frames_;
  std::list<LaterRow> rows_;
};

std::unique_ptr<Continuation> Service::batch(Client& client, Request& request, Answer& out) {
  const auto fail = [&](uint8_t code) {
    RowFrames::send_final(out, code);
    return nullptr;
  };
  if (!request.batch || request.batch->size() < 5) return fail(result::kParameter);
  if (request.has_filter) return fail(result::kUnsupported);
  if (const uint8_t code = users.check(client.session, Action::login_only)) return fail(code);
  const auto count = load_be<uint32_t>(request.batch->data());
  if (count == 0) return fail(result::kParameter);

  auto later = std::make_unique<BatchRun>(std::to_integer<uint8_t>((*request.batch)[4]));
  const size_t start = out.mark();
  if (!batch_rows(client, request, out, count, *later)) {
    out.rewind(start);
    return fail(result::kParameter);
  }
  if (later->rows().empty()) {
    later->frames().finish(out);
    return nullptr;
  }
  later->frames().close(out);
  later->retry_after(SteadyClock::now());
  return later;
}

// False if the message is malformed or names an unknown namespace; rows before are executed.
bool Service::batch_rows(Client& client, Request& request, Answer& out, uint32_t count,
                         BatchRun& later) {
  RowFrames& frames = later.frames();
  RowReader reader(request.batch->subspan(5));
  RecordRequest row;
  row.buffer = request.buffer;
  Namespace* ns = nullptr;
  const TimePoint now = cluster.size() == 1 ? TimePoint{} : SteadyClock::now();
  const uint32_t timeout_ms = request.header.transaction_ttl;
  const TimePoint deadline =
      now + (timeout_ms == 0 ? options.default_timeout : milliseconds(timeout_ms));
  Answer unsent;
  for (uint32_t i = 0; i < count; ++i) {
    uint32_t index = 0;
    if (!reader.next(row, index)) return false;
    if (ns == nullptr || ns->name() != *row.ns) ns = find_namespace(*row.ns);
    if (ns == nullptr) return false;
    const RowVerdict verdict = judge(*this, client, row);
    if (verdict.unanswered) continue;
    RowRun run(cluster, *ns, client.node, row, index);
    run.set_deadline(deadline);
    const bool sent = frames.wants_more();
    if (sent) frames.open(out);
    Answer& unit = sent ? out : unsent;
    if (verdict.code != 0) {
      if (verdict.execute_first) run.advance(unsent, now);
      run.refuse(verdict.code, unit);
    } else if (run.is_passed_on() || !run.advance(unit, now)) {
      later.rows().emplace_back(row, std::move(run));
      continue;
    }
    if (sent) frames.added(out, run.outcome().code);
    unsent.clear();
  }
  return true;
}

}  // namespace aerokv::devserver
