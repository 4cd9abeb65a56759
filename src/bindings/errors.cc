// SPDX-License-Identifier: Apache-2.0
#include "bindings/errors.h"

#include <nanobind/stl/string.h>

namespace aerokv::bindings {

nb::object exception_of(const Status& status, During during) {
  const nb::object make = nb::module_::import_("lmcache_aerospike.errors").attr("from_status");
  const std::string_view code = code_name(status.code());
  return make(nb::str(code.data(), code.size()), nb::str(status.message().c_str()),
              static_cast<int>(status.server_result()), status.in_doubt(), during == During::open);
}

void raise(const Status& status, During during) {
  const nb::object exception = exception_of(status, during);
  PyErr_SetObject(exception.type().ptr(), exception.ptr());
  throw nb::python_error();
}

void raise_invalid(const std::string& message) {
  raise(Status(Code::invalid, message));
}

std::string type_name_of(nb::handle value) {
  return nb::cast<std::string>(value.type().attr("__name__"));
}

void raise_forked(const char* what) {
  raise(Status(Code::closed,
               std::string(what) + ": made before a fork, expected one made in this process"));
}

}  // namespace aerokv::bindings
