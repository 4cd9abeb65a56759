// SPDX-License-Identifier: Apache-2.0
// Finding out what the namespace allows, from all nodes.
#pragma once

#include <functional>
#include <memory>
#include <optional>

#include "store/context.h"

namespace aerokv::store {

/// Asks all nodes and waits for at most `connect_timeout` each, twice if none answers. Nodes that
/// do not answer are not waited for, as long as one does; the smallest limit of those that did
/// counts. Logs warnings. Errors: as parse_namespace_facts(), check_ttl() and resolve_limits(),
/// with the node named; unavailable if no node answered.
Result<std::shared_ptr<const NamespaceLimits>> discover_limits(const client::Client& client,
                                                               const StoreOptions& options);

/// Asks all nodes again, in the background: a record was refused as too big, so somebody has
/// lowered the limit. Returns at once; at most one run at a time, and one in a second.
void refresh_limits(const std::shared_ptr<Context>& context);

/// Asks all nodes, in the background, whether they take writes. `done` is called once, on an I/O
/// thread or on this one: true if some node says that it has stopped, empty if none answered.
void ask_stop_writes(const std::shared_ptr<Context>& context,
                     std::function<void(std::optional<bool>)> done);

}  // namespace aerokv::store
