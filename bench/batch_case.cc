// SPDX-License-Identifier: Apache-2.0
#include <array>
#include <cstdio>

#include "cases.h"
#include "process.h"
#include "workload.h"

namespace aerokv::bench {
namespace {

struct Shape {
  size_t object_bytes;
  size_t objects;
};

constexpr std::array<Shape, 5> kShapes{
    {{64U << 10, 128}, {256U << 10, 32}, {1U << 20, 32}, {4U << 20, 16}, {16U << 20, 4}}};

struct Measured {
  Samples gb_per_s, client_cpu_s_per_gb, server_cpu_s_per_gb;

  [[nodiscard]] Json json() const {
    Json out;
    out.add("gb_per_s", gb_per_s).add("client_cpu_s_per_gb", client_cpu_s_per_gb);
    out.add("server_cpu_s_per_gb", server_cpu_s_per_gb);
    return out;
  }
};

template <typename Work>
Status measure(const Server& server, const Shape& shape, Measured& into, Work work) {
  const double gb = static_cast<double>(shape.object_bytes * shape.objects) / 1e9;
  const double server_cpu = server.cpu_seconds();
  const double cpu = process_cpu_seconds();
  const auto start = std::chrono::steady_clock::now();
  AEROKV_TRY(work());
  into.gb_per_s.add(gb / seconds_since(start));
  into.client_cpu_s_per_gb.add((process_cpu_seconds() - cpu) / gb);
  into.server_cpu_s_per_gb.add((server.cpu_seconds() - server_cpu) / gb);
  return {};
}

void print(const char* what, const Measured& m) {
  std::fprintf(stderr, " | %s %.2f GB/s, CPU s/GB client %.3f server %.3f", what,
               m.gb_per_s.median(), m.client_cpu_s_per_gb.median(), m.server_cpu_s_per_gb.median());
}

Status one_shape(const Server& server, Engine& engine, const Shape& shape, const Memory& memory,
                 int rounds, std::vector<Json>& rows) {
  const auto slices = memory.slices(shape.object_bytes, shape.objects);
  const auto sources = as_sources(slices);
  const std::string name = "b" + std::to_string(shape.object_bytes >> 10) + "r";
  Measured fresh, again, load;
  for (int round = 0; round < rounds; ++round) {
    const std::string prefix = name + std::to_string(round) + "x";
    AEROKV_TRY(measure(server, shape, fresh, [&] { return engine.put(prefix, sources); }));
    AEROKV_TRY(measure(server, shape, again, [&] { return engine.put(prefix, sources); }));
    AEROKV_TRY(measure(server, shape, load, [&] { return engine.get(prefix, slices); }));
  }
  for (int round = 0; round < rounds; ++round) {
    AEROKV_TRY(engine.remove(name + std::to_string(round) + "x", shape.objects));
  }
  std::fprintf(stderr, "%5zu KiB x %-3zu", shape.object_bytes >> 10, shape.objects);
  print("store new", fresh);
  print("again", again);
  print("load", load);
  std::fprintf(stderr, "\n");
  Json row;
  row.add("object_bytes", static_cast<uint64_t>(shape.object_bytes));
  row.add("objects", static_cast<uint64_t>(shape.objects));
  row.add("store_fresh", fresh.json()).add("store_again", again.json()).add("load", load.json());
  rows.push_back(row);
  return {};
}

}  // namespace

Status run_batch(Server& server, const Settings& settings, Json& report) {
  StoreOptions options;
  options.hosts = server.hosts();
  if (settings.io_threads > 0) options.num_io_threads = settings.io_threads;
  Result<std::unique_ptr<Engine>> engine = Engine::open(options);
  if (!engine) return engine.error();
  const Memory memory(64U << 20, 6);
  std::vector<Json> rows;
  for (const Shape& shape : kShapes) {
    AEROKV_TRY(one_shape(server, **engine, shape, memory, settings.rounds * 2, rows));
  }
  report.add("batch", rows);
  return {};
}

}  // namespace aerokv::bench
