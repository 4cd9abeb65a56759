// SPDX-License-Identifier: Apache-2.0
// Files that hold a master key.
#pragma once

#include <string>

#include "aerokv/status.h"
#include "codec/hkdf.h"

namespace aerokv::serde {

inline constexpr size_t kKeyFileBytesMax = 64 << 10;

/// All bytes of the file at `path`, as they are. It must be a regular file of this user or of root
/// (a symbolic link to one will do, as secrets are mounted), not empty, at most kKeyFileBytesMax
/// long, and neither group nor others may read, write or execute it.
/// Errors: invalid (missing, unreadable, not such a file), denied (owner or mode); they name the
/// path and never the contents.
Result<codec::SecretBytes> read_key_file(const std::string& path);

}  // namespace aerokv::serde
