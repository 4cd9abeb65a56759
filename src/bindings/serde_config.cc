// SPDX-License-Identifier: Apache-2.0
#include "bindings/serde_config.h"

#include <string_view>
#include <utility>
#include <vector>

#include "bindings/errors.h"

namespace aerokv::bindings {
namespace {

constexpr std::string_view kPrefix = "aerospike_";
constexpr const char* kType = "type";

// A chain of chains has no use; this only ends what refers to itself.
constexpr int kDepthMax = 4;
constexpr Py_ssize_t kStagesMax = 64;

[[noreturn]] void fail(const std::string& path, const std::string& seen, const char* expected) {
  raise_invalid(path + ": " + seen + ", expected " + expected);
}

std::string read_text(nb::handle value, const std::string& path) {
  Py_ssize_t size = 0;
  const char* text = PyUnicode_AsUTF8AndSize(value.ptr(), &size);
  if (text == nullptr) {
    PyErr_Clear();
    fail(path, "text with lone surrogates", "text that UTF-8 encodes");
  }
  return {text, static_cast<size_t>(size)};
}

int64_t read_integer(nb::handle value, const std::string& path) {
  int overflow = 0;
  const long long number = PyLong_AsLongLongAndOverflow(value.ptr(), &overflow);
  if (overflow != 0) fail(path, "a number beyond 64 bits", "a smaller one");
  return number;
}

SerdeConfig read_config(nb::handle dict, const std::string& path, int depth);

std::vector<SerdeConfig> read_stages(nb::handle list, const std::string& path, int depth) {
  if (depth >= kDepthMax) fail(path, "too many levels of stages", "at most four");
  const nb::object sequence = nb::steal(PySequence_Fast(list.ptr(), "stages"));
  if (!sequence.is_valid()) throw nb::python_error();
  const Py_ssize_t count = PySequence_Fast_GET_SIZE(sequence.ptr());
  if (count > kStagesMax) fail(path, std::to_string(count) + " entries", "at most 64");
  std::vector<SerdeConfig> stages;
  for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(sequence.ptr()); ++i) {
    const nb::object entry = nb::borrow(PySequence_Fast_GET_ITEM(sequence.ptr(), i));
    stages.push_back(read_config(entry, path + "[" + std::to_string(i) + "]", depth + 1));
  }
  return stages;
}

SerdeValue read_value(nb::handle value, const std::string& path, int depth) {
  if (PyBool_Check(value.ptr())) return value.ptr() == Py_True;
  if (PyLong_Check(value.ptr())) return read_integer(value, path);
  if (PyFloat_Check(value.ptr())) return PyFloat_AS_DOUBLE(value.ptr());
  if (PyUnicode_Check(value.ptr())) return read_text(value, path);
  if (PyList_Check(value.ptr()) || PyTuple_Check(value.ptr())) {
    return read_stages(value, path, depth);
  }
  if (nb::hasattr(value, "__fspath__")) {
    const nb::object text = nb::steal(PyOS_FSPath(value.ptr()));
    if (!text.is_valid()) throw nb::python_error();
    if (PyUnicode_Check(text.ptr())) return read_text(text, path);
  }
  fail(path, type_name_of(value), "True, False, a number, text, or a list of serdes");
}

SerdeParams read_params(nb::handle dict, const std::string& path, int depth) {
  if (!PyDict_Check(dict.ptr())) {
    throw nb::type_error((path + ": " + type_name_of(dict) + ", expected a dict").c_str());
  }
  SerdeParams params;
  // A copy: reading a path runs Python code, which could change the dict.
  const nb::object copy = nb::steal(PyDict_Copy(dict.ptr()));
  if (!copy.is_valid()) throw nb::python_error();
  for (const auto [name, value] : nb::borrow<nb::dict>(copy)) {
    if (!PyUnicode_Check(name.ptr())) {
      fail(path, "a name that is " + type_name_of(name), "text");
    }
    const std::string key = read_text(name, path);
    if (value.is_none()) continue;
    params.emplace(key, read_value(value, path + "." + key, depth));
  }
  return params;
}

SerdeConfig read_config(nb::handle dict, const std::string& path, int depth) {
  SerdeConfig config;
  config.params = read_params(dict, path, depth);
  const auto found = config.params.find(kType);
  const std::string where = path + "." + kType;
  if (found == config.params.end()) fail(where, "not given", "the name of a serde");
  const auto* type = std::get_if<std::string>(&found->second);
  if (type == nullptr) fail(where, "no text", "the name of a serde");
  config.type = *type;
  config.params.erase(found);
  if (config.type.starts_with(kPrefix)) config.type.erase(0, kPrefix.size());
  return config;
}

}  // namespace

SerdeConfig read_serde_config(nb::handle dict, const char* name) {
  return read_config(dict, name, 0);
}

SerdeParams read_serde_params(nb::handle dict, const char* name) {
  return read_params(dict, name, 0);
}

}  // namespace aerokv::bindings
