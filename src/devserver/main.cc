// SPDX-License-Identifier: Apache-2.0
// aerokv_devserver_main: the development server as a program of its own, for tests.
#include <iostream>
#include <string>
#include <vector>

#include "devserver/devserver.h"
#include "devserver/info.h"

namespace {

using aerokv::Code;
using aerokv::Result;
using aerokv::Status;
namespace dev = aerokv::devserver;

constexpr const char* kUsage =
    "usage: aerokv_devserver_main [--host ADDRESS] [--port PORT] [--nodes N] [--replication N]\n"
    "  [--namespace NAME[,size=2G][,nsup=120][,max-record-size=1M][,default-ttl=0]\n"
    "               [,allow-ttl-without-nsup=true]] ... [--user NAME:PASSWORD[:read|:write]] ...\n"
    "  [--threads N] [--cluster-name NAME] [--session-ttl SECONDS] [--migration-us N]\n"
    "  [--detection-ms N] [--join-ms N] [--reserve 512M] [--link 100M]\n"
    "Commands on stdin, one a line: stop N, start N, pause N, resume N, settle; each is answered\n"
    "by ok or an error. The end of stdin or SIGTERM ends the server.\n";

Result<uint64_t> number(const std::string& text) {
  const auto value = dev::parse_size(text);
  if (!value) return Status(Code::invalid, "expected a number, got " + text);
  return *value;
}

Status take_namespace(const std::string& text, dev::Options& options) {
  dev::NamespaceOptions ns;
  std::string rest = text;
  for (bool first = true; !rest.empty(); first = false) {
    const std::string item = rest.substr(0, rest.find(','));
    rest.erase(0, item.size() + 1);
    if (first) {
      ns.name = item;
      continue;
    }
    const size_t equals = item.find('=');
    const std::string key = item.substr(0, equals);
    const std::string value = equals == std::string::npos ? "" : item.substr(equals + 1);
    if (key == "allow-ttl-without-nsup") {
      ns.allow_ttl_without_nsup = value == "true";
      continue;
    }
    const auto parsed =
        key == "nsup" || key == "default-ttl" ? dev::parse_seconds(value) : dev::parse_size(value);
    if (!parsed) return {Code::invalid, "--namespace: bad value in " + item};
    if (key == "size") {
      ns.size_bytes = *parsed;
    } else if (key == "nsup") {
      ns.nsup_period_s = static_cast<uint32_t>(*parsed);
    } else if (key == "max-record-size") {
      ns.max_record_bytes = static_cast<uint32_t>(*parsed);
    } else if (key == "default-ttl") {
      ns.default_ttl_s = static_cast<uint32_t>(*parsed);
    } else {
      return {Code::invalid, "--namespace: unknown " + key};
    }
  }
  options.namespaces.push_back(ns);
  return {};
}

Status take_user(const std::string& text, dev::Options& options) {
  const size_t colon = text.find(':');
  if (colon == std::string::npos) return {Code::invalid, "--user: expected NAME:PASSWORD"};
  dev::UserOptions user;
  user.name = text.substr(0, colon);
  user.password = text.substr(colon + 1);
  if (user.password.ends_with(":read")) {
    user.can_write = false;
    user.password.resize(user.password.size() - 5);
  } else if (user.password.ends_with(":write")) {
    user.can_read = false;
    user.password.resize(user.password.size() - 6);
  }
  options.users.push_back(user);
  return {};
}

Status take_option(const std::string& key, const std::string& value, dev::Options& options) {
  if (key == "--host") {
    options.host = value;
    return {};
  }
  if (key == "--cluster-name") {
    options.cluster_name = value;
    return {};
  }
  if (key == "--namespace") return take_namespace(value, options);
  if (key == "--user") return take_user(value, options);
  const auto parsed = number(value);
  if (!parsed) return parsed.error().with_context(key);
  const auto count = static_cast<int>(*parsed);
  if (key == "--port") {
    options.port = static_cast<uint16_t>(*parsed);
  } else if (key == "--nodes") {
    options.nodes = count;
  } else if (key == "--replication") {
    options.replication = count;
  } else if (key == "--reserve") {
    options.reserve_bytes = *parsed;
  } else if (key == "--link") {
    options.link_bytes_per_second = *parsed;
  } else if (key == "--threads") {
    options.threads = count;
  } else if (key == "--session-ttl") {
    options.session_ttl = std::chrono::seconds(count);
  } else if (key == "--migration-us") {
    options.timing.migration = std::chrono::microseconds(count);
  } else if (key == "--detection-ms") {
    options.timing.detection = std::chrono::milliseconds(count);
  } else if (key == "--join-ms") {
    options.timing.join = std::chrono::milliseconds(count);
  } else {
    return {Code::invalid, "unknown option " + key};
  }
  return {};
}

Status take_options(int argc, char** argv, dev::Options& options) {
  options.namespaces.clear();
  for (int i = 1; i < argc; i += 2) {
    if (i + 1 == argc) return {Code::invalid, std::string(argv[i]) + ": value missing"};
    AEROKV_TRY(take_option(argv[i], argv[i + 1], options));
  }
  if (options.namespaces.empty()) options.namespaces.emplace_back();
  return {};
}

Status obey(dev::DevServer& server, const std::string& line) {
  const std::string verb = line.substr(0, line.find(' '));
  if (verb == "settle") return server.await_settled(std::chrono::seconds(120));
  const auto node = number(line.substr(std::min(line.size(), verb.size() + 1)));
  if (!node) return node.error();
  const auto index = static_cast<int>(*node);
  if (verb == "stop") return server.stop_node(index);
  if (verb == "start") return server.start_node(index);
  if (verb == "pause") return server.pause_node(index);
  if (verb == "resume") return server.resume_node(index);
  return {Code::invalid, "unknown command " + verb};
}

}  // namespace

int main(int argc, char** argv) {
  dev::Options options;
  if (const Status status = take_options(argc, argv, options); !status) {
    std::cerr << status.message() << "\n" << kUsage;
    return 2;
  }
  auto server = dev::DevServer::start(std::move(options));
  if (!server) {
    std::cerr << server.error().message() << "\n";
    return 1;
  }
  std::string ready;
  for (const dev::Endpoint& e : (*server)->endpoints()) {
    ready += (ready.empty() ? "ready " : ",") + e.host + ":" + std::to_string(e.port);
  }
  std::cout << ready << '\n' << std::flush;
  for (std::string line; std::getline(std::cin, line);) {
    const Status status = obey(**server, line);
    std::cout << (status ? "ok" : "error " + status.message()) << '\n' << std::flush;
  }
  (*server)->stop();
  return 0;
}
