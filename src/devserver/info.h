// SPDX-License-Identifier: Apache-2.0
// Texts of the info protocol.
#pragma once

#include <map>
#include <string>
#include <string_view>

#include "devserver/service.h"

namespace aerokv::devserver {

/// Parameters of a command: "name:key=value;key=value".
using InfoParameters = std::map<std::string_view, std::string_view>;
InfoParameters parse_info_parameters(std::string_view text);

/// "4096", "8M", "1G": powers of 1024. Nothing if it is no such number or over 64 bits.
std::optional<uint64_t> parse_size(std::string_view text);
/// "90", "15m", "2h", "30d": seconds.
std::optional<uint64_t> parse_seconds(std::string_view text);

/// "ERROR:code:text"; the code 1 is left out, as the real server does.
std::string info_error(int code, std::string_view text);

std::string namespace_text(Service& service, Namespace& ns, int node);
/// The properties of a set behind its name.
std::string set_text(Set& set, Namespace& ns, int node);
std::string statistics_text(Service& service, int node);

}  // namespace aerokv::devserver
