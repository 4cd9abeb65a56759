// SPDX-License-Identifier: Apache-2.0
// Objects and their records as dicts.
#pragma once

#include <nanobind/nanobind.h>

#include "aerokv/store.h"

namespace aerokv::bindings {

nanobind::dict object_dict(const ObjectInfo& object);
nanobind::dict details_dict(const ObjectDetails& details);

}  // namespace aerokv::bindings
