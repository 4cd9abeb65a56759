// SPDX-License-Identifier: Apache-2.0
// Keys and buffers as Python hands them over.
#pragma once

#include <nanobind/nanobind.h>

#include <string>
#include <vector>

#include "aerokv/bytes.h"
#include "aerokv/store.h"

namespace aerokv::bindings {

namespace nb = nanobind;

/// Buffers that Python may neither move nor free. Everything but moving and asking needs the GIL,
/// the destructor too.
class Pins {
 public:
  enum class Access { read, write };

  Pins() = default;
  Pins(Pins&& other) noexcept : views_(std::move(other.views_)) { other.views_.clear(); }
  Pins& operator=(Pins&& other) noexcept;
  ~Pins() { release(); }

  /// Pins `buffer`, which errors call `name[index]`. Throws TypeError if it is no buffer, and
  /// InvalidArgumentError if it is not contiguous, has items of several bytes, or is read-only
  /// and shall be written. Requires room from reserve().
  MutableBytes add(nb::handle buffer, Access access, const char* name, size_t index);

  void reserve(size_t count) { views_.reserve(count); }

 private:
  void release() noexcept;

  std::vector<Py_buffer> views_;  // never reallocated: a view may point into itself
};

/// The UTF-8 bytes of a str. Throws TypeError or InvalidArgumentError that names `name[index]`.
std::string read_key(nb::handle key, const char* name, size_t index);

/// A list or other sequence, but no text. Throws TypeError.
nb::object as_sequence(nb::handle value, const char* name, const char* of);

/// Items from keys alone. Throws as read_key(), and InvalidArgumentError if there are none.
std::vector<Item> read_items(nb::handle keys);

/// Items from keys and as many buffers, which `pins` keeps. put reads, get writes them.
std::vector<Item> read_items(nb::handle keys, nb::handle buffers, const char* buffers_name,
                             Operation operation, Pins& pins);

}  // namespace aerokv::bindings
