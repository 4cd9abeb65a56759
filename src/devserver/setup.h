// SPDX-License-Identifier: Apache-2.0
// Options of the development server: defaults and checks.
#pragma once

#include "devserver/devserver.h"

namespace aerokv::devserver {

/// Fills in defaults. Errors: invalid.
Status complete(Options& options);

}  // namespace aerokv::devserver
