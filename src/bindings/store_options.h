// SPDX-License-Identifier: Apache-2.0
// Opens a store for Python, and shows what it knows as dicts.
#pragma once

#include <nanobind/nanobind.h>

#include <memory>
#include <string>

#include "aerokv/store.h"

namespace aerokv::bindings {

namespace nb = nanobind;

/// Reads checked options (the names of lmcache_aerospike.config) and opens the store with the GIL
/// released. Throws for an unknown or bad option and for what Store::open() refuses.
std::shared_ptr<Store> open_store(const nb::dict& options);

/// The store behind a Python object of class Store; null if `object` is none. Throws in a forked
/// child.
std::shared_ptr<Store> store_of(nb::handle object);

/// Reads checked options for what needs no serde, which is only checked. Throws for an unknown or
/// bad option.
StoreOptions parse_store_options(const nb::dict& options);

nb::dict stats_dict(const StoreStats& stats);
nb::dict limits_dict(const StoreLimits& limits);

/// repr() of `self`, which uses `options`: type, hosts, namespace, set. Holds no secret.
std::string repr_of(nb::handle self, const StoreOptions& options);

/// The same for an object whose constructor failed: tracebacks show those, too.
std::string repr_of_unopened(nb::handle self);

}  // namespace aerokv::bindings
