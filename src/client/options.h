// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <algorithm>
#include <chrono>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "aerokv/store.h"
#include "base/clock.h"
#include "base/secret.h"
#include "wire/info.h"

namespace aerokv {
class TlsContext;
}

namespace aerokv::client {

/// Which copy of a record a read asks first. Writes always go to the master.
enum class ReplicaPolicy : uint8_t { master, sequence, any, prefer_rack };

struct ClientOptions {
  std::vector<wire::Endpoint> seeds;
  std::string ns;            ///< the one namespace whose partition map is kept
  std::string cluster_name;  ///< nodes of another cluster are refused; empty = any
  AuthMode auth_mode = AuthMode::internal;
  std::string user;  ///< empty = no login, except in the mode pki, where the certificate names it
  Secret password;

  TlsOptions tls;
  std::string tls_name;  ///< of the nodes whose endpoint has none
  /// Made from `tls` by Engine::start().
  std::shared_ptr<TlsContext> tls_context;

  [[nodiscard]] bool needs_login() const { return !user.empty() || auth_mode == AuthMode::pki; }
  bool use_alternate_addresses = false;  ///< `peers-clear-alt`: addresses behind a NAT

  ReplicaPolicy replica = ReplicaPolicy::sequence;
  int rack_id = -1;  ///< for prefer_rack; -1 = none

  int io_threads = 2;
  /// Open connections to one node, over all I/O threads. The client opens few and adds more only
  /// while requests wait for an answer that does not come (latency), not for bytes.
  int connections_per_node_max = 256;
  milliseconds idle_connection_ttl{55000};
  /// Payload bytes of requests that are on their way, over all nodes. Others wait their turn.
  uint64_t bytes_in_flight_max = 256ULL << 20;

  milliseconds connect_timeout{1000};
  /// How long a start goes on trying while no node can be used; 0 = two rounds.
  milliseconds start_timeout{0};
  /// A read gets no byte for this long: the request turns to the next replica.
  milliseconds read_attempt_timeout{150};
  /// The same for writes, where the server may wait for replicas before it answers.
  milliseconds write_attempt_timeout{1000};
  /// The next attempts of a read wait twice as long each: who is silent on several connections is
  /// busy rather than broken, and often there is no other replica.
  [[nodiscard]] milliseconds read_patience(uint32_t attempt) const {
    return read_attempt_timeout * (1 << std::min(attempt, 4U));
  }
  int read_attempts_max = 4;
  /// How long a read that finds no replica at work waits for a map that names others: a computed
  /// answer is soon cheaper than a late miss.
  [[nodiscard]] milliseconds map_patience() const { return read_attempt_timeout; }
  /// A read that is later than most is sent to a second replica as well.
  bool hedge_reads = false;
  milliseconds tend_interval{1000};
};

}  // namespace aerokv::client
