// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "aerokv/bytes.h"

namespace aerokv {

/// Two lower-case digits for each byte.
std::string to_hex(Bytes bytes);

/// The bytes behind lower-case digits; nothing for an odd count or another character.
std::optional<std::string> from_hex(std::string_view digits);

}  // namespace aerokv
