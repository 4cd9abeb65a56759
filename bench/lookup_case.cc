// SPDX-License-Identifier: Apache-2.0
#include <cstdio>

#include "cases.h"
#include "process.h"
#include "workload.h"

namespace aerokv::bench {

Status run_lookup(Server& server, const Settings& settings, Json& report) {
  StoreOptions options;
  options.hosts = server.hosts();
  if (settings.io_threads > 0) options.num_io_threads = settings.io_threads;
  Result<std::unique_ptr<Engine>> engine = Engine::open(options);
  if (!engine) return engine.error();
  constexpr size_t kKeys = 10'000;
  const Memory payload(512, 3);
  AEROKV_TRY((*engine)->put("lookup", as_sources(payload.slices(512, kKeys))));
  std::vector<Json> rows;
  for (const size_t keys : {size_t{1000}, kKeys}) {
    Samples keys_per_s;
    Samples milliseconds_a_batch;
    Samples cpu_us_per_key;
    AEROKV_TRY((*engine)->exists("lookup", keys));
    for (int round = 0; round < settings.rounds * 20; ++round) {
      const double cpu = process_cpu_seconds();
      const auto start = std::chrono::steady_clock::now();
      AEROKV_TRY((*engine)->exists("lookup", keys));
      const double seconds = seconds_since(start);
      keys_per_s.add(static_cast<double>(keys) / seconds);
      milliseconds_a_batch.add(seconds * 1e3);
      cpu_us_per_key.add((process_cpu_seconds() - cpu) * 1e6 / static_cast<double>(keys));
    }
    std::fprintf(stderr,
                 "lookup of %5zu keys: %.0f keys/s, p50 %.2f ms, p99 %.2f ms, %.2f us/key\n", keys,
                 keys_per_s.median(), milliseconds_a_batch.percentile(50),
                 milliseconds_a_batch.percentile(99), cpu_us_per_key.median());
    Json row;
    row.add("keys", static_cast<uint64_t>(keys)).add("keys_per_s", keys_per_s);
    row.add("p50_ms", milliseconds_a_batch.percentile(50));
    row.add("p99_ms", milliseconds_a_batch.percentile(99)).add("cpu_us_per_key", cpu_us_per_key);
    rows.push_back(row);
  }
  AEROKV_TRY((*engine)->remove("lookup", kKeys));
  report.add("lookup", rows);
  return {};
}

}  // namespace aerokv::bench
