// SPDX-License-Identifier: Apache-2.0
// aerokv_engine_bench: the engine measured without Python, against a server in another process.
#include <cstdlib>
#include <fstream>
#include <iostream>
#include <string>

#include "cases.h"
#include "peer.h"
#include "server.h"
#include "tls_peer.h"

namespace {

using aerokv::Code;
using aerokv::Result;
using aerokv::Status;
using aerokv::bench::Json;
using aerokv::bench::Server;
using aerokv::bench::Settings;

constexpr const char* kUsage =
    "usage: aerokv_engine_bench [--cases memory,transfer,tls,batch,lookup,latency,overload] "
    "[--quick]\n"
    "  [--rounds N] [--io-threads N] [--hosts HOST:PORT,...] [--json FILE]\n"
    "Without --hosts a development server is started as another process.\n";

struct Arguments {
  std::string cases = "memory,transfer,tls,batch,lookup,latency,overload";
  std::string hosts;
  std::string json;
  Settings settings;
};

Status take(int argc, char** argv, Arguments& arguments) {
  for (int i = 1; i < argc; ++i) {
    const std::string name = argv[i];
    if (name == "--quick") {
      arguments.settings.rounds = 3;
      arguments.settings.bytes_a_round = 128U << 20;
      continue;
    }
    if (i + 1 == argc) return {Code::invalid, name + ": unknown, or without a value"};
    const std::string value = argv[++i];
    if (name == "--cases") {
      arguments.cases = value;
    } else if (name == "--hosts") {
      arguments.hosts = value;
    } else if (name == "--json") {
      arguments.json = value;
    } else if (name == "--rounds") {
      arguments.settings.rounds = std::max(1, std::atoi(value.c_str()));
    } else if (name == "--io-threads") {
      arguments.settings.io_threads = std::max(1, std::atoi(value.c_str()));
    } else {
      return {Code::invalid, name + ": unknown"};
    }
  }
  return {};
}

Status run(const Arguments& arguments, Json& report) {
  Result<Server> server =
      arguments.hosts.empty() ? Server::start() : Result<Server>(Server::at(arguments.hosts));
  if (!server) return server.error();
  const std::string cases = "," + arguments.cases + ",";
  const auto wanted = [&](const char* name) {
    return cases.find("," + std::string(name) + ",") != std::string::npos;
  };
  report.add("rounds", static_cast<uint64_t>(arguments.settings.rounds));
  report.add("bytes_a_round", arguments.settings.bytes_a_round);
  const Settings& settings = arguments.settings;
  // First, while the process has no memory from before to use again.
  if (wanted("memory")) AEROKV_TRY(aerokv::bench::run_memory(*server, settings, report));
  if (wanted("transfer")) AEROKV_TRY(aerokv::bench::run_transfer(*server, settings, report));
  if (wanted("tls")) AEROKV_TRY(aerokv::bench::run_tls(settings, report));
  if (wanted("batch")) AEROKV_TRY(aerokv::bench::run_batch(*server, settings, report));
  if (wanted("lookup")) AEROKV_TRY(aerokv::bench::run_lookup(*server, settings, report));
  if (wanted("latency")) AEROKV_TRY(aerokv::bench::run_latency(*server, settings, report));
  if (wanted("overload")) AEROKV_TRY(aerokv::bench::run_overload(settings, report));
  return {};
}

}  // namespace

int main(int argc, char** argv) {
  if (argc == 3 && std::string(argv[1]) == "--serve") {
    return aerokv::bench::run_server(std::strtoull(argv[2], nullptr, 10));
  }
  if (argc == 4 && std::string(argv[1]) == "--serve-tls") {
    return aerokv::bench::run_tls_server(argv[2], argv[3]);
  }
  if (argc == 4 && std::string(argv[1]) == "--tls-peer") {
    return aerokv::bench::run_tls_peer(argv[2], argv[3]);
  }
  if (argc == 2 && std::string(argv[1]) == "--peer") return aerokv::bench::run_peer();
  Arguments arguments;
  if (const Status status = take(argc, argv, arguments); !status) {
    std::cerr << status.message() << "\n" << kUsage;
    return 2;
  }
  Json report;
  if (const Status status = run(arguments, report); !status) {
    std::cerr << "aerokv_engine_bench: " << status.message() << "\n";
    return 1;
  }
  if (arguments.json.empty()) {
    std::cout << report.text() << std::endl;
    return 0;
  }
  std::ofstream file(arguments.json);
  file << report.text() << "\n";
  return file.flush().good() ? 0 : 1;
}
