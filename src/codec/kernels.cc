// SPDX-License-Identifier: Apache-2.0
#include "codec/kernels.h"

#include <algorithm>
#include <cstdlib>
#include <string>

#include "base/log.h"

#if defined(__x86_64__)
#include <cpuid.h>
#endif

namespace aerokv::codec {
namespace {

#if defined(__x86_64__)
// clang 14 has no name for it.
bool has_f16c() {
  unsigned registers[4] = {};
  return __get_cpuid(1, &registers[0], &registers[1], &registers[2], &registers[3]) != 0 &&
         (registers[2] & bit_F16C) != 0;
}
#endif

std::vector<Kernel> detect() {
  std::vector<Kernel> found = {Kernel::scalar};
#if defined(__x86_64__)
  __builtin_cpu_init();
  if (__builtin_cpu_supports("avx2") && has_f16c()) found.push_back(Kernel::avx2);
  // Zen 4, Ice Lake and newer; the first processors with AVX-512 slowed down for it anyway.
  if (__builtin_cpu_supports("avx512bw") && __builtin_cpu_supports("avx512vl") &&
      __builtin_cpu_supports("avx512vbmi")) {
    found.push_back(Kernel::avx512);
  }
#elif defined(__aarch64__)
  found.push_back(Kernel::neon);
#endif
  return found;
}

Kernel choose() {
  const std::vector<Kernel>& available = available_kernels();
  if (const char* forced = std::getenv("AEROKV_KERNEL"); forced != nullptr && *forced != '\0') {
    for (const Kernel kernel : available) {
      if (kernel_name(kernel) == forced) return kernel;
    }
    log(LogLevel::warning, "kernels",
        "AEROKV_KERNEL=" + std::string(forced) + " is not available here");
  }
  // Wide vectors lower the clock of some processors; whoever has measured a gain may force them.
  const auto best = std::find_if(available.rbegin(), available.rend(),
                                 [](Kernel kernel) { return kernel != Kernel::avx512; });
  return *best;
}

}  // namespace

std::string_view kernel_name(Kernel kernel) {
  constexpr std::string_view kNames[] = {"scalar", "avx2", "avx512", "neon"};
  return kNames[static_cast<size_t>(kernel)];
}

const std::vector<Kernel>& available_kernels() {
  static const std::vector<Kernel> found = detect();
  return found;
}

Kernel active_kernel() {
  static const Kernel chosen = choose();
  return chosen;
}

}  // namespace aerokv::codec
