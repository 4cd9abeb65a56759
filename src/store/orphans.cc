// SPDX-License-Identifier: Apache-2.0
#include "store/orphans.h"

#include <algorithm>

#include "store/row_batch.h"

namespace aerokv::store {
namespace {

// The caller of a store waits for this.
constexpr milliseconds kTimeout{500};

// The first look takes one segment per key, since usually there is none; where there was one, the
// next looks take this many.
constexpr uint32_t kStep = 64;

struct Search {
  std::shared_ptr<Context> context;
  std::function<void()> done;
  TimePoint deadline;
};

void look(const std::shared_ptr<Search>& search, const std::vector<Orphans>& orphans,
          uint32_t step) {
  const Context& context = *search->context;
  std::vector<RowBatch::Row> rows;
  for (const Orphans& item : orphans) {
    for (uint32_t i = 0; i < step; ++i) {
      rows.push_back({context.segment_digest(item.key, item.first + i), 0});
    }
  }
  const RowBatch::Template form{
      RowBatch::Template::Kind::remove, context.options.ns, context.options.set_name, {}};
  RowBatch::start(*context.client, form, std::move(rows), search->deadline,
                  [search, orphans, step](const std::vector<RowResult>& results) {
                    std::vector<Orphans> more;
                    for (size_t i = 0; i < orphans.size(); ++i) {
                      const uint32_t next = orphans[i].first + step;
                      if (results[(i + 1) * step - 1].is_found() && next < kSegmentsMax) {
                        more.push_back({orphans[i].key, next});
                      }
                    }
                    if (more.empty()) return search->done();
                    look(search, more, kStep);
                  });
}

}  // namespace

void remove_orphans(const std::shared_ptr<Context>& context, const std::vector<Orphans>& orphans,
                    TimePoint deadline, std::function<void()> done) {
  const TimePoint end = std::min(deadline, SteadyClock::now() + kTimeout);
  look(std::make_shared<Search>(Search{context, std::move(done), end}), orphans, 1);
}

}  // namespace aerokv::store
