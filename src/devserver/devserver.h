// SPDX-License-Identifier: Apache-2.0
// An Aerospike-compatible server for development, tests and demos: in memory, any number of nodes
// in one process, no root. It speaks the protocol of Aerospike Community Edition 8.1.2 (logins as
// the Enterprise Edition, on request). Production runs on Aerospike itself.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "aerokv/status.h"
#include "base/tls.h"
#include "devserver/faults.h"

namespace aerokv::devserver {

struct NamespaceOptions {
  std::string name = "lmcache";
  uint64_t size_bytes = 1ULL << 30;      ///< of each node; writes over it get code 8
  uint32_t nsup_period_s = 120;          ///< seconds between two removals of expired records
  uint32_t max_record_bytes = 1U << 20;  ///< 64 B to 8 MiB; larger records get code 13
  uint32_t default_ttl_s = 0;            ///< for TTL 0; 0 = never expire
  bool allow_ttl_without_nsup = false;   ///< else a TTL with nsup_period_s 0 gets code 22
};

/// What a user may do, by the names of Aerospike; one bit each.
enum class Role : uint8_t {
  read,
  write,
  read_write,
  read_write_udf,  ///< as read_write: there are no UDFs
  truncate,
  data_admin,  ///< truncate
  sys_admin,   ///< set-config, recluster
  user_admin,  ///< create, change and drop users
};
inline constexpr size_t kRoles = 8;

using RoleMask = uint8_t;
constexpr RoleMask mask_of(Role role) {
  return static_cast<RoleMask>(1U << static_cast<uint32_t>(role));
}

/// "read-write", ...
std::string_view role_name(Role role);
std::optional<Role> role_from_name(std::string_view name);

/// Who checks the password of a user.
enum class Login : uint8_t {
  internal,
  external,  ///< a directory: clients send the password itself
  pki,       ///< nobody: the user is the common name of the client's certificate
};

struct UserOptions {
  std::string name;
  std::string password;
  RoleMask roles = mask_of(Role::read_write);
  Login login = Login::internal;
  uint32_t read_quota = 0;   ///< requests a second, then code 83; 0 = no limit
  uint32_t write_quota = 0;  ///< the same
};

/// How fast a cluster of several nodes notices and repairs. The defaults are those measured on a
/// real cluster; tests shorten them.
struct ClusterTiming {
  std::chrono::milliseconds detection{1800};  ///< death or freeze until the others change the map
  std::chrono::milliseconds join{2100};       ///< start of a node until it is a member
  std::chrono::milliseconds resume{1500};     ///< a resumed node believes in its old map so long
  std::chrono::milliseconds map_change{60};   ///< a map is half-changed so long
  std::chrono::microseconds migration{4000};  ///< of one partition
};

/// A second port of each node that speaks TLS.
struct ServerTls {
  TlsOptions options;  ///< `enable` makes the port; needs a certificate and its key
  TlsClientCertificate client_certificates = TlsClientCertificate::ignored;
  std::string name;   ///< that peers lists give; clients look for it in the certificate
  uint16_t port = 0;  ///< of the first node, the others follow; 0 = any
};

struct Options {
  std::string host = "127.0.0.1";  ///< address to bind and to advertise
  uint16_t port = 0;               ///< of the first node, the others follow; 0 = any
  int nodes = 1;                   ///< that run from the start; with the spare ones 1 to 16
  /// Nodes that can be added later: they have addresses, behind those of the others, but do not
  /// run until start_node().
  int spare_nodes = 0;
  int replication = 2;  ///< copies of each record, at most one a node
  std::vector<NamespaceOptions> namespaces{NamespaceOptions{}};
  /// Empty = logins are answered with code 51, or 52 with TLS, as editions without and with users
  /// do when they are off.
  std::vector<UserOptions> users;
  std::chrono::seconds session_ttl{86400};  ///< of a login
  std::vector<std::string> node_ids;        ///< hex; empty = A1 alone, or B1, B2, ...
  std::string cluster_name = "lmcache-local";
  std::string build = "8.1.2.0";
  int threads = 0;  ///< that serve connections; 0 = as many as cores, at most 4
  std::chrono::milliseconds default_timeout{1000};  ///< of requests that give none
  ClusterTiming timing;
  /// Memory for new records whose pages are touched before they are needed, by a thread of its own:
  /// a fresh page costs more than what is received into it.
  uint64_t reserve_bytes = 0;
  /// What the network link of each node carries in each direction; 0 = no limit.
  uint64_t link_bytes_per_second = 0;
  /// Rack of each node, the spare ones included; empty = none, as in the Community Edition. Copies
  /// of a record go to different racks first.
  std::vector<int> racks;
  /// What nodes advertise in place of `host`, as behind a translation of addresses; empty = `host`.
  std::string advertised_host;
  /// A second address of each node, bound and advertised as alternate; empty = none.
  std::string alternate_host;

  ServerTls tls;
  bool clear_port = true;  ///< false: TLS alone

  [[nodiscard]] int all_nodes() const { return nodes + spare_nodes; }
  [[nodiscard]] bool has_tls() const { return tls.options.enable; }
};

struct Endpoint {
  std::string host;
  uint16_t port = 0;
};

/// All nodes, where a method takes the index of one.
inline constexpr int kAllNodes = -1;

struct NodeStats {
  std::array<uint64_t, kRequestKinds> requests{};  ///< index: RequestKind
  uint64_t bytes_in = 0;
  uint64_t bytes_out = 0;
  uint64_t connections_opened = 0;
  uint64_t connections_now = 0;
  uint64_t records = 0;     ///< copies on this node, replicas included
  uint64_t used_bytes = 0;  ///< what counts against NamespaceOptions::size_bytes
  bool running = false;     ///< false after stop_node(), and of spare nodes
  bool frozen = false;      ///< true after pause_node()
  bool member = false;      ///< false until a started node has joined
};

/// The server. All methods are thread-safe. Nodes are named by their index, first those that run
/// from the start, then the spare ones; an index out of range is an error of code `invalid`, never
/// undefined behaviour.
class DevServer {
 public:
  /// Binds all ports and serves before it returns; a cluster starts settled.
  /// Errors: invalid (options), unavailable (a port cannot be bound).
  static Result<std::unique_ptr<DevServer>> start(Options options);

  ~DevServer();
  DevServer(const DevServer&) = delete;
  DevServer& operator=(const DevServer&) = delete;

  /// Where each node listens, the spare ones included; constant over stop_node() and start_node().
  /// Without clear ports those for TLS.
  [[nodiscard]] std::vector<Endpoint> endpoints() const;
  /// The alternate addresses, for TLS, and both; empty if there are none.
  [[nodiscard]] std::vector<Endpoint> alternate_endpoints() const;
  [[nodiscard]] std::vector<Endpoint> tls_endpoints() const;
  [[nodiscard]] std::vector<Endpoint> alternate_tls_endpoints() const;

  /// Closes everything and joins the threads. Idempotent.
  void stop();

  /// The node dies as from SIGKILL: its sockets close, its data are gone.
  Status stop_node(int node);
  /// A stopped or spare node starts, empty, on its port; it answers code 11 until it has joined.
  Status start_node(int node);
  /// The node freezes as from SIGSTOP: clients can connect, nothing is answered, data stay.
  Status pause_node(int node);
  /// A frozen node goes on, with the map and the data that it had.
  Status resume_node(int node);

  /// Kills a node and starts it again `down` later; less than the time of detection is a quick
  /// restart, which the others never notice as a death.
  Status restart_node(int node, std::chrono::milliseconds down);
  /// Restarts the nodes that run, one after the other, each when the cluster has settled.
  /// Errors: timeout, of one wait.
  Status rolling_restart(std::chrono::milliseconds down, std::chrono::milliseconds timeout);
  /// Scale-in without a gap, as the Enterprise Edition does it: the node hands its partitions over,
  /// then it stops. It is a spare one from then on. stop_node() is how the Community Edition does
  /// it. Errors: timeout (it goes on handing over), invalid (the last one).
  Status remove_node(int node, std::chrono::milliseconds timeout);

  /// Bytes a second of the node's link, in each direction; 0 = no limit. Also for kAllNodes.
  Status set_link(int node, uint64_t bytes_per_second);
  /// Every answer of the node leaves so much later. Also for kAllNodes.
  Status set_latency(int node, std::chrono::microseconds latency);
  /// The node refuses writes with code 8, but not deletes. Also for kAllNodes.
  Status set_stop_writes(int node, bool on);
  /// Moves a node to another rack; the cluster rebalances. Errors: invalid (no racks).
  Status set_rack(int node, int rack);

  /// Adds a user, or gives one another password and other rights, at once and for sessions that are
  /// open. Errors: invalid (the server was started without users).
  Status set_user(UserOptions user);
  /// The user's sessions end. Errors: not_found.
  Status drop_user(const std::string& name);
  /// All sessions end, as if their time was over: tokens get code 66, requests code 80.
  void expire_sessions();

  /// Waits until all running nodes are members and no partition waits for data.
  /// Errors: timeout.
  Status await_settled(std::chrono::milliseconds timeout);

  /// Adds `fault` behind the others; of several that match a request the first with an action left
  /// wins, all count. Returns its id, never 0.
  uint64_t add_fault(Fault fault);
  /// True if it was there.
  bool remove_fault(uint64_t id);
  /// Dropped requests stay dropped, frozen nodes frozen.
  void clear_faults();
  /// In order of addition. Removed faults are not listed.
  [[nodiscard]] std::vector<FaultCounter> fault_counters() const;
  /// Waits until fault `id` was applied `count` times. Errors: timeout, not_found.
  Status await_fault(uint64_t id, uint64_t count, std::chrono::milliseconds timeout);

  [[nodiscard]] Result<NodeStats> stats(int node) const;

 private:
  struct Impl;
  explicit DevServer(std::unique_ptr<Impl> impl);
  std::unique_ptr<Impl> impl_;
};

}  // namespace aerokv::devserver
