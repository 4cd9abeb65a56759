// SPDX-License-Identifier: Apache-2.0
// What the tend thread keeps of one node, or of one address that may become one. Private to the
// two source files of Tender.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "client/info_channel.h"
#include "client/node.h"
#include "client/tend.h"

namespace aerokv::client {

struct Tender::Contact {
  enum class Step : uint8_t {
    idle,
    login,
    identity,
    user_agent,
    generations,
    peers,
    replicas,
    racks,
    done,
    failed
  };

  std::vector<wire::Endpoint> endpoints;  // tried in turn
  size_t endpoint_index = 0;
  std::string expected_node;  // from a peers list; empty for seeds
  bool is_seed = false;
  bool is_listed = true;  // some healthy node names it as a peer (or it is a seed)

  NodePtr node;  // null until it has told its name
  std::shared_ptr<const Session> session;
  InfoChannel channel;
  SocketAddress address;
  Step step = Step::idle;
  TimePoint asked_at{};
  int failures = 0;
  bool answered = false;       // in this round
  bool peers_read = false;     // in this round
  bool replicas_read = false;  // in this round

  // Numbers of this node only; compared for inequality, never between nodes.
  std::string peers_generation;
  std::string partition_generation;
  std::string rebalance_generation;
  std::string seen_peers_generation;
  std::string seen_partition_generation;
  std::string seen_rebalance_generation;
  std::vector<wire::Peer> peers;
  bool removed = false;

  [[nodiscard]] bool is_busy() const {
    return step != Step::idle && step != Step::done && step != Step::failed;
  }
};

}  // namespace aerokv::client
