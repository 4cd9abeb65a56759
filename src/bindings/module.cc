// SPDX-License-Identifier: Apache-2.0
// The extension module lmcache_aerospike._native.
#include <nanobind/nanobind.h>

#include "aerokv/version.h"
#include "bindings/bind.h"

NB_MODULE(_native, module) {
  module.doc() = "The engine of lmcache_aerospike; use the classes of the package itself.";
  // Daemon threads that the interpreter leaves behind keep what they use; that is no defect.
  nanobind::set_leak_warnings(false);
  module.attr("__version__") = aerokv::kVersion;
  aerokv::bindings::bind_log(module);
  aerokv::bindings::bind_devserver(module);
  aerokv::bindings::bind_store(module);
  aerokv::bindings::bind_connector(module);
  aerokv::bindings::bind_survey(module);
  aerokv::bindings::bind_serde(module);
}
