// SPDX-License-Identifier: Apache-2.0
#include "store/key_batches.h"

#include <algorithm>

#include "store/meta_record.h"
#include "store/row_batch.h"

namespace aerokv::store {
namespace {

using Kind = RowBatch::Template::Kind;

RowBatch::Template form_of(const Context& context, Kind kind, std::string_view bin = {}) {
  return {kind, context.options.ns, context.options.set_name, bin};
}

void finish_row(Batch& batch, size_t index, const RowResult& row) {
  ItemResult result;
  if (row.is_found()) {
    result.outcome = Outcome::hit;
  } else if (row.is_missing()) {
    result.outcome = Outcome::miss;
  } else {
    result.status = row.status.ok() ? wire::status_from_result(row.code, "batch row") : row.status;
  }
  batch.finish(index, std::move(result));
}

/// Segments that a meta record names; 0 for inline objects and for records that make no sense.
uint32_t segments_of(const RowResult& meta) {
  if (!meta.is_found() || !meta.integer || *meta.integer < 2) return 0;
  return *meta.integer > int64_t{kSegmentsMax} ? 0 : static_cast<uint32_t>(*meta.integer);
}

std::vector<RowBatch::Row> meta_rows(const Batch& batch) {
  std::vector<RowBatch::Row> rows;
  rows.reserve(batch.size());
  for (const wire::Digest& digest : batch.meta_digests(0, batch.size())) {
    rows.push_back({digest, 0});
  }
  return rows;
}

/// First step of removal and touch: how many segments has each object?
void read_segment_counts(const std::shared_ptr<Batch>& batch, RowBatch::Done next) {
  RowBatch::start(*batch->context().client,
                  form_of(batch->context(), Kind::read_integer, bin::kSegmentCount),
                  meta_rows(*batch), batch->deadline(), std::move(next));
}

/// Goes through the segments of all objects, some objects at a time and those with few segments
/// first: what a meta record claims costs neither memory for all of them nor its neighbours' time.
class SegmentSteps : public std::enable_shared_from_this<SegmentSteps> {
 public:
  /// `results`: what a removal reports for each object.
  SegmentSteps(std::shared_ptr<Batch> batch, Kind kind, const std::vector<RowResult>& metas,
               std::vector<RowResult> results)
      : batch_(std::move(batch)),
        kind_(kind),
        results_(std::move(results)),
        counts_(metas.size()),
        order_(metas.size()) {
    for (size_t i = 0; i < metas.size(); ++i) {
      counts_[i] = segments_of(metas[i]);
      order_[i] = i;
    }
    std::stable_sort(order_.begin(), order_.end(),
                     [this](size_t a, size_t b) { return counts_[a] < counts_[b]; });
  }

  void next();

 private:
  // One object can have as many; usually all objects of a batch are one step.
  static constexpr size_t kRowsPerStep = kSegmentsMax;

  [[nodiscard]] TimePoint segments_deadline() const;
  void segments_done(const std::vector<RowResult>& rows);
  void touch_metas(const std::vector<size_t>& objects);
  void end(const Status& status);
  [[nodiscard]] int64_t ttl(size_t index) const {
    return batch_->item(index).ttl_seconds.value_or(batch_->context().options.default_ttl_seconds);
  }

  const std::shared_ptr<Batch> batch_;
  const Kind kind_;
  const std::vector<RowResult> results_;
  std::vector<uint32_t> counts_;
  std::vector<size_t> order_;
  size_t from_ = 0;  // order_[from_..to_) is the current step
  size_t to_ = 0;
};

void SegmentSteps::next() {
  from_ = to_;
  if (from_ == order_.size()) return;
  if (from_ > 0 && SteadyClock::now() >= batch_->deadline()) {
    return end({Code::timeout, "the deadline passed between segments"});
  }
  Context& context = batch_->context();
  std::vector<RowBatch::Row> rows;
  while (to_ < order_.size() &&
         (to_ == from_ || rows.size() + counts_[order_[to_]] <= kRowsPerStep)) {
    const size_t index = order_[to_++];
    const uint32_t wire_ttl = context.segment_wire_ttl(ttl(index));
    for (const wire::Digest& digest :
         context.segment_digests(batch_->item(index).key, counts_[index])) {
      rows.push_back({digest, wire_ttl});
    }
  }
  RowBatch::start(*context.client, form_of(context, kind_), std::move(rows), segments_deadline(),
                  [self = shared_from_this()](const std::vector<RowResult>& done) {
                    self->segments_done(done);
                  });
}

/// A segment that fails until its time is over must leave the meta records of its neighbours
/// theirs.
TimePoint SegmentSteps::segments_deadline() const {
  const TimePoint now = SteadyClock::now();
  const TimePoint end = batch_->deadline();
  return kind_ == Kind::touch && now < end ? now + (end - now) * 2 / 3 : end;
}

void SegmentSteps::segments_done(const std::vector<RowResult>& rows) {
  std::vector<size_t> objects;
  const RowResult* row = rows.data();
  Status closed;
  for (size_t i = from_; i < to_; ++i) {
    const size_t index = order_[i];
    const RowResult* const last = row + counts_[index];
    const RowResult* failed =
        std::find_if(row, last, [](const RowResult& result) { return !result.is_found(); });
    row = last;
    if (failed != last && failed->status.code() == Code::closed) closed = failed->status;
    if (kind_ == Kind::remove) {
      // Segments that could not be removed are left to their TTL; the object itself is gone.
      finish_row(*batch_, index, results_[index]);
    } else if (failed != last) {  // the object would lose this segment before its meta record
      finish_row(*batch_, index, *failed);
    } else {
      objects.push_back(index);
    }
  }
  if (!objects.empty()) return touch_metas(objects);
  if (!closed.ok()) return end(closed);
  next();
}

void SegmentSteps::touch_metas(const std::vector<size_t>& objects) {
  Context& context = batch_->context();
  std::vector<RowBatch::Row> rows;
  for (const size_t index : objects) {
    rows.push_back({context.meta_digest(batch_->item(index).key), Context::wire_ttl(ttl(index))});
  }
  RowBatch::start(*context.client, form_of(context, kind_), std::move(rows), batch_->deadline(),
                  [self = shared_from_this(), objects](const std::vector<RowResult>& done) {
                    Status closed;
                    for (size_t i = 0; i < objects.size(); ++i) {
                      finish_row(*self->batch_, objects[i], done[i]);
                      if (done[i].status.code() == Code::closed) closed = done[i].status;
                    }
                    if (!closed.ok()) return self->end(closed);
                    self->next();
                  });
}

/// Finishes the objects that were not reached.
void SegmentSteps::end(const Status& status) {
  for (size_t i = to_; i < order_.size(); ++i) {
    RowResult unreached;
    unreached.status = status;
    finish_row(*batch_, order_[i], kind_ == Kind::remove ? results_[order_[i]] : unreached);
  }
}

}  // namespace

void start_exists(const std::shared_ptr<Batch>& batch, size_t from, size_t to) {
  Context& context = batch->context();
  std::vector<RowBatch::Row> rows;
  std::vector<bool> damaged;
  rows.reserve(to - from);
  damaged.reserve(to - from);
  for (const wire::Digest& digest : batch->meta_digests(from, to)) {
    rows.push_back({digest, 0});
    damaged.push_back(context.damaged.contains(digest));
  }
  RowBatch::start(*context.client, form_of(context, Kind::exists), std::move(rows),
                  batch->deadline(),
                  [batch, from, damaged = std::move(damaged)](std::vector<RowResult> results) {
                    for (size_t i = 0; i < results.size(); ++i) {
                      if (damaged[i]) {
                        results[i] = {};
                        results[i].code = wire::result::kNotFound;
                      }
                      finish_row(*batch, from + i, results[i]);
                    }
                  });
}

void start_remove(const std::shared_ptr<Batch>& batch) {
  read_segment_counts(batch, [batch](std::vector<RowResult> metas) {
    Context& context = batch->context();
    RowBatch::start(
        *context.client, form_of(context, Kind::remove), meta_rows(*batch), batch->deadline(),
        [batch, metas = std::move(metas)](std::vector<RowResult> removed) {
          std::make_shared<SegmentSteps>(batch, Kind::remove, metas, std::move(removed))->next();
        });
  });
}

void start_touch(const std::shared_ptr<Batch>& batch) {
  read_segment_counts(batch, [batch](const std::vector<RowResult>& metas) {
    std::make_shared<SegmentSteps>(batch, Kind::touch, metas, std::vector<RowResult>())->next();
  });
}

}  // namespace aerokv::store
