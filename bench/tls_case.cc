// SPDX-License-Identifier: Apache-2.0
#include <array>
#include <cstdio>
#include <cstring>
#include <functional>

#include "base/certificates_testing.h"
#include "cases.h"
#include "process.h"
#include "raw_loop.h"
#include "tls_peer.h"
#include "workload.h"

namespace aerokv::bench {
namespace {

constexpr uint64_t kObjectBytes = 4'000'000;

/// GB a second, and CPU seconds for a GB of this process and of the one at the other end.
struct Measured {
  Samples gb_per_s, cpu_s_per_gb, peer_cpu_s_per_gb;

  Status measure(uint64_t bytes, pid_t peer, const std::function<Status()>& work) {
    const double gb = static_cast<double>(bytes) / 1e9;
    const double cpu = process_cpu_seconds();
    const double peer_cpu = process_cpu_seconds(peer);
    const auto start = std::chrono::steady_clock::now();
    AEROKV_TRY(work());
    gb_per_s.add(gb / seconds_since(start));
    cpu_s_per_gb.add((process_cpu_seconds() - cpu) / gb);
    peer_cpu_s_per_gb.add((process_cpu_seconds(peer) - peer_cpu) / gb);
    return {};
  }
  [[nodiscard]] std::string cpu() const {
    std::array<char, 40> text{};
    std::snprintf(text.data(), text.size(), "%.3f + %.3f", cpu_s_per_gb.median(),
                  peer_cpu_s_per_gb.median());
    return text.data();
  }
  [[nodiscard]] Json json() const {
    Json out;
    out.add("gb_per_s", gb_per_s).add("cpu_s_per_gb", cpu_s_per_gb);
    out.add("peer_cpu_s_per_gb", peer_cpu_s_per_gb);
    return out;
  }
};

struct Results {
  Measured clear_load, tls_load, clear_store, tls_store, recv, openssl;
};

struct Field {
  Engine& clear;
  Engine& tls;
  RawLoop& raw;
  TlsLoop& openssl;
  std::vector<MutableBytes> targets;
  std::vector<Bytes> sources;
  pid_t server, raw_peer, openssl_peer;
};

Status one_round(Field& field, int round, Results& results) {
  const uint64_t bytes = kObjectBytes * field.targets.size();
  const auto engine = [&](Measured& into, Engine& by, bool loads) {
    return into.measure(bytes, field.server, [&] {
      return loads ? by.get("s", field.targets) : by.put("s", field.sources);
    });
  };
  const std::function<Status()> steps[] = {
      [&] { return engine(results.clear_load, field.clear, true); },
      [&] { return engine(results.tls_load, field.tls, true); },
      [&] {
        return results.openssl.measure(bytes, field.openssl_peer,
                                       [&] { return field.openssl.receive(field.targets); });
      },
      [&] {
        return results.recv.measure(bytes, field.raw_peer,
                                    [&] { return field.raw.receive(field.targets); });
      },
      [&] { return engine(results.clear_store, field.clear, false); },
      [&] { return engine(results.tls_store, field.tls, false); },
  };
  constexpr size_t kSteps = std::size(steps);
  for (size_t i = 0; i < kSteps; ++i) {
    AEROKV_TRY(steps[(i + static_cast<size_t>(round)) % kSteps]());
  }
  return {};
}

void print(const Results& r, const std::string& cipher, double ratio) {
  std::fprintf(stderr,
               " 4 MB over %s: load %.2f GB/s = %.0f %% of clear text (%.2f); OpenSSL alone %.2f, "
               "recv alone %.2f | store %.2f GB/s = %.0f %% of clear text (%.2f)\n",
               cipher.c_str(), r.tls_load.gb_per_s.median(), 100 * ratio,
               r.clear_load.gb_per_s.median(), r.openssl.gb_per_s.median(),
               r.recv.gb_per_s.median(), r.tls_store.gb_per_s.median(),
               100 * r.tls_store.gb_per_s.median() / r.clear_store.gb_per_s.median(),
               r.clear_store.gb_per_s.median());
  std::fprintf(stderr,
               "         CPU s/GB, client + server: load %s, clear text %s, OpenSSL alone %s, recv "
               "alone %s | store %s, clear text %s\n",
               r.tls_load.cpu().c_str(), r.clear_load.cpu().c_str(), r.openssl.cpu().c_str(),
               r.recv.cpu().c_str(), r.tls_store.cpu().c_str(), r.clear_store.cpu().c_str());
}

}  // namespace

Status run_tls(const Settings& settings, Json& report) {
  const testing::CertificateSet set;
  Result<ReadyChild> server = spawn_ready({"", "--serve-tls", set.server_cert(), set.server_key()});
  if (!server) return server.error();
  Result<ReadyChild> plain_peer = spawn_ready({"", "--peer"});
  if (!plain_peer) return plain_peer.error();
  Result<ReadyChild> tls_peer =
      spawn_ready({"", "--tls-peer", set.server_cert(), set.server_key()});
  if (!tls_peer) return tls_peer.error();
  StoreOptions options;
  const size_t space = server->address.find(' ');
  options.hosts = server->address.substr(0, space);
  if (settings.io_threads > 0) options.num_io_threads = settings.io_threads;
  // Throughput is measured, not patience: a busy machine must not end a round.
  options.request_timeout = options.write_request_timeout = std::chrono::seconds(5);
  options.read_timeout = options.write_timeout = std::chrono::seconds(60);
  Result<std::unique_ptr<Engine>> clear = Engine::open(options);
  if (!clear) return clear.error();
  options.hosts = server->address.substr(space + 1);
  options.tls.enable = true;
  options.tls.ca_file = set.ca_file();
  options.tls_name = "cluster.test";
  Result<std::unique_ptr<Engine>> tls = Engine::open(options);
  if (!tls) return tls.error();
  // As many as the engine has threads.
  const auto links = static_cast<size_t>(options.num_io_threads);
  Result<RawLoop> raw = RawLoop::connect(plain_peer->address, links);
  if (!raw) return raw.error();
  Result<TlsLoop> openssl = TlsLoop::connect(tls_peer->address, links);
  if (!openssl) return openssl.error();

  const size_t objects = std::max<size_t>(1, settings.bytes_a_round / kObjectBytes);
  const Memory target(settings.bytes_a_round, 1);
  const Memory source(settings.bytes_a_round, 2);
  Field field{**clear,
              **tls,
              *raw,
              *openssl,
              target.slices(kObjectBytes, objects),
              as_sources(source.slices(kObjectBytes, objects)),
              server->child->pid(),
              plain_peer->child->pid(),
              tls_peer->child->pid()};
  for (int i = 0; i < 2; ++i) AEROKV_TRY(field.tls.put("s", field.sources));
  Results warm;
  AEROKV_TRY(one_round(field, 0, warm));
  Results r;
  for (int round = 0; round < settings.rounds; ++round) AEROKV_TRY(one_round(field, round, r));
  AEROKV_TRY(field.tls.get("s", field.targets));
  if (std::memcmp(target.bytes().data(), source.bytes().data(), kObjectBytes * objects) != 0) {
    return {Code::corruption, "tls: loaded bytes differ from stored bytes"};
  }
  const double ratio = r.tls_load.gb_per_s.median() / r.clear_load.gb_per_s.median();
  print(r, openssl->cipher(), ratio);
  Json row;
  row.add("object_bytes", kObjectBytes).add("cipher", openssl->cipher());
  row.add("clear_load", r.clear_load.json()).add("tls_load", r.tls_load.json());
  row.add("clear_store", r.clear_store.json()).add("tls_store", r.tls_store.json());
  row.add("recv", r.recv.json()).add("openssl", r.openssl.json());
  row.add("load_ratio", ratio);
  row.add("openssl_ratio", r.openssl.gb_per_s.median() / r.recv.gb_per_s.median());
  row.add("goal", kTlsLoadRatioMin).add("goal_met", ratio >= kTlsLoadRatioMin);
  report.add("tls", row);
  return {};
}

}  // namespace aerokv::bench
