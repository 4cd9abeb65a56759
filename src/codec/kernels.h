// SPDX-License-Identifier: Apache-2.0
// Which instruction set the transforms use: chosen once, here, for all of them.
#pragma once

#include <cstdint>
#include <string_view>
#include <vector>

namespace aerokv::codec {

enum class Kernel : uint8_t { scalar, avx2, avx512, neon };

std::string_view kernel_name(Kernel kernel);

/// What was compiled in and runs on this processor; scalar first, the widest last.
const std::vector<Kernel>& available_kernels();

/// The one in use: AEROKV_KERNEL ("scalar", "avx2", "avx512", "neon") if it is set to one that is
/// available, else the widest but avx512. Read once.
Kernel active_kernel();

}  // namespace aerokv::codec
