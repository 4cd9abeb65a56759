// SPDX-License-Identifier: Apache-2.0
// Class DevServer: the development server inside a Python process.
#include "devserver/devserver.h"

#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <cmath>
#include <memory>
#include <optional>
#include <string>
#include <utility>

#include "bindings/bind.h"
#include "bindings/errors.h"
#include "bindings/fork_guard.h"
#include "bindings/gil.h"
#include "bindings/option_reader.h"
#include "devserver/certificates.h"
#include "devserver/cluster.h"
#include "devserver/control.h"
#include "devserver/setup.h"

namespace aerokv::bindings {
namespace {

using devserver::DevServer;

constexpr const char* kName = "DevServer";

devserver::NamespaceOptions read_namespace(const nb::dict& fields) {
  devserver::NamespaceOptions out;
  OptionReader reader(fields, "namespace option");
  reader.take_text("name", out.name);
  reader.take_number("size_bytes", out.size_bytes);
  reader.take_number("nsup_period_s", out.nsup_period_s);
  reader.take_number("max_record_bytes", out.max_record_bytes);
  reader.take_number("default_ttl_s", out.default_ttl_s);
  reader.take_flag("allow_ttl_without_nsup", out.allow_ttl_without_nsup);
  reader.finish();
  return out;
}

// A dict, or the text that the option --user takes.
devserver::UserOptions read_user(nb::handle value) {
  if (nb::isinstance<nb::str>(value)) {
    auto user = devserver::parse_user(nb::cast<std::string>(value));
    if (!user) raise(user.error().with_context("--user"));
    return std::move(user).value();
  }
  devserver::UserOptions out;
  OptionReader reader(nb::cast<nb::dict>(value), "user option");
  reader.take_text("name", out.name);
  reader.take_text("password", out.password);
  if (const nb::object list = reader.take("roles"); !list.is_none()) {
    out.roles = 0;
    for (const nb::handle entry : list) {
      const auto name = nb::cast<std::string>(entry);
      const auto role = devserver::role_from_name(name);
      if (!role) reader.fail("roles", "'" + name + "'", "names of roles");
      out.roles |= devserver::mask_of(*role);
    }
  }
  reader.take_choice("login", out.login,
                     std::array<std::pair<std::string_view, devserver::Login>, 3>{
                         {{"internal", devserver::Login::internal},
                          {"external", devserver::Login::external},
                          {"pki", devserver::Login::pki}}});
  reader.take_number("read_quota", out.read_quota);
  reader.take_number("write_quota", out.write_quota);
  reader.finish();
  return out;
}

devserver::ServerTls read_tls(const nb::dict& fields) {
  devserver::ServerTls out;
  OptionReader reader(fields, "tls option");
  out.options.enable = true;
  reader.take_text("cert_file", out.options.cert_file);
  reader.take_text("key_file", out.options.key_file);
  reader.take_text("ca_file", out.options.ca_file);
  reader.take_text("crl_file", out.options.crl_file);
  reader.take_text("key_password_file", out.options.key_password_file);
  reader.take_text("ciphers", out.options.ciphers);
  reader.take_text("cipher_suites", out.options.cipher_suites);
  reader.take_choice("min_version", out.options.min_version,
                     std::array<std::pair<std::string_view, TlsVersion>, 2>{
                         {{"1.2", TlsVersion::v1_2}, {"1.3", TlsVersion::v1_3}}});
  reader.take_choice("client_certificates", out.client_certificates,
                     std::array<std::pair<std::string_view, TlsClientCertificate>, 3>{
                         {{"none", TlsClientCertificate::ignored},
                          {"optional", TlsClientCertificate::optional},
                          {"required", TlsClientCertificate::required}}});
  reader.take_text("name", out.name);
  reader.take_number("port", out.port);
  reader.finish();
  return out;
}

devserver::ClusterTiming read_timing(const nb::dict& fields) {
  devserver::ClusterTiming out;
  OptionReader reader(fields, "timing option");
  reader.take_duration("detection_ms", out.detection);
  reader.take_duration("join_ms", out.join);
  reader.take_duration("resume_ms", out.resume);
  reader.take_duration("map_change_ms", out.map_change);
  reader.take_duration("migration_us", out.migration);
  reader.finish();
  return out;
}

devserver::Options read_options(const nb::dict& fields) {
  devserver::Options out;
  OptionReader reader(fields, "option");
  reader.take_text("host", out.host);
  reader.take_number("port", out.port);
  reader.take_number("nodes", out.nodes);
  reader.take_number("spare_nodes", out.spare_nodes);
  reader.take_number("replication", out.replication);
  if (const nb::object list = reader.take("namespaces"); !list.is_none()) {
    out.namespaces.clear();
    for (const nb::handle entry : list)
      out.namespaces.push_back(read_namespace(nb::cast<nb::dict>(entry)));
  }
  if (const nb::object list = reader.take("users"); !list.is_none()) {
    for (const nb::handle entry : list) out.users.push_back(read_user(entry));
  }
  reader.take_duration("session_ttl_s", out.session_ttl);
  if (const nb::object list = reader.take("node_ids"); !list.is_none()) {
    for (const nb::handle entry : list) out.node_ids.push_back(nb::cast<std::string>(entry));
  }
  reader.take_text("cluster_name", out.cluster_name);
  reader.take_text("build", out.build);
  reader.take_number("threads", out.threads);
  reader.take_number("reserve_bytes", out.reserve_bytes);
  reader.take_number("link_bytes_per_second", out.link_bytes_per_second);
  reader.take_duration("default_timeout_ms", out.default_timeout);
  if (const nb::object list = reader.take("racks"); !list.is_none()) {
    for (const nb::handle entry : list) out.racks.push_back(nb::cast<int>(entry));
  }
  reader.take_text("advertised_host", out.advertised_host);
  reader.take_text("alternate_host", out.alternate_host);
  if (const nb::object tls = reader.take("tls"); !tls.is_none()) {
    out.tls = read_tls(nb::cast<nb::dict>(tls));
  }
  reader.take_flag("clear_port", out.clear_port);
  if (const nb::object timing = reader.take("timing"); !timing.is_none()) {
    out.timing = read_timing(nb::cast<nb::dict>(timing));
  }
  reader.finish();
  return out;
}

// The enumerator of one of `count` names that `name_of` knows, or an error that lists them.
template <typename E, typename NameOf>
E read_enum(const char* field, const std::string& text, size_t count, NameOf name_of) {
  std::string known;
  for (size_t i = 0; i < count; ++i) {
    const std::string_view name = name_of(static_cast<E>(i));
    if (name == text) return static_cast<E>(i);
    known += (i == 0 ? "" : ", ") + std::string(name);
  }
  raise_invalid(std::string("fault '") + field + "': '" + text + "', expected one of " + known);
}

devserver::RequestMask read_kinds(const nb::object& kinds) {
  devserver::RequestMask mask = 0;
  for (const nb::handle entry : kinds) {
    mask |= devserver::mask_of(
        read_enum<devserver::RequestKind>("kinds", nb::cast<std::string>(entry),
                                          devserver::kRequestKinds, devserver::request_kind_name));
  }
  return mask;
}

wire::Digest read_digest(nb::handle value) {
  wire::Digest digest{};
  const nb::bytes bytes =
      nb::isinstance<nb::bytes>(value)
          ? nb::borrow<nb::bytes>(value)
          : nb::cast<nb::bytes>(
                nb::module_::import_("builtins").attr("bytes").attr("fromhex")(value));
  if (bytes.size() != digest.size()) {
    raise_invalid("fault 'digests': " + std::to_string(bytes.size()) + " bytes, expected 20");
  }
  std::memcpy(digest.data(), bytes.c_str(), digest.size());
  return digest;
}

devserver::Fault read_fault(const nb::dict& fields) {
  devserver::Fault out;
  OptionReader reader(fields, "fault");
  std::string action;
  std::string damage;
  reader.take_text("action", action);
  if (action.empty()) reader.fail("action", "none", "the name of an action");
  out.action = read_enum<devserver::FaultAction>("action", action, devserver::kFaultActions,
                                                 devserver::fault_action_name);
  reader.take_text("damage", damage);
  if (!damage.empty()) {
    out.damage =
        read_enum<devserver::Damage>("damage", damage, devserver::kDamages, devserver::damage_name);
  }
  reader.take_number("node", out.node);
  if (const nb::object kinds = reader.take("kinds"); !kinds.is_none()) {
    out.kinds = read_kinds(kinds);
  }
  if (const nb::object digests = reader.take("digests"); !digests.is_none()) {
    for (const nb::handle entry : digests) out.digests.push_back(read_digest(entry));
  }
  reader.take_text("key_contains", out.key_contains);
  reader.take_text("set", out.set);
  reader.take_number("skip", out.skip);
  reader.take_number("count", out.count);
  if (const nb::object delay = reader.take("delay_ms"); !delay.is_none()) {
    const auto ms = nb::cast<double>(delay);
    if (!(ms >= 0 && ms <= 3.6e6)) reader.fail("delay_ms", std::to_string(ms), "0 to 3600000");
    out.delay = std::chrono::microseconds(std::llround(ms * 1000));
  }
  reader.take_number("code", out.code);
  reader.take_number("bytes", out.bytes);
  reader.take_number("seed", out.seed);
  reader.finish();
  return out;
}

nb::dict stats_dict(const devserver::NodeStats& stats) {
  nb::dict requests;
  for (size_t i = 0; i < devserver::kRequestKinds; ++i) {
    const std::string_view name =
        devserver::request_kind_name(static_cast<devserver::RequestKind>(i));
    requests[nb::str(name.data(), name.size())] = stats.requests[i];
  }
  nb::dict out;
  out["requests"] = requests;
  out["bytes_in"] = stats.bytes_in;
  out["bytes_out"] = stats.bytes_out;
  out["connections_opened"] = stats.connections_opened;
  out["connections_now"] = stats.connections_now;
  out["records"] = stats.records;
  out["used_bytes"] = stats.used_bytes;
  out["running"] = stats.running;
  out["frozen"] = stats.frozen;
  out["member"] = stats.member;
  return out;
}

// Owns a server. Its calls may wait, so they release the GIL.
class PyDevServer {
 public:
  explicit PyDevServer(const nb::dict& fields) {
    devserver::Options options = read_options(fields);
    nodes_ = static_cast<size_t>(std::max(0, options.nodes));
    std::optional<Result<std::unique_ptr<DevServer>>> started;
    {
      const GilReleased released;
      started.emplace(DevServer::start(std::move(options)));
    }
    if (!started->has_value()) raise(started->error());
    server_ = std::move(*started).value();
  }

  ~PyDevServer() {
    if (guard_.is_child()) {
      // Nothing of the parent's threads may be joined here; the memory goes with the process.
      [[maybe_unused]] const DevServer* leaked = server_.release();
      return;
    }
    const GilReleased released;
    server_.reset();
  }

  PyDevServer(const PyDevServer&) = delete;
  PyDevServer& operator=(const PyDevServer&) = delete;

  DevServer& server() {
    guard_.check(kName);
    return *server_;
  }

  /// Those that run from the start; the others are spare ones.
  [[nodiscard]] size_t nodes() const { return nodes_; }

  void stop() {
    if (guard_.is_child()) return;
    const GilReleased released;
    server_->stop();
  }

  template <typename Call>
  void wait(Call call) {
    DevServer& target = server();
    Status status;
    {
      const GilReleased released;
      status = call(target);
    }
    if (!status) raise(status);
  }

 private:
  ForkGuard guard_;
  size_t nodes_ = 0;
  std::unique_ptr<DevServer> server_;
};

std::chrono::milliseconds read_timeout(double seconds) {
  if (!(seconds >= 0 && seconds <= 3600)) raise_invalid("timeout: expected 0 to 3600 seconds");
  return std::chrono::milliseconds(std::llround(seconds * 1000));
}

nb::list endpoint_list(const std::vector<devserver::Endpoint>& endpoints) {
  nb::list out;
  for (const devserver::Endpoint& endpoint : endpoints) {
    out.append(nb::make_tuple(endpoint.host, static_cast<int>(endpoint.port)));
  }
  return out;
}

// Of the first `count` endpoints, as the option `hosts` takes them.
std::string hosts_text(const std::vector<devserver::Endpoint>& endpoints, size_t count) {
  std::string out;
  for (size_t i = 0; i < std::min(count, endpoints.size()); ++i) {
    out += (out.empty() ? "" : ",") + devserver::endpoint_text(endpoints[i]);
  }
  return out;
}

nb::list fault_counters(PyDevServer& self) {
  nb::list out;
  for (const devserver::FaultCounter& counter : self.server().fault_counters()) {
    nb::dict row;
    row["id"] = counter.id;
    row["matched"] = counter.matched;
    row["applied"] = counter.applied;
    out.append(row);
  }
  return out;
}

nb::dict stats(PyDevServer& self, int node) {
  const Result<devserver::NodeStats> result = self.server().stats(node);
  if (!result) raise(result.error());
  return stats_dict(*result);
}

void bind_nodes(nb::class_<PyDevServer>& type) {
  const auto node_call = [&type](const char* name, Status (DevServer::*method)(int),
                                 const char* doc) {
    type.def(
        name,
        [method](PyDevServer& self, int node) {
          self.wait([=](DevServer& server) { return (server.*method)(node); });
        },
        nb::arg("node"), doc);
  };
  node_call("stop_node", &DevServer::stop_node,
            "Kill a node: its sockets close, its data are gone.");
  node_call("start_node", &DevServer::start_node, "Start a stopped node, empty, on its old port.");
  node_call("pause_node", &DevServer::pause_node,
            "Freeze a node: clients can connect, nothing is answered.");
  node_call("resume_node", &DevServer::resume_node, "Let a frozen node go on with what it had.");
  type.def(
      "restart_node",
      [](PyDevServer& self, int node, double down) {
        const std::chrono::milliseconds time = read_timeout(down);
        self.wait([=](DevServer& server) { return server.restart_node(node, time); });
      },
      nb::arg("node"), nb::arg("down") = 0.2, "Kill a node and start it `down` seconds later.");
  type.def(
      "rolling_restart",
      [](PyDevServer& self, double down, double timeout) {
        const std::chrono::milliseconds time = read_timeout(down);
        const std::chrono::milliseconds limit = read_timeout(timeout);
        self.wait([=](DevServer& server) { return server.rolling_restart(time, limit); });
      },
      nb::arg("down") = 0.2, nb::arg("timeout") = 120.0,
      "Restart one node after the other, each when all has settled.");
  type.def(
      "remove_node",
      [](PyDevServer& self, int node, double timeout) {
        const std::chrono::milliseconds limit = read_timeout(timeout);
        self.wait([=](DevServer& server) { return server.remove_node(node, limit); });
      },
      nb::arg("node"), nb::arg("timeout") = 120.0, "Hand a node's data over, then stop it.");
}

void bind_conditions(nb::class_<PyDevServer>& type) {
  type.def(
      "set_link",
      [](PyDevServer& self, int node, uint64_t bytes_per_second) {
        self.wait([=](DevServer& server) { return server.set_link(node, bytes_per_second); });
      },
      nb::arg("node"), nb::arg("bytes_per_second"), "Speed of a node's link; 0 = no limit.");
  type.def(
      "set_latency",
      [](PyDevServer& self, int node, double milliseconds) {
        if (!(milliseconds >= 0 && milliseconds <= 3.6e6)) raise_invalid("latency: 0 to 3600000");
        const std::chrono::microseconds time(std::llround(milliseconds * 1000));
        self.wait([=](DevServer& server) { return server.set_latency(node, time); });
      },
      nb::arg("node"), nb::arg("milliseconds"), "Let every answer of a node leave later.");
  type.def(
      "set_stop_writes",
      [](PyDevServer& self, int node, bool on) {
        self.wait([=](DevServer& server) { return server.set_stop_writes(node, on); });
      },
      nb::arg("node"), nb::arg("on"), "Let a node refuse writes.");
  type.def(
      "set_rack",
      [](PyDevServer& self, int node, int rack) {
        self.wait([=](DevServer& server) { return server.set_rack(node, rack); });
      },
      nb::arg("node"), nb::arg("rack"), "Move a node to another rack.");
  type.def(
      "set_user",
      [](PyDevServer& self, nb::handle user) {
        const devserver::UserOptions options = read_user(user);
        self.wait([&](DevServer& server) { return server.set_user(options); });
      },
      nb::arg("user"), "Add a user, or give one another password and other rights.");
  type.def(
      "drop_user",
      [](PyDevServer& self, const std::string& name) {
        self.wait([&](DevServer& server) { return server.drop_user(name); });
      },
      nb::arg("name"), "Drop a user; its sessions end.");
  type.def(
      "expire_sessions", [](PyDevServer& self) { self.server().expire_sessions(); },
      "End all sessions.");
  type.def(
      "control",
      [](PyDevServer& self, const std::string& line) {
        self.wait([&](DevServer& server) { return devserver::control(server, line); });
      },
      nb::arg("line"), "Carry out a command of `lmcache-aerospike serve --control`.");
}

void bind_faults(nb::class_<PyDevServer>& type) {
  type.def(
      "add_fault",
      [](PyDevServer& self, const nb::kwargs& fields) {
        return self.server().add_fault(read_fault(fields));
      },
      nb::arg("fields"), "Add an entry to the fault plan; returns its id.");
  type.def(
      "remove_fault", [](PyDevServer& self, uint64_t id) { return self.server().remove_fault(id); },
      nb::arg("id"), "Remove a fault; True if it was there.");
  type.def(
      "clear_faults", [](PyDevServer& self) { self.server().clear_faults(); },
      "Remove all faults.");
  type.def("fault_counters", &fault_counters, "How often each fault matched and was applied.");
  type.def(
      "await_fault",
      [](PyDevServer& self, uint64_t id, uint64_t count, double timeout) {
        const std::chrono::milliseconds limit = read_timeout(timeout);
        self.wait([=](DevServer& server) { return server.await_fault(id, count, limit); });
      },
      nb::arg("id"), nb::arg("count") = 1, nb::arg("timeout") = 10.0,
      "Wait until a fault was applied `count` times.");
}

nb::dict make_certificates(const std::string& folder, const std::string& server_name,
                           const std::vector<std::string>& clients) {
  const auto made = devserver::make_certificates(folder, server_name, clients);
  if (!made) raise(made.error());
  nb::dict out;
  out["ca_file"] = made->ca_file;
  out["server_cert"] = made->server_cert;
  out["server_key"] = made->server_key;
  nb::dict pairs;
  for (const auto& client : made->clients) {
    pairs[client.name.c_str()] = nb::make_tuple(client.cert, client.key);
  }
  out["clients"] = pairs;
  return out;
}

}  // namespace

void bind_devserver(nb::module_& module) {
  module.def("make_certificates", &make_certificates, nb::arg("folder"), nb::arg("server_name"),
             nb::arg("clients"), "Make an authority and what it signs, to try TLS with.");
  nb::class_<PyDevServer> type(module, kName,
                               "An Aerospike-compatible server in this process, for tests.");
  type.def(
      "__init__",
      [](PyDevServer* self, const nb::kwargs& fields) { new (self) PyDevServer(fields); },
      nb::arg("options"));
  type.def(
      "endpoints", [](PyDevServer& self) { return endpoint_list(self.server().endpoints()); },
      "One (host, port) for each node, the spare ones last.");
  type.def_prop_ro(
      "hosts",
      [](PyDevServer& self) { return hosts_text(self.server().endpoints(), self.nodes()); },
      "Those that run from the start, as the option `hosts` takes them.");
  type.def_prop_ro(
      "tls_hosts",
      [](PyDevServer& self) { return hosts_text(self.server().tls_endpoints(), self.nodes()); },
      "Their addresses for TLS.");
  type.def_prop_ro(
      "alternate_hosts",
      [](PyDevServer& self) {
        return hosts_text(self.server().alternate_endpoints(), self.nodes());
      },
      "Their alternate addresses.");
  type.def("stop", &PyDevServer::stop, "Close everything and join the threads. Idempotent.");
  type.def(
      "await_settled",
      [](PyDevServer& self, double timeout) {
        const std::chrono::milliseconds limit = read_timeout(timeout);
        self.wait([=](DevServer& server) { return server.await_settled(limit); });
      },
      nb::arg("timeout") = 10.0, "Wait until all running nodes are members and hold their data.");
  type.def("stats", &stats, nb::arg("node") = 0, "The counters of one node.");
  type.def("__enter__", [](nb::handle self) { return nb::borrow(self); });
  type.def("__exit__", [](PyDevServer& self, const nb::args&) { self.stop(); }, nb::arg("error"));
  bind_nodes(type);
  bind_conditions(type);
  bind_faults(type);
}

}  // namespace aerokv::bindings
