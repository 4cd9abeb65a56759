// SPDX-License-Identifier: Apache-2.0
// Keys, element types and layouts: what serdes take from Python beside memory.
#include <string>
#include <utility>
#include <vector>

#include "bindings/errors.h"
#include "bindings/serde_buffers.h"

namespace aerokv::bindings {
namespace {

std::string dtype_names() {
  std::string names;
  for (size_t i = 0; i < kDTypes; ++i) {
    names += (i == 0 ? "" : ", ") + std::string(dtype_name(static_cast<DType>(i)));
  }
  return names;
}

std::string utf8(nb::handle text) {
  Py_ssize_t size = 0;
  const char* bytes = PyUnicode_AsUTF8AndSize(text.ptr(), &size);
  if (bytes == nullptr) throw nb::python_error();
  return {bytes, static_cast<size_t>(size)};
}

// How an element type writes itself: torch's as "torch.bfloat16"; NumPy's have a name; the scalar
// types of NumPy and ml_dtypes are classes.
std::string dtype_text(nb::handle value) {
  if (PyUnicode_Check(value.ptr())) return utf8(value);
  if (PyType_Check(value.ptr()) != 0) return utf8(value.attr("__name__"));
  const nb::object name = nb::getattr(value, "name", nb::none());
  return PyUnicode_Check(name.ptr()) ? utf8(name) : utf8(nb::str(value));
}

TensorLayout read_tensor_layout(nb::handle shape, nb::handle dtype, const ValueName& name) {
  TensorLayout tensor;
  tensor.dtype = read_dtype(dtype, name);
  const nb::object dimensions = nb::steal(PySequence_Fast(shape.ptr(), ""));
  if (!dimensions.is_valid()) {
    PyErr_Clear();
    throw nb::type_error(
        (name.text() + ": shape: " + type_name_of(shape) + ", expected a sequence of int").c_str());
  }
  for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(dimensions.ptr()); ++i) {
    const nb::object dimension = nb::borrow(PySequence_Fast_GET_ITEM(dimensions.ptr(), i));
    const nb::object number = nb::steal(PyNumber_Index(dimension.ptr()));
    if (!number.is_valid()) {
      PyErr_Clear();
      throw nb::type_error(
          (name.text() + ": shape: " + type_name_of(dimension) + ", expected int").c_str());
    }
    int overflow = 0;
    const long long size = PyLong_AsLongLongAndOverflow(number.ptr(), &overflow);
    if (overflow != 0 || size < 0) {
      raise_invalid(name.text() + ": shape: " + nb::str(number).c_str() + ", expected 0 to 2^48");
    }
    tensor.shape.push_back(size);
  }
  return tensor;
}

Layout read_pairs(nb::handle value, const ValueName& name) {
  const std::string expected = ", expected shapes and dtypes, or a list of pairs (shape, dtype)";
  const nb::object list =
      PyUnicode_Check(value.ptr()) ? nb::object() : nb::steal(PySequence_Fast(value.ptr(), ""));
  if (!list.is_valid()) {
    PyErr_Clear();
    throw nb::type_error((name.text() + ": " + type_name_of(value) + expected).c_str());
  }
  Layout layout;
  for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(list.ptr()); ++i) {
    const nb::object pair = nb::borrow(PySequence_Fast_GET_ITEM(list.ptr(), i));
    if ((!PyTuple_Check(pair.ptr()) && !PyList_Check(pair.ptr())) || nb::len(pair) != 2) {
      throw nb::type_error(
          (name.text() + ": an entry that is " + type_name_of(pair) + expected).c_str());
    }
    layout.push_back(read_tensor_layout(pair[0], pair[1], name));
  }
  return layout;
}

}  // namespace

std::string ValueName::text() const {
  return index < 0 ? name : std::string(name) + "[" + std::to_string(index) + "]";
}

DType read_dtype(nb::handle value, const ValueName& name) {
  const std::string text = dtype_text(value);
  const std::optional<DType> dtype = parse_dtype(text);
  if (dtype) return *dtype;
  raise_invalid(name.text() + ": dtype " + text + ": unknown, expected one of " + dtype_names());
}

Layout read_layout(nb::handle shapes, nb::handle dtypes, const ValueName& name) {
  if (nb::len(shapes) != nb::len(dtypes)) {
    raise_invalid(name.text() + ": " + std::to_string(nb::len(dtypes)) + " dtypes, expected " +
                  std::to_string(nb::len(shapes)) + " as there are shapes");
  }
  Layout layout;
  const size_t count = nb::len(shapes);
  layout.reserve(count);
  for (size_t i = 0; i < count; ++i) {
    layout.push_back(read_tensor_layout(shapes[i], dtypes[i], name));
  }
  return layout;
}

Layout read_layout(nb::handle value, const ValueName& name) {
  if (nb::hasattr(value, "shapes") && nb::hasattr(value, "dtypes")) {
    return read_layout(value.attr("shapes"), value.attr("dtypes"), name);
  }
  if (nb::hasattr(value, "shape") && nb::hasattr(value, "dtype")) {
    return {read_tensor_layout(value, name)};
  }
  return read_pairs(value, name);
}

TensorLayout read_tensor_layout(nb::handle value, const ValueName& name) {
  return read_tensor_layout(value.attr("shape"), value.attr("dtype"), name);
}

SerdeKey read_serde_key(nb::handle key, const ValueName& name) {
  SerdeKey out;
  if (key.is_none()) return out;
  if (!nb::hasattr(key, "chunk_hash") && !nb::hasattr(key, "cache_salt")) {
    throw nb::type_error((name.text() + ": " + type_name_of(key) +
                          ", expected an object with chunk_hash and cache_salt, or None")
                             .c_str());
  }
  const nb::object hash = nb::getattr(key, "chunk_hash", nb::none());
  const nb::object salt = nb::getattr(key, "cache_salt", nb::none());
  if (PyBytes_Check(hash.ptr())) {
    out.chunk_hash.assign(PyBytes_AS_STRING(hash.ptr()),
                          static_cast<size_t>(PyBytes_GET_SIZE(hash.ptr())));
  } else if (!hash.is_none()) {
    throw nb::type_error(
        (name.text() + ".chunk_hash: " + type_name_of(hash) + ", expected bytes").c_str());
  }
  if (PyUnicode_Check(salt.ptr())) {
    out.cache_salt = utf8(salt);
  } else if (!salt.is_none()) {
    throw nb::type_error(
        (name.text() + ".cache_salt: " + type_name_of(salt) + ", expected str").c_str());
  }
  return out;
}

}  // namespace aerokv::bindings
