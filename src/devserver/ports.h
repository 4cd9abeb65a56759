// SPDX-License-Identifier: Apache-2.0
// The ports of all nodes: bound for as long as the server is there, listening while their node
// runs.
#pragma once

#include <functional>
#include <mutex>
#include <vector>

#include "base/fd.h"
#include "devserver/cluster.h"

namespace aerokv::devserver {

/// Thread-safe after open().
class Ports {
 public:
  /// Takes a client who asked `node`, on a port for TLS or not.
  using Taker = std::function<void(UniqueFd client, int node, bool is_tls)>;

  /// Binds the ports of all nodes; nobody listens yet.
  Status open(const Options& options);

  /// What nodes advertise.
  [[nodiscard]] std::vector<NodeAddresses> advertised(const Options& options) const;
  /// Where nodes are bound; empty if they have no such port.
  [[nodiscard]] std::vector<Endpoint> endpoints(AddressKind kind) const;

  Status listen(int node);
  /// Ends listening, keeps the ports. False if nobody was listening.
  bool refuse(int node);
  void close();

  /// Waits for clients, or for `wake` to be readable, and takes all that are there.
  void await_clients(int wake, const Taker& take);

 private:
  struct Port {
    UniqueFd socket;
    int node = 0;
    AddressKind kind = AddressKind::clear;
    Endpoint endpoint;
    bool listening = false;
  };

  Status add(int node, AddressKind kind, const std::string& host, uint16_t port);

  mutable std::mutex mutex_;
  std::vector<Port> ports_;  // never moved after open()
};

}  // namespace aerokv::devserver
