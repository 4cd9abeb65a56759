// SPDX-License-Identifier: Apache-2.0
// Looking at what is stored: listing a set and inspecting one object. Blocking calls for people
// and tools, not for the hot path.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "store/context.h"

namespace aerokv::store {

/// See Store::list(). Reads partitions in order, each from the node that owns it.
Result<std::vector<ObjectInfo>> list_objects(Context& context, uint32_t& cursor, size_t count);

/// See Store::inspect().
Result<ObjectDetails> inspect_object(const std::shared_ptr<Context>& context,
                                     const std::string& key);

}  // namespace aerokv::store
