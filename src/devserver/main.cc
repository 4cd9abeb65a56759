// SPDX-License-Identifier: Apache-2.0
// aerokv_devserver_main: the development server as a program of its own, for tests.
#include <iostream>
#include <string>
#include <vector>

#include "devserver/control.h"
#include "devserver/devserver.h"
#include "devserver/info.h"
#include "devserver/setup.h"

namespace {

using aerokv::Code;
using aerokv::Result;
using aerokv::Status;
namespace dev = aerokv::devserver;

constexpr const char* kUsage =
    "usage: aerokv_devserver_main [--host ADDRESS] [--port PORT] [--nodes N] [--replication N]\n"
    "  [--namespace NAME[,size=2G][,nsup=120][,max-record-size=1M][,default-ttl=0]\n"
    "               [,allow-ttl-without-nsup=true]] ... [--user "
    "NAME:PASSWORD[:ROLE[+ROLE][:LOGIN]]] ...\n"
    "  [--threads N] [--cluster-name NAME] [--session-ttl SECONDS] [--migration-us N]\n"
    "  [--detection-ms N] [--join-ms N] [--reserve 512M] [--link 100M]\n"
    "  [--spare-nodes N] [--racks 1,1,2] [--advertised-host ADDRESS] [--alternate-host ADDRESS]\n"
    "  [--tls-cert FILE --tls-key FILE [--tls-ca FILE] [--tls-name NAME] [--tls-port PORT]\n"
    "   [--tls-client-certificates none|optional|required] [--tls-min-version 1.2|1.3]\n"
    "   [--tls-ciphers LIST] [--tls-cipher-suites LIST] [--clear-port false]]\n"
    "Prints 'ready HOST:PORT,...' of the nodes that run, then 'spare HOST:PORT,...',\n"
    "'alternate HOST:PORT,...', 'tls HOST:PORT,...' if there are such.\n"
    "Takes commands on stdin, one a line; each is answered by ok or an error. The end of stdin or\n"
    "SIGTERM ends the server.\n";

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
  auto user = dev::parse_user(text);
  if (!user) return user.error().with_context("--user");
  options.users.push_back(std::move(user).value());
  return {};
}

// Where TLS is concerned; false if `key` is none of these options.
bool take_tls(const std::string& key, const std::string& value, dev::Options& options,
              Status& status) {
  dev::ServerTls& tls = options.tls;
  const std::pair<const char*, std::string*> texts[] = {
      {"--tls-cert", &tls.options.cert_file},  {"--tls-key", &tls.options.key_file},
      {"--tls-ca", &tls.options.ca_file},      {"--tls-name", &tls.name},
      {"--tls-ciphers", &tls.options.ciphers}, {"--tls-cipher-suites", &tls.options.cipher_suites}};
  for (const auto& [name, text] : texts) {
    if (key != name) continue;
    *text = value;
    tls.options.enable = true;
    return true;
  }
  if (key == "--tls-client-certificates") {
    tls.client_certificates = value == "required"   ? aerokv::TlsClientCertificate::required
                              : value == "optional" ? aerokv::TlsClientCertificate::optional
                                                    : aerokv::TlsClientCertificate::ignored;
    return true;
  }
  if (key == "--tls-min-version") {
    if (value != "1.2" && value != "1.3") status = {Code::invalid, key + ": 1.2 or 1.3"};
    tls.options.min_version = value == "1.3" ? aerokv::TlsVersion::v1_3 : aerokv::TlsVersion::v1_2;
    return true;
  }
  if (key == "--clear-port") {
    options.clear_port = value != "false";
    return true;
  }
  return false;
}

Status take_racks(std::string text, dev::Options& options) {
  while (!text.empty()) {
    const std::string item = text.substr(0, text.find(','));
    text.erase(0, item.size() + 1);
    const auto rack = number(item);
    if (!rack) return rack.error().with_context("--racks");
    options.racks.push_back(static_cast<int>(*rack));
  }
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
  if (key == "--advertised-host") {
    options.advertised_host = value;
    return {};
  }
  if (key == "--alternate-host") {
    options.alternate_host = value;
    return {};
  }
  Status tls_status;
  if (take_tls(key, value, options, tls_status)) return tls_status;
  if (key == "--racks") return take_racks(value, options);
  if (key == "--namespace") return take_namespace(value, options);
  if (key == "--user") return take_user(value, options);
  const auto parsed = number(value);
  if (!parsed) return parsed.error().with_context(key);
  const auto count = static_cast<int>(*parsed);
  if (key == "--port") {
    options.port = static_cast<uint16_t>(*parsed);
  } else if (key == "--tls-port") {
    options.tls.port = static_cast<uint16_t>(*parsed);
  } else if (key == "--nodes") {
    options.nodes = count;
  } else if (key == "--spare-nodes") {
    options.spare_nodes = count;
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

std::string list(const std::vector<dev::Endpoint>& endpoints) {
  std::string text;
  for (const dev::Endpoint& e : endpoints) {
    text += (text.empty() ? "" : ",") + e.host + ":" + std::to_string(e.port);
  }
  return text;
}

}  // namespace

int main(int argc, char** argv) {
  dev::Options options;
  if (const Status status = take_options(argc, argv, options); !status) {
    std::cerr << status.message() << "\n" << kUsage << dev::control_usage();
    return 2;
  }
  const int nodes = options.nodes;
  auto server = dev::DevServer::start(std::move(options));
  if (!server) {
    std::cerr << server.error().message() << "\n";
    return 1;
  }
  const std::vector<dev::Endpoint> all = (*server)->endpoints();
  const auto spare = all.begin() + nodes;
  std::cout << "ready " << list({all.begin(), spare}) << '\n';
  if (spare != all.end()) std::cout << "spare " << list({spare, all.end()}) << '\n';
  const std::vector<dev::Endpoint> alternate = (*server)->alternate_endpoints();
  if (!alternate.empty()) std::cout << "alternate " << list(alternate) << '\n';
  const std::vector<dev::Endpoint> tls = (*server)->tls_endpoints();
  if (!tls.empty()) std::cout << "tls " << list(tls) << '\n';
  std::cout << std::flush;
  for (std::string line; std::getline(std::cin, line);) {
    const Status status = dev::control(**server, line);
    std::cout << (status ? "ok" : "error " + status.message()) << '\n' << std::flush;
  }
  (*server)->stop();
  return 0;
}
