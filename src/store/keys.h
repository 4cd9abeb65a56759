// SPDX-License-Identifier: Apache-2.0
// User keys of the records that hold one object: `{key}|m` for the meta record and `{key}|s|{i}`
// for segment i. The logical key is opaque and never parsed.
//
// Different (logical key, record) pairs always give different user keys, whatever the logical
// keys end in: a meta key ends in 'm' and a segment key in a digit, so the two kinds never meet;
// and the text after the last '|' holds no '|', so it fixes the index and with it the logical key.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>

#include "aerokv/status.h"

namespace aerokv::store {

/// Errors: invalid if `key` is empty or longer than kKeyBytesMax. Any byte is legal, also NUL.
Status check_logical_key(std::string_view key);

/// The user key of the meta record.
std::string meta_user_key(std::string_view key);

/// The user key of segment `segment_index`; decimal, no leading zeros.
std::string segment_user_key(std::string_view key, uint32_t segment_index);

enum class RecordKind : uint8_t { meta, segment };

/// What a user key names. `logical_key` points into the parsed user key.
struct RecordName {
  std::string_view logical_key;
  RecordKind kind = RecordKind::meta;
  uint32_t segment_index = 0;  ///< 0 for a meta record
};

/// The inverse of meta_user_key() and segment_user_key(); nullopt for every other text, such as
/// a record that another application keeps in the same set.
std::optional<RecordName> parse_user_key(std::string_view user_key);

}  // namespace aerokv::store
