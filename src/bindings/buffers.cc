// SPDX-License-Identifier: Apache-2.0
#include "bindings/buffers.h"

#include <utility>

#include "base/limits.h"
#include "bindings/errors.h"

namespace aerokv::bindings {
namespace {

std::string at(const char* name, size_t index) {
  return std::string(name) + "[" + std::to_string(index) + "]: ";
}

[[noreturn]] void raise_type(const std::string& message) {
  throw nb::type_error(message.c_str());
}

}  // namespace

Pins& Pins::operator=(Pins&& other) noexcept {
  std::swap(views_, other.views_);
  return *this;
}

MutableBytes Pins::add(nb::handle buffer, Access access, const char* name, size_t index) {
  if (!PyObject_CheckBuffer(buffer.ptr())) {
    raise_type(at(name, index) + type_name_of(buffer) +
               ", expected an object with the buffer protocol");
  }
  Py_buffer& view = views_.emplace_back();
  if (PyObject_GetBuffer(buffer.ptr(), &view, PyBUF_STRIDES) != 0) {
    views_.pop_back();
    throw nb::python_error();
  }
  const char* fault = nullptr;
  if (view.itemsize != 1) {
    fault = "items of several bytes, expected one byte per item";
  } else if (PyBuffer_IsContiguous(&view, 'C') == 0) {
    fault = "not contiguous, expected C order";
  } else if (access == Access::write && view.readonly != 0) {
    fault = "read-only, expected a writable buffer";
  }
  if (fault != nullptr) {
    PyBuffer_Release(&view);
    views_.pop_back();
    raise_invalid(at(name, index) + fault);
  }
  return {static_cast<std::byte*>(view.buf), static_cast<size_t>(view.len)};
}

void Pins::release() noexcept {
  for (Py_buffer& view : views_) PyBuffer_Release(&view);
  views_.clear();
}

std::string read_key(nb::handle key, const char* name, size_t index) {
  if (!PyUnicode_Check(key.ptr())) {
    raise_type(at(name, index) + type_name_of(key) + ", expected str");
  }
  Py_ssize_t size = 0;
  const char* text = PyUnicode_AsUTF8AndSize(key.ptr(), &size);
  if (text == nullptr) {
    PyErr_Clear();
    raise_invalid(at(name, index) + "text with lone surrogates, expected text that UTF-8 encodes");
  }
  const auto bytes = static_cast<size_t>(size);
  if (bytes < 1 || bytes > kKeyBytesMax) {
    raise_invalid(at(name, index) + std::to_string(bytes) + " bytes, expected 1 to " +
                  std::to_string(kKeyBytesMax));
  }
  return {text, bytes};
}

nb::object as_sequence(nb::handle value, const char* name, const char* of) {
  const std::string expected = std::string(", expected a list of ") + of;
  if (PyUnicode_Check(value.ptr()) || PyBytes_Check(value.ptr())) {
    raise_type(std::string(name) + ": " + type_name_of(value) + expected);
  }
  PyObject* sequence = PySequence_Fast(value.ptr(), "");
  if (sequence == nullptr) {
    PyErr_Clear();
    raise_type(std::string(name) + ": " + type_name_of(value) + expected);
  }
  return nb::steal(sequence);
}

std::vector<Item> read_items(nb::handle keys) {
  const nb::object sequence = as_sequence(keys, "keys", "str");
  const auto count = static_cast<size_t>(PySequence_Fast_GET_SIZE(sequence.ptr()));
  if (count == 0) raise_invalid("keys: empty, expected at least one");
  std::vector<Item> items(count);
  PyObject** const entries = PySequence_Fast_ITEMS(sequence.ptr());
  for (size_t i = 0; i < count; ++i) items[i].key = read_key(entries[i], "keys", i);
  return items;
}

std::vector<Item> read_items(nb::handle keys, nb::handle buffers, const char* buffers_name,
                             Operation operation, Pins& pins) {
  std::vector<Item> items = read_items(keys);
  const nb::object sequence = as_sequence(buffers, buffers_name, "buffers");
  const auto count = static_cast<size_t>(PySequence_Fast_GET_SIZE(sequence.ptr()));
  if (count != items.size()) {
    raise_invalid(std::string(buffers_name) + ": " + std::to_string(count) + ", expected " +
                  std::to_string(items.size()) + " as there are keys");
  }
  const bool writes = operation == Operation::get;
  pins.reserve(count);
  for (size_t i = 0; i < count; ++i) {
    // Looked up anew each time: an exporter may run Python code that changes the list.
    if (static_cast<size_t>(PySequence_Fast_GET_SIZE(sequence.ptr())) != count) {
      raise_invalid(std::string(buffers_name) + ": changed while it was read");
    }
    const nb::object buffer =
        nb::borrow(PySequence_Fast_GET_ITEM(sequence.ptr(), static_cast<Py_ssize_t>(i)));
    const MutableBytes bytes =
        pins.add(buffer, writes ? Pins::Access::write : Pins::Access::read, buffers_name, i);
    if (writes) {
      items[i].target = bytes;
    } else {
      items[i].payload = bytes;
    }
  }
  return items;
}

}  // namespace aerokv::bindings
