// SPDX-License-Identifier: Apache-2.0
// What the tend thread keeps of one node, or of one address that may become one. Private to the
// source files of Tender.
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
    connecting,
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

  struct Candidate {
    wire::Endpoint endpoint;
    SocketAddress address;
  };

  std::vector<wire::Endpoint> endpoints;  // tried in turn
  std::string expected_node;              // from a peers list; empty for seeds
  bool is_seed = false;

  NodePtr node;  // null until it has told its name
  std::shared_ptr<const Session> session;
  InfoChannel channel;
  std::vector<Candidate> candidates;  // addresses of this turn, those before `next` were tried
  size_t next = 0;
  Candidate current;  // the one that the channel is connected to
  Step step = Step::idle;
  TimePoint asked_at{};
  int failures = 0;            // turns in a row
  bool is_reused = false;      // the channel was open before this turn, and nothing came yet
  bool peers_known = false;    // since it was last unreachable
  bool identified = false;     // in this turn
  bool peers_read = false;     // in this turn
  bool replicas_read = false;  // in this turn

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
  /// It answers, and has told whom it knows.
  [[nodiscard]] bool is_healthy() const { return node && failures == 0 && peers_known && !removed; }
  /// Before it has told its name: another address may do better.
  [[nodiscard]] bool is_connecting() const {
    return step == Step::connecting || step == Step::login || step == Step::identity;
  }
  [[nodiscard]] std::string address_text() const { return endpoints.front().to_string(); }
  [[nodiscard]] std::string label() const { return node ? node->label() : address_text(); }
};

}  // namespace aerokv::client
