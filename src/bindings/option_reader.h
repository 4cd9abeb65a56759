// SPDX-License-Identifier: Apache-2.0
// Reads the fields of a Python dict into C++ variables; what is wrong is named in the error.
#pragma once

#include <nanobind/nanobind.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <cstdint>
#include <limits>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

#include "bindings/errors.h"

namespace aerokv::bindings {

/// Each take_*() leaves its variable alone if the field is absent or None. All throw
/// InvalidArgumentError that names the field, what was seen and what is expected.
class OptionReader {
 public:
  /// `kind` says in errors what the fields are of, "option" or "fault".
  OptionReader(nb::dict fields, const char* kind) : fields_(std::move(fields)), kind_(kind) {}

  void take_text(const char* name, std::string& out);
  void take_flag(const char* name, bool& out);

  /// A whole number from `low` to `high`.
  template <typename T>
  void take_number(const char* name, T& out, T low = std::numeric_limits<T>::min(),
                   T high = std::numeric_limits<T>::max()) {
    static_assert(std::is_integral_v<T>);
    if (const nb::object value = take(name); !value.is_none()) {
      out = static_cast<T>(whole_number(name, value, to_int64(low), to_int64(high)));
    }
  }

  /// A count of D's units, not negative.
  template <typename Rep, typename Period>
  void take_duration(const char* name, std::chrono::duration<Rep, Period>& out) {
    int64_t count = out.count();
    take_number<int64_t>(name, count, 0, std::numeric_limits<int32_t>::max());
    out = std::chrono::duration<Rep, Period>(count);
  }

  /// One of the names in `table`.
  template <typename E, size_t N>
  void take_choice(const char* name, E& out,
                   const std::array<std::pair<std::string_view, E>, N>& table) {
    std::string text;
    if (const nb::object value = take(name); value.is_none()) return;
    take_text(name, text);
    std::string expected;
    for (const auto& [known, enumerator] : table) {
      if (known == text) {
        out = enumerator;
        return;
      }
      expected += (expected.empty() ? "" : ", ") + std::string(known);
    }
    fail(name, "'" + text + "'", "one of " + expected);
  }

  /// The value, or None if it is absent.
  nb::object take(const char* name);

  /// Throws if a field was never asked for.
  void finish() const;

  [[noreturn]] void fail(const char* name, const std::string& seen,
                         const std::string& expected) const;

 private:
  template <typename T>
  static constexpr int64_t to_int64(T value) {
    constexpr int64_t kMax = std::numeric_limits<int64_t>::max();
    return std::in_range<int64_t>(value) ? static_cast<int64_t>(value) : kMax;
  }

  int64_t whole_number(const char* name, nb::handle value, int64_t low, int64_t high) const;

  nb::dict fields_;
  const char* kind_;
  std::vector<std::string_view> asked_;
};

}  // namespace aerokv::bindings
