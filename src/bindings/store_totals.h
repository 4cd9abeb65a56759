// SPDX-License-Identifier: Apache-2.0
// The counters of all stores of this process together, for metrics.
#pragma once

#include <memory>

#include "aerokv/store.h"

namespace aerokv::bindings {

/// Takes a store into the totals. Its last owner closes it; what it counted stays in the totals.
std::shared_ptr<Store> count_in_totals(std::unique_ptr<Store> store);

/// Sums over all stores of this process that there are and were; peaks are the highest of one
/// engine. Stores that share an engine count its requests, bytes in flight and nodes once; nodes
/// are those of open stores. Thread-safe; does not wait for the network.
struct StoreTotals {
  StoreStats stats;
  uint64_t open_stores = 0;
  uint64_t open_engines = 0;
};
StoreTotals store_totals();

}  // namespace aerokv::bindings
