// SPDX-License-Identifier: Apache-2.0
// The measurements. Each prints a line for people on stderr and adds its numbers to the report.
#pragma once

#include <cstdint>
#include <string>

#include "aerokv/status.h"
#include "report.h"
#include "server.h"

namespace aerokv::bench {

struct Settings {
  uint64_t bytes_a_round = 256U << 20;  ///< of each contestant
  int rounds = 7;
  int io_threads = 0;  ///< 0: the engine's default
};

/// Goals that a report is held against.
inline constexpr double kCpuRatioMax = 1.4;
inline constexpr double kAddedLatencyMsMax = 50;
inline constexpr uint64_t kOverBudgetBytesMax = 16'000'000;
inline constexpr double kOverloadRatioMax = 2;
inline constexpr double kTlsLoadRatioMin = 0.65;

/// Loads and stores of 1, 4, 16 and 80 MB objects beside bare loops over the same bytes: CPU
/// seconds for a GB and throughput.
Status run_transfer(Server& server, const Settings& settings, Json& report);

/// Stores and loads in the batches that `lmcache bench l2` makes of 64 KB to 16 MB objects, with
/// the CPU seconds of both sides.
Status run_batch(Server& server, const Settings& settings, Json& report);

/// Lookups of 1,000 and 10,000 keys in one batch.
Status run_lookup(Server& server, const Settings& settings, Json& report);

/// What 10 ms for each request add to one load.
Status run_latency(Server& server, const Settings& settings, Json& report);

/// What a batch of 1 GB needs beside its buffers under a small byte budget.
Status run_memory(Server& server, const Settings& settings, Json& report);

/// Loads alone, and while stores arrive at twice the rate that the server takes, on servers of its
/// own.
Status run_overload(const Settings& settings, Json& report);

/// Loads and stores of 4 MB objects over TLS beside the same in clear text, and beside what OpenSSL
/// alone moves; on a server of its own.
Status run_tls(const Settings& settings, Json& report);

}  // namespace aerokv::bench
