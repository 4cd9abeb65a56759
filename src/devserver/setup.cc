// SPDX-License-Identifier: Apache-2.0
#include "devserver/setup.h"

#include <algorithm>
#include <set>
#include <thread>

#include "base/limits.h"
#include "devserver/storage.h"

namespace aerokv::devserver {
namespace {

Status check_namespace(const NamespaceOptions& ns) {
  const auto bad = [&](const std::string& what) {
    return Status(Code::invalid, "namespace " + ns.name + ": " + what);
  };
  if (ns.name.empty() || ns.name.size() > kNamespaceBytesMax ||
      ns.name.find_first_of(":;,/\n\t=") != std::string::npos) {
    return bad("expected a name of 1 to 31 bytes");
  }
  if (ns.max_record_bytes < 64 || ns.max_record_bytes > kRecordBytesMax) {
    return bad("max_record_bytes " + std::to_string(ns.max_record_bytes) + ", expected 64 to " +
               std::to_string(kRecordBytesMax));
  }
  if (ns.size_bytes == 0 || ns.size_bytes > (1ULL << 50)) return bad("size_bytes out of range");
  if (ns.default_ttl_s > kTtlSecondsMax) return bad("default_ttl_s over ten years");
  return {};
}

Status bad(const std::string& what) {
  return {Code::invalid, "development server: " + what};
}

Status complete_ids(Options& options) {
  const int nodes = options.all_nodes();
  if (options.node_ids.empty()) {
    for (int i = 1; i <= nodes; ++i) {
      constexpr std::string_view kDigits = "0123456789ABCDEF";
      std::string id = nodes == 1 ? "A" : "B";
      if (i > 15) id += kDigits[static_cast<size_t>(i / 16)];
      id += kDigits[static_cast<size_t>(i % 16)];
      options.node_ids.push_back(std::move(id));
    }
  }
  if (options.node_ids.size() != static_cast<size_t>(nodes)) {
    return bad("node_ids: expected one for each node, the spare ones included");
  }
  std::set<std::string> ids;
  for (const std::string& id : options.node_ids) {
    if (id.empty() || id.size() > 16 ||
        id.find_first_not_of("0123456789ABCDEF") != std::string::npos || !ids.insert(id).second) {
      return bad("node id " + id + ": expected 1 to 16 hexadecimal digits, each id once");
    }
  }
  return {};
}

Status complete_tls(Options& options) {
  ServerTls& tls = options.tls;
  const bool by_certificate =
      std::any_of(options.users.begin(), options.users.end(),
                  [](const UserOptions& user) { return user.login == Login::pki; });
  if (by_certificate && !options.has_tls()) {
    return bad("users of the mode pki log in with a certificate: it needs TLS");
  }
  if (!options.has_tls()) {
    return options.clear_port ? Status() : bad("without a clear port it needs TLS");
  }
  if (by_certificate && tls.client_certificates == TlsClientCertificate::ignored) {
    tls.client_certificates = TlsClientCertificate::optional;
  }
  if (tls.port != 0 && tls.port + options.all_nodes() - 1 > 65535) return bad("tls port: too high");
  return {};
}

}  // namespace

Status complete(Options& options) {
  if (options.nodes < 1 || options.nodes > kNodesMax) return bad("nodes: expected 1 to 16");
  if (options.spare_nodes < 0 || options.all_nodes() > kNodesMax) {
    return bad("spare nodes: expected up to 16 nodes together");
  }
  if (options.replication < 1) return bad("replication: expected at least 1");
  options.replication = std::min(options.replication, options.all_nodes());
  if (options.namespaces.empty()) return bad("namespaces: expected at least one");
  std::set<std::string> names;
  for (const NamespaceOptions& ns : options.namespaces) {
    AEROKV_TRY(check_namespace(ns));
    if (!names.insert(ns.name).second) return bad("namespace " + ns.name + " is there twice");
  }
  for (const UserOptions& user : options.users) {
    if (user.name.empty() || user.name.size() > kUserBytesMax)
      return bad("user name: 1 to 63 bytes");
    if (user.password.size() > kPasswordBytesMax) return bad("password: up to 63 bytes");
    if (user.login == Login::pki && !user.password.empty()) {
      return bad("user " + user.name + ": the mode pki knows no password");
    }
  }
  AEROKV_TRY(complete_ids(options));
  if (!options.racks.empty() && options.racks.size() != static_cast<size_t>(options.all_nodes())) {
    return bad("racks: expected one for each node, the spare ones included");
  }
  if (options.threads < 0 || options.threads > 64) return bad("threads: expected 0 to 64");
  if (options.threads == 0) {
    options.threads = static_cast<int>(std::clamp(std::thread::hardware_concurrency(), 1U, 4U));
  }
  if (options.port != 0 && options.port + options.all_nodes() - 1 > 65535) {
    return bad("port: too high");
  }
  return complete_tls(options);
}

namespace {

/// Takes the last part of "a:b:c" off if it is one that `read` knows.
template <typename Read>
auto take_last(std::string_view& text, Read read) -> decltype(read(text)) {
  const size_t colon = text.rfind(':');
  // The first part is the name; the second, which may be empty, the password.
  if (colon == std::string_view::npos || colon == text.find(':')) return std::nullopt;
  auto value = read(text.substr(colon + 1));
  if (value) text = text.substr(0, colon);
  return value;
}

std::optional<Login> login_from_name(std::string_view name) {
  if (name == "internal") return Login::internal;
  if (name == "external") return Login::external;
  if (name == "pki") return Login::pki;
  return std::nullopt;
}

std::optional<RoleMask> roles_from_names(std::string_view names) {
  RoleMask roles = 0;
  while (!names.empty()) {
    const std::string_view name = names.substr(0, names.find('+'));
    names.remove_prefix(std::min(names.size(), name.size() + 1));
    const auto role = role_from_name(name);
    if (!role) return std::nullopt;
    roles |= mask_of(*role);
  }
  return roles == 0 ? std::nullopt : std::optional<RoleMask>(roles);
}

}  // namespace

Result<UserOptions> parse_user(std::string_view text) {
  UserOptions user;
  if (const auto login = take_last(text, login_from_name)) user.login = *login;
  if (const auto roles = take_last(text, roles_from_names)) user.roles = *roles;
  const size_t colon = text.find(':');
  if (colon == std::string_view::npos || colon == 0) {
    return Status(Code::invalid, "expected name:password[:role[+role]][:login]");
  }
  user.name = text.substr(0, colon);
  user.password = text.substr(colon + 1);
  return user;
}

}  // namespace aerokv::devserver
