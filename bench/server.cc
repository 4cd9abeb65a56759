// SPDX-License-Identifier: Apache-2.0
#include "server.h"

#include <chrono>
#include <iostream>
#include <thread>

#include "devserver/devserver.h"

namespace aerokv::bench {
namespace {

constexpr uint64_t kServerBytes = 4ULL << 30;
constexpr uint64_t kReserveBytes = 512ULL << 20;

Status obey(devserver::DevServer& server, const std::string& line) {
  server.clear_faults();
  if (line == "clear") return {};
  const size_t space = line.find(' ');
  const auto action = devserver::fault_action_from_name(line.substr(0, space));
  if (!action || space == std::string::npos) return {Code::invalid, "unknown command"};
  devserver::Fault fault;
  fault.action = *action;
  fault.delay = std::chrono::microseconds(std::atoll(line.c_str() + space));
  server.add_fault(fault);
  return {};
}

}  // namespace

int run_server(uint64_t link_bytes_per_second) {
  devserver::Options options;
  options.namespaces[0].size_bytes = kServerBytes;
  options.reserve_bytes = kReserveBytes;
  options.link_bytes_per_second = link_bytes_per_second;
  auto server = devserver::DevServer::start(std::move(options));
  if (!server) {
    std::cerr << server.error().message() << "\n";
    return 1;
  }
  const devserver::Endpoint endpoint = (*server)->endpoints().front();
  std::cout << "ready " << endpoint.host << ":" << endpoint.port << std::endl;
  for (std::string line; std::getline(std::cin, line);) {
    const Status status = obey(**server, line);
    std::cout << (status ? "ok" : "error " + status.message()) << std::endl;
  }
  (*server)->stop();
  return 0;
}

int run_tls_server(const std::string& certificate, const std::string& key) {
  devserver::Options options;
  options.namespaces[0].size_bytes = kServerBytes;
  options.reserve_bytes = kReserveBytes;
  options.tls.options.enable = true;
  options.tls.options.cert_file = certificate;
  options.tls.options.key_file = key;
  options.tls.name = "cluster.test";
  auto server = devserver::DevServer::start(std::move(options));
  if (!server) {
    std::cerr << server.error().message() << "\n";
    return 1;
  }
  const devserver::Endpoint clear = (*server)->endpoints().front();
  const devserver::Endpoint tls = (*server)->tls_endpoints().front();
  std::cout << "ready " << clear.host << ":" << clear.port << " " << tls.host << ":" << tls.port
            << std::endl;
  for (std::string line; std::getline(std::cin, line);) {
  }
  (*server)->stop();
  return 0;
}

Result<Server> Server::start(uint64_t link_bytes_per_second) {
  Result<ReadyChild> ready = spawn_ready({"", "--serve", std::to_string(link_bytes_per_second)});
  if (!ready) return ready.error();
  Server server;
  server.hosts_ = ready->address;
  server.child_ = std::move(ready->child);
  // Its reserve is made in the background; a measurement is not to compete with that.
  for (int i = 0; i < 500 && resident_bytes(server.child_->pid()) < kReserveBytes; ++i) {
    std::this_thread::sleep_for(std::chrono::milliseconds(10));
  }
  return server;
}

Server Server::at(std::string hosts) {
  Server server;
  server.hosts_ = std::move(hosts);
  return server;
}

}  // namespace aerokv::bench
