// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "store/context.h"

namespace aerokv::store {

/// Segments that an older, longer object may have left behind a newer one.
struct Orphans {
  std::string key;
  uint32_t first = 0;
};

/// Removes segments `first`, `first` + 1, ... of each key while there are any; segments are
/// numbered without gaps, so the first absent one is the end. Best effort, until `deadline`
/// and for half a second at the most.
/// `done` is called exactly once, on an I/O thread or on this one.
void remove_orphans(const std::shared_ptr<Context>& context, const std::vector<Orphans>& orphans,
                    TimePoint deadline, std::function<void()> done);

}  // namespace aerokv::store
