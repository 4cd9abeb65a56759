// SPDX-License-Identifier: Apache-2.0
#include <cstdio>
#include <cstring>
#include <functional>

#include "cases.h"
#include "peer.h"
#include "process.h"
#include "raw_loop.h"
#include "workload.h"

namespace aerokv::bench {
namespace {

constexpr uint64_t kMegabyte = 1'000'000;

/// CPU seconds for a GB and GB a second of one contestant.
struct Measured {
  Samples cpu_s_per_gb;
  Samples gb_per_s;

  [[nodiscard]] Json json() const {
    Json out;
    out.add("cpu_s_per_gb", cpu_s_per_gb).add("gb_per_s", gb_per_s);
    return out;
  }
};

Status measure(Measured& into, uint64_t bytes, const std::function<Status()>& work) {
  const double gb = static_cast<double>(bytes) / 1e9;
  const double cpu = process_cpu_seconds();
  const auto start = std::chrono::steady_clock::now();
  AEROKV_TRY(work());
  into.gb_per_s.add(gb / seconds_since(start));
  into.cpu_s_per_gb.add((process_cpu_seconds() - cpu) / gb);
  return {};
}

struct Contestants {
  Measured load, store, receive_1, receive_2, send_1, send_2, copy;
};

/// Everything that takes part in one run.
struct Field {
  Engine& engine;
  RawLoop& one;
  RawLoop& two;
  const Memory& target;
  const Memory& source;
};

Status one_round(Field& field, uint64_t object_bytes, size_t objects, int round,
                 Contestants& results) {
  const auto targets = field.target.slices(object_bytes, objects);
  const auto sources = as_sources(field.source.slices(object_bytes, objects));
  const uint64_t bytes = object_bytes * objects;
  const std::string prefix = "t" + std::to_string(object_bytes / kMegabyte) + "x";
  const std::function<Status()> steps[] = {
      [&] {
        return measure(results.load, bytes, [&] { return field.engine.get(prefix, targets); });
      },
      [&] { return measure(results.receive_1, bytes, [&] { return field.one.receive(targets); }); },
      [&] {
        return measure(results.store, bytes, [&] { return field.engine.put(prefix, sources); });
      },
      [&] { return measure(results.send_1, bytes, [&] { return field.one.send(sources); }); },
      [&] { return measure(results.receive_2, bytes, [&] { return field.two.receive(targets); }); },
      [&] { return measure(results.send_2, bytes, [&] { return field.two.send(sources); }); },
      [&] {
        return measure(results.copy, bytes, [&] {
          for (size_t i = 0; i < objects; ++i) {
            std::memcpy(targets[i].data(), sources[i].data(), object_bytes);
          }
          return Status();
        });
      },
  };
  constexpr size_t kSteps = std::size(steps);
  for (size_t i = 0; i < kSteps; ++i) {
    AEROKV_TRY(steps[(i + static_cast<size_t>(round)) % kSteps]());
  }
  return {};
}

Status one_size(Field& field, uint64_t object_bytes, const Settings& settings,
                std::vector<Json>& rows) {
  const size_t objects = std::max<size_t>(1, settings.bytes_a_round / object_bytes);
  const std::string prefix = "t" + std::to_string(object_bytes / kMegabyte) + "x";
  // Twice: the first makes the records, the second warms what the server does when it overwrites.
  for (int i = 0; i < 2; ++i) {
    AEROKV_TRY(field.engine.put(prefix, as_sources(field.source.slices(object_bytes, objects))));
  }
  Contestants warm;
  AEROKV_TRY(one_round(field, object_bytes, objects, 0, warm));
  Contestants r;
  for (int round = 0; round < settings.rounds; ++round) {
    AEROKV_TRY(one_round(field, object_bytes, objects, round, r));
  }
  AEROKV_TRY(field.engine.get(prefix, field.target.slices(object_bytes, objects)));
  if (std::memcmp(field.target.bytes().data(), field.source.bytes().data(),
                  object_bytes * objects) != 0) {
    return {Code::corruption, "transfer: loaded bytes differ from stored bytes"};
  }
  AEROKV_TRY(field.engine.remove(prefix, objects));

  const double load = r.load.cpu_s_per_gb.median();
  const double store = r.store.cpu_s_per_gb.median();
  const double load_1 = load / r.receive_1.cpu_s_per_gb.median();
  const double load_2 = load / r.receive_2.cpu_s_per_gb.median();
  const double store_1 = store / r.send_1.cpu_s_per_gb.median();
  const double store_2 = store / r.send_2.cpu_s_per_gb.median();
  std::fprintf(stderr,
               "%2llu MB x %-3zu load %.2f GB/s, CPU %.3f s/GB = %.2f x recv on one connection, "
               "%.2f x on two | store %.2f GB/s, %.3f s/GB = %.2f / %.2f x send | recv %.2f %.2f "
               "GB/s, send %.2f %.2f, memcpy %.2f\n",
               static_cast<unsigned long long>(object_bytes / kMegabyte), objects,
               r.load.gb_per_s.median(), load, load_1, load_2, r.store.gb_per_s.median(), store,
               store_1, store_2, r.receive_1.gb_per_s.median(), r.receive_2.gb_per_s.median(),
               r.send_1.gb_per_s.median(), r.send_2.gb_per_s.median(), r.copy.gb_per_s.median());
  const Json client = field.engine.client_counters();
  std::fprintf(stderr, "         %s\n", client.text().c_str());
  Json row;
  row.add("client", client);
  row.add("object_bytes", object_bytes).add("objects", static_cast<uint64_t>(objects));
  row.add("load", r.load.json()).add("store", r.store.json());
  row.add("recv_1", r.receive_1.json()).add("recv_2", r.receive_2.json());
  row.add("send_1", r.send_1.json()).add("send_2", r.send_2.json()).add("memcpy", r.copy.json());
  row.add("load_cpu_ratio_1", load_1).add("load_cpu_ratio_2", load_2);
  row.add("store_cpu_ratio_1", store_1).add("store_cpu_ratio_2", store_2);
  row.add("goal", kCpuRatioMax).add("goal_met", std::max(load_1, load_2) <= kCpuRatioMax);
  rows.push_back(row);
  return {};
}

}  // namespace

Status run_transfer(Server& server, const Settings& settings, Json& report) {
  Result<ReadyChild> peer = spawn_ready({"", "--peer"});
  if (!peer) return peer.error();
  Result<RawLoop> one = RawLoop::connect(peer->address, 1);
  if (!one) return one.error();
  Result<RawLoop> two = RawLoop::connect(peer->address, 2);
  if (!two) return two.error();
  StoreOptions options;
  options.hosts = server.hosts();
  if (settings.io_threads > 0) options.num_io_threads = settings.io_threads;
  Result<std::unique_ptr<Engine>> engine = Engine::open(options);
  if (!engine) return engine.error();
  const uint64_t sizes[] = {1 * kMegabyte, 4 * kMegabyte, 16 * kMegabyte, 80 * kMegabyte};
  const size_t room = std::max<size_t>(settings.bytes_a_round, sizes[std::size(sizes) - 1]);
  const Memory target(room, 1);
  const Memory source(room, 2);
  Field field{**engine, *one, *two, target, source};
  std::vector<Json> rows;
  for (const uint64_t size : sizes) AEROKV_TRY(one_size(field, size, settings, rows));
  report.add("transfer", rows);
  return {};
}

}  // namespace aerokv::bench
