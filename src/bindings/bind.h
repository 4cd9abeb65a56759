// SPDX-License-Identifier: Apache-2.0
// One function for each part of the extension module.
#pragma once

#include <nanobind/nanobind.h>

namespace aerokv::bindings {

void bind_log(nanobind::module_& module);
void bind_devserver(nanobind::module_& module);
void bind_connector(nanobind::module_& module);
void bind_store(nanobind::module_& module);
void bind_survey(nanobind::module_& module);
void bind_serde(nanobind::module_& module);

}  // namespace aerokv::bindings
