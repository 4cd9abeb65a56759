// SPDX-License-Identifier: Apache-2.0
// The one error type of the project.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

namespace aerokv {

/// What went wrong, as a caller must act on it. The list is closed; docs/reference/errors.md has
/// one row for each, and a test compares the two.
enum class Code : uint8_t {
  ok,
  not_found,    ///< a miss: a normal outcome, never logged
  conflict,     ///< a generation or create-only condition was refused
  too_big,      ///< over the record limit of the server
  timeout,      ///< the deadline passed; `in_doubt` tells whether a write may have been applied
  unavailable,  ///< refused, reset, or no node for the partition
  overloaded,   ///< the server's device or queue is full, or it is out of space
  corruption,   ///< stored sums, sizes or the meta record contradict each other
  protocol,     ///< the peer sent what the protocol forbids; the connection was dropped
  denied,       ///< authentication, permission, unknown namespace, forbidden TTL
  invalid,      ///< the caller's argument
  closed,       ///< submitted after close(), cancelled by it, or used in a forked child
  internal,     ///< our own bug, reported instead of taking the host process down
};

inline constexpr size_t kCodes = 13;

/// The name of `code` as written in docs and in Python ("not_found").
std::string_view code_name(Code code);

/// The result of an operation that returns no value. Success holds no memory.
/// Thread-compatible value type.
class [[nodiscard]] Status {
 public:
  Status() = default;
  Status(Code code, std::string message) : code_(code), message_(std::move(message)) {}
  Status(Code code, std::string message, uint8_t server_result, bool in_doubt = false)
      : code_(code),
        server_result_(server_result),
        in_doubt_(in_doubt),
        message_(std::move(message)) {}

  [[nodiscard]] bool ok() const { return code_ == Code::ok; }
  explicit operator bool() const { return ok(); }
  [[nodiscard]] Code code() const { return code_; }

  /// The result code of the Aerospike server that caused this, 0 if none did.
  [[nodiscard]] uint8_t server_result() const { return server_result_; }

  /// True if a write was sent and its outcome is unknown: it may have been applied.
  [[nodiscard]] bool in_doubt() const { return in_doubt_; }
  void set_in_doubt(bool in_doubt) { in_doubt_ = in_doubt; }

  /// "what failed: which object: observed, expected". Holds no secret and no full key.
  [[nodiscard]] const std::string& message() const { return message_; }

  /// The same status with `context` and ": " in front of its message.
  [[nodiscard]] Status with_context(std::string_view context) const;

 private:
  Code code_ = Code::ok;
  uint8_t server_result_ = 0;
  bool in_doubt_ = false;
  std::string message_;
};

/// A value, or the Status that tells why there is none. Member names are those of std::expected.
template <typename T>
class [[nodiscard]] Result {
 public:
  // NOLINTBEGIN(google-explicit-constructor): `return value;` and `return status;` both work
  Result(T value) : value_(std::move(value)) {}
  Result(Status error) : error_(std::move(error)) {}
  // NOLINTEND(google-explicit-constructor)

  [[nodiscard]] bool has_value() const { return value_.has_value(); }
  explicit operator bool() const { return has_value(); }

  /// Requires has_value().
  [[nodiscard]] T& value() & { return *value_; }
  [[nodiscard]] const T& value() const& { return *value_; }
  [[nodiscard]] T&& value() && { return std::move(*value_); }
  T& operator*() & { return *value_; }
  const T& operator*() const& { return *value_; }
  T&& operator*() && { return std::move(*value_); }
  T* operator->() { return &*value_; }
  const T* operator->() const { return &*value_; }

  /// Requires !has_value().
  [[nodiscard]] const Status& error() const { return error_; }

 private:
  std::optional<T> value_;
  Status error_;
};

}  // namespace aerokv

/// Returns the status from the enclosing function unless it is ok.
#define AEROKV_TRY(expression)                                                         \
  do {                                                                                 \
    if (::aerokv::Status try_status_ = (expression); !try_status_) return try_status_; \
  } while (false)
