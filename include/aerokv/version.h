// SPDX-License-Identifier: Apache-2.0
#pragma once

namespace aerokv {

/// The version of the engine, the Python package and the command; read by CMake and pyproject.
inline constexpr const char* kVersion = "0.1.0";

}  // namespace aerokv
