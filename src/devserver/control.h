// SPDX-License-Identifier: Apache-2.0
// The commands, one a line, with which a program or a person directs a running server.
#pragma once

#include <string_view>

#include "devserver/devserver.h"

namespace aerokv::devserver {

/// Names and arguments of the commands, for usage texts.
std::string_view control_usage();

/// Carries out one command. Waits where the command does.
/// Errors: invalid (no such command or argument), and those of DevServer.
Status control(DevServer& server, std::string_view line);

}  // namespace aerokv::devserver
