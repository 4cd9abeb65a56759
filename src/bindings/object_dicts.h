// SPDX-License-Identifier: Apache-2.0
// Objects and their records as dicts.
#pragma once

#include <nanobind/nanobind.h>

#include <string_view>

#include "aerokv/store.h"

namespace aerokv::bindings {

/// Text of others, which may be bytes of any kind; those that are no UTF-8 are written as escapes.
nanobind::object text_of(std::string_view text);

nanobind::dict object_dict(const ObjectInfo& object);
nanobind::dict details_dict(const ObjectDetails& details);

}  // namespace aerokv::bindings
