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

std::vector<RowBatch::Row> segment_rows(const Batch& batch, const std::vector<RowResult>& metas) {
  const Context& context = batch.context();
  std::vector<RowBatch::Row> rows;
  for (size_t i = 0; i < metas.size(); ++i) {
    const Item& item = batch.item(i);
    const uint32_t ttl =
        context.segment_wire_ttl(item.ttl_seconds.value_or(context.options.default_ttl_seconds));
    for (const wire::Digest& digest : context.segment_digests(item.key, segments_of(metas[i]))) {
      rows.push_back({digest, ttl});
    }
  }
  return rows;
}

/// First step of removal and touch: how many segments has each object?
template <typename Next>
void read_segment_counts(const std::shared_ptr<Batch>& batch, Next next) {
  RowBatch::start(
      *batch->context().client, form_of(batch->context(), Kind::read_integer, bin::kSegmentCount),
      meta_rows(*batch), batch->deadline(), [batch, next](std::vector<RowResult> metas) {
        next(std::make_shared<const std::vector<RowResult>>(std::move(metas)));
      });
}

using Metas = std::shared_ptr<const std::vector<RowResult>>;

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
  read_segment_counts(batch, [batch](const Metas& metas) {
    Context& context = batch->context();
    RowBatch::start(*context.client, form_of(context, Kind::remove), meta_rows(*batch),
                    batch->deadline(), [batch, metas](std::vector<RowResult> removed) {
                      // An unreadable count leaves segments to their TTL; the object itself is
                      // gone.
                      std::vector<RowBatch::Row> segments = segment_rows(*batch, *metas);
                      Context& ctx = batch->context();
                      RowBatch::start(*ctx.client, form_of(ctx, Kind::remove), std::move(segments),
                                      batch->deadline(),
                                      [batch, removed](const std::vector<RowResult>&) {
                                        for (size_t i = 0; i < removed.size(); ++i) {
                                          finish_row(*batch, i, removed[i]);
                                        }
                                      });
                    });
  });
}

void start_touch(const std::shared_ptr<Batch>& batch) {
  read_segment_counts(batch, [batch](const Metas& metas) {
    Context& context = batch->context();
    RowBatch::start(*context.client, form_of(context, Kind::touch), segment_rows(*batch, *metas),
                    batch->deadline(), [batch](const std::vector<RowResult>&) {
                      Context& ctx = batch->context();
                      std::vector<RowBatch::Row> rows = meta_rows(*batch);
                      for (size_t i = 0; i < rows.size(); ++i) {
                        rows[i].ttl = Context::wire_ttl(
                            batch->item(i).ttl_seconds.value_or(ctx.options.default_ttl_seconds));
                      }
                      RowBatch::start(*ctx.client, form_of(ctx, Kind::touch), std::move(rows),
                                      batch->deadline(),
                                      [batch](const std::vector<RowResult>& touched) {
                                        for (size_t i = 0; i < touched.size(); ++i) {
                                          finish_row(*batch, i, touched[i]);
                                        }
                                      });
                    });
  });
}

}  // namespace aerokv::store
