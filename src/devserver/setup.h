// SPDX-License-Identifier: Apache-2.0
// Options of the development server: defaults and checks.
#pragma once

#include "devserver/devserver.h"

namespace aerokv::devserver {

/// Fills in defaults. Errors: invalid.
Status complete(Options& options);

/// A user from "name:password[:role[+role...][:internal|external|pki]]"; users of the mode pki have
/// no password. Errors: invalid.
Result<UserOptions> parse_user(std::string_view text);

}  // namespace aerokv::devserver
