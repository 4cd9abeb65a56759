// SPDX-License-Identifier: Apache-2.0
// Operations without payload on many objects: lookup, removal, touch. Each is a few batch
// messages for all keys together.
#pragma once

#include <memory>

#include "store/context.h"

namespace aerokv::store {

/// One header read for each key `from` <= index < `to`; keys known to be damaged are absent
/// without being asked.
void start_exists(const std::shared_ptr<Batch>& batch, size_t from, size_t to);

/// Meta records first, so that no reader finds an object that loses its segments; then segments.
/// A key is a hit if its meta record was there.
void start_remove(const std::shared_ptr<Batch>& batch);

/// Segments first, so that they never expire before their meta record. A key is a hit if all its
/// records were there and live longer now.
void start_touch(const std::shared_ptr<Batch>& batch);

}  // namespace aerokv::store
