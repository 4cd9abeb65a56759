// SPDX-License-Identifier: Apache-2.0
#include <cstdio>

#include "cases.h"
#include "workload.h"

namespace aerokv::bench {
namespace {

constexpr int kDelayMs = 10;

struct Load {
  const char* name;
  size_t object_bytes;
  size_t objects;
};

Status time_loads(Engine& engine, const Load& load, const std::vector<MutableBytes>& targets,
                  int rounds, Samples& into) {
  for (int round = 0; round < rounds; ++round) {
    const auto start = std::chrono::steady_clock::now();
    AEROKV_TRY(engine.get(load.name, targets));
    into.add(seconds_since(start) * 1e3);
  }
  return {};
}

Status one_load(Server& server, const Settings& settings, const Load& load, const Memory& memory,
                std::vector<Json>& rows) {
  StoreOptions options;
  options.hosts = server.hosts();
  const auto targets = memory.slices(load.object_bytes, load.objects);
  for (const std::string kind : {"delay", "latency"}) {
    // A store of its own: its first load meets the delay with connections made for a near server.
    Result<std::unique_ptr<Engine>> engine = Engine::open(options);
    if (!engine) return engine.error();
    AEROKV_TRY((*engine)->put(load.name, as_sources(targets)));
    Samples without;
    Samples with;
    Samples first;
    AEROKV_TRY(time_loads(**engine, load, targets, 2, first));
    first = {};
    AEROKV_TRY(time_loads(**engine, load, targets, settings.rounds, without));
    AEROKV_TRY(server.command(kind + " " + std::to_string(kDelayMs * 1000)));
    AEROKV_TRY(time_loads(**engine, load, targets, 1, first));
    AEROKV_TRY(time_loads(**engine, load, targets, settings.rounds, with));
    AEROKV_TRY(server.command("clear"));
    AEROKV_TRY(time_loads(**engine, load, targets, settings.rounds, without));
    AEROKV_TRY((*engine)->remove(load.name, load.objects));
    const double added = with.median() - without.median();
    const double added_first = first.median() - without.median();
    std::fprintf(stderr,
                 "%2zu x %2zu MB, %-7s %d ms: %.1f ms without, %.1f with (%.1f to %.1f), first "
                 "%.1f: adds %.1f, first %.1f\n",
                 load.objects, load.object_bytes / 1'000'000, kind.c_str(), kDelayMs,
                 without.median(), with.median(), with.min(), with.max(), first.median(), added,
                 added_first);
    const Json client = (*engine)->client_counters();
    std::fprintf(stderr, "         %s\n", client.text().c_str());
    Json row;
    row.add("client", client);
    row.add("object_bytes", static_cast<uint64_t>(load.object_bytes));
    row.add("objects", static_cast<uint64_t>(load.objects)).add("kind", kind);
    row.add("injected_ms", static_cast<uint64_t>(kDelayMs));
    row.add("without_ms", without).add("with_ms", with).add("first_with_ms", first.median());
    row.add("added_ms", added).add("added_first_ms", added_first);
    row.add("goal", kAddedLatencyMsMax).add("goal_met", added <= kAddedLatencyMsMax);
    rows.push_back(row);
  }
  return {};
}

}  // namespace

Status run_latency(Server& server, const Settings& settings, Json& report) {
  if (!server.has_faults()) return {};
  const Memory memory(128'000'000, 4);
  std::vector<Json> rows;
  AEROKV_TRY(one_load(server, settings, {"large", 80'000'000, 1}, memory, rows));
  AEROKV_TRY(one_load(server, settings, {"many", 4'000'000, 32}, memory, rows));
  report.add("latency", rows);
  return {};
}

}  // namespace aerokv::bench
