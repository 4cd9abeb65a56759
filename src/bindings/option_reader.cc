// SPDX-License-Identifier: Apache-2.0
#include "bindings/option_reader.h"

#include <nanobind/stl/string.h>

namespace aerokv::bindings {

nb::object OptionReader::take(const char* name) {
  if (std::find(asked_.begin(), asked_.end(), name) == asked_.end()) asked_.emplace_back(name);
  PyObject* value = PyDict_GetItemString(fields_.ptr(), name);
  return value == nullptr ? nb::none() : nb::borrow(value);
}

void OptionReader::take_text(const char* name, std::string& out) {
  const nb::object value = take(name);
  if (value.is_none()) return;
  if (!nb::isinstance<nb::str>(value)) fail(name, type_name_of(value), "text");
  Py_ssize_t size = 0;
  const char* text = PyUnicode_AsUTF8AndSize(value.ptr(), &size);
  if (text == nullptr) {
    PyErr_Clear();
    fail(name, "text with lone surrogates", "text that UTF-8 can encode");
  }
  out.assign(text, static_cast<size_t>(size));
}

void OptionReader::take_flag(const char* name, bool& out) {
  const nb::object value = take(name);
  if (value.is_none()) return;
  if (!PyBool_Check(value.ptr())) fail(name, type_name_of(value), "True or False");
  out = value.ptr() == Py_True;
}

void OptionReader::finish() const {
  for (const auto [name, value] : fields_) {
    const auto text = nb::cast<std::string>(nb::str(name));
    if (std::find(asked_.begin(), asked_.end(), text) == asked_.end()) {
      raise_invalid(std::string(kind_) + " '" + text + "': unknown");
    }
  }
}

void OptionReader::fail(const char* name, const std::string& seen,
                        const std::string& expected) const {
  raise_invalid(std::string(kind_) + " '" + name + "': " + seen + ", expected " + expected);
}

int64_t OptionReader::whole_number(const char* name, nb::handle value, int64_t low,
                                   int64_t high) const {
  const std::string range =
      "a whole number from " + std::to_string(low) + " to " + std::to_string(high);
  if (!PyLong_Check(value.ptr()) || PyBool_Check(value.ptr())) {
    fail(name, type_name_of(value), range);
  }
  int overflow = 0;
  const long long number = PyLong_AsLongLongAndOverflow(value.ptr(), &overflow);
  if (overflow != 0 || number < low || number > high) {
    fail(name, nb::cast<std::string>(nb::str(value)), range);
  }
  return number;
}

}  // namespace aerokv::bindings
