// SPDX-License-Identifier: Apache-2.0
// Reads the recordings of tests/golden/aerospike: a small JSON reader, and the exchanges in it.
#pragma once

#include <cstddef>
#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace aerokv::golden {

/// A JSON value; the recordings hold no fractions and no escapes beyond \uXXXX and the short ones.
struct Json {
  enum class Type : uint8_t { null, boolean, number, text, list, object };
  Type type = Type::null;
  bool boolean = false;
  int64_t number = 0;
  std::string text;
  std::vector<Json> list;         ///< elements of a list, values of an object
  std::vector<std::string> keys;  ///< of an object, one for each value

  /// The member `key`, or a null value.
  [[nodiscard]] const Json& operator[](std::string_view key) const;
  [[nodiscard]] bool is_null() const { return type == Type::null; }
};

/// Fails the running test and returns null if `text` is not one JSON value.
Json parse_json(std::string_view text);

/// The whole file `name` under tests/golden; fails the running test if there is none.
std::string read_golden(const std::string& name);

std::vector<std::byte> from_hex(std::string_view text);
std::string to_hex(const std::vector<std::byte>& bytes);

/// One request and its answer.
struct Exchange {
  std::string name;
  std::string group;
  std::string kind;  ///< empty in the connect sequence
  bool is_official = false;
  bool is_closed = false;  ///< the server closed the connection instead of an answer
  size_t answer_count = 1;
  std::vector<std::byte> request;
  std::vector<std::byte> response;
  std::vector<uint8_t> result_codes;  ///< of every unit, in order
};

/// exchanges.jsonl: 381 exchanges in file order.
std::vector<Exchange> load_exchanges();

/// connect_sequence.jsonl without its open and close events: what the official client sends from
/// connect to close.
std::vector<Exchange> load_connect_sequence();

}  // namespace aerokv::golden
