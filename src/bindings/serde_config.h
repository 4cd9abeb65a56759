// SPDX-License-Identifier: Apache-2.0
// Configurations of serdes as Python writes them: dicts, as they come out of JSON.
#pragma once

#include <nanobind/nanobind.h>

#include <string>

#include "aerokv/serde.h"

namespace aerokv::bindings {

/// {"type": "chain", "stages": [{"type": "lossless", "level": 3}, {"type": "aesgcm", ...}]}.
/// Types may carry the prefix that LMCache knows them by ("aerospike_fp8"); it is taken off. None
/// is left out. Throws TypeError or InvalidArgumentError that names the parameter, beginning with
/// `name` ("serde.stages[1].level"); values are not shown. Requires the GIL.
SerdeConfig read_serde_config(nanobind::handle dict, const char* name);

/// The parameters alone: a dict without a type. Throws as read_serde_config().
SerdeParams read_serde_params(nanobind::handle dict, const char* name);

}  // namespace aerokv::bindings
