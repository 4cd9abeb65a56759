// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "aerokv/store.h"

namespace aerokv::store {

/// Logs why an operation on an object failed, and what to do about it. One line for each cause (the
/// operation and its code) is let through in ten seconds. What close() ended is not logged.
/// Thread-safe.
void log_error(const StoreOptions& options, Operation operation, const Status& status);

/// Logs why an object that is there could not be loaded, and what to do about it. An object that is
/// not there is a normal outcome: no line. Thread-safe.
void log_miss(const StoreOptions& options, MissReason reason, const Status& why);

}  // namespace aerokv::store
