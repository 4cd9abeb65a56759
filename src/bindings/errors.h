// SPDX-License-Identifier: Apache-2.0
// Where a Status becomes a Python exception; the classes are in lmcache_aerospike.errors.
#pragma once

#include <nanobind/nanobind.h>

#include <string>

#include "aerokv/status.h"

namespace aerokv::bindings {

namespace nb = nanobind;

/// What was being done, which tells some causes apart: a record limit found at open is the server's
/// configuration, the same code later is one object.
enum class During { call, open };

/// The exception for `status`, not raised yet. Requires the GIL.
nb::object exception_of(const Status& status, During during = During::call);

/// Throws the exception for `status`. Requires the GIL.
[[noreturn]] void raise(const Status& status, During during = During::call);

/// Throws InvalidArgumentError. Requires the GIL.
[[noreturn]] void raise_invalid(const std::string& message);

/// "str", "int", ... for errors; never the value, which may be a secret. Requires the GIL.
std::string type_name_of(nb::handle value);

/// Throws ClosedError for a use in a forked child. Requires the GIL.
[[noreturn]] void raise_forked(const char* what);

}  // namespace aerokv::bindings
