// SPDX-License-Identifier: Apache-2.0
#include <cstdio>

#include "cases.h"
#include "process.h"
#include "workload.h"

namespace aerokv::bench {
namespace {

constexpr size_t kObjectBytes = 16'000'000;
constexpr size_t kObjects = 63;  // a batch of 1 GB

Status one_budget(Server& server, uint64_t budget, const Memory& memory, std::vector<Json>& rows) {
  StoreOptions options;
  options.hosts = server.hosts();
  options.max_bytes_in_flight = budget;
  const auto slices = memory.slices(kObjectBytes, kObjects);
  Result<std::unique_ptr<Engine>> engine = Engine::open(options);
  if (!engine) return engine.error();
  ResidentPeak store_peak;
  AEROKV_TRY((*engine)->put("memory", as_sources(slices)));
  const uint64_t store_growth = store_peak.stop();
  ResidentPeak load_peak;
  AEROKV_TRY((*engine)->get("memory", slices));
  const uint64_t load_growth = load_peak.stop();
  const uint64_t in_flight = (*engine)->store().stats().bytes_in_flight_peak;
  AEROKV_TRY((*engine)->remove("memory", kObjects));
  const uint64_t most = std::max({store_growth, load_growth, in_flight});
  std::fprintf(
      stderr,
      "budget %3llu MiB, batch of 1 GB: %.1f MB in flight at most, resident memory grew by "
      "%.1f MB (store), %.1f MB (load)\n",
      static_cast<unsigned long long>(budget >> 20), static_cast<double>(in_flight) / 1e6,
      static_cast<double>(store_growth) / 1e6, static_cast<double>(load_growth) / 1e6);
  Json row;
  row.add("max_bytes_in_flight", budget);
  row.add("batch_bytes", static_cast<uint64_t>(kObjectBytes * kObjects));
  row.add("bytes_in_flight_peak", in_flight);
  row.add("store_resident_growth", store_growth).add("load_resident_growth", load_growth);
  row.add("goal", budget + kOverBudgetBytesMax);
  row.add("goal_met", most <= budget + kOverBudgetBytesMax);
  rows.push_back(row);
  return {};
}

}  // namespace

Status run_memory(Server& server, const Settings& settings, Json& report) {
  (void)settings;
  const Memory memory(kObjectBytes * kObjects, 5);
  std::vector<Json> rows;
  for (const uint64_t budget : {16ULL << 20, 64ULL << 20}) {
    AEROKV_TRY(one_budget(server, budget, memory, rows));
  }
  report.add("memory", rows);
  return {};
}

}  // namespace aerokv::bench
