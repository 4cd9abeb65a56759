// SPDX-License-Identifier: Apache-2.0
// What can go wrong with a request, and what the engine makes of it: the one table of rules, which
// docs/reference/errors.md prints. Nothing here touches a socket.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>

#include "base/clock.h"
#include "wire/result.h"

namespace aerokv::client {

/// Everything that ends an attempt without the answer that was hoped for.
enum class FaultKind : uint8_t {
  refused,          ///< nobody listens, or there is no way to the address
  connect_timeout,  ///< the connection was not established in time
  tls_refused,      ///< the peer failed the checks of TLS, or we failed its
  reset,            ///< the connection broke
  closed_inside,    ///< the server closed the connection with requests on it
  closed_idle,      ///< the server closed a connection that had long been idle
  silence,          ///< no byte for too long, while the node answers others
  node_silence,     ///< no byte for too long, of the whole node
  too_slow,         ///< bytes, but too few for what was asked for
  deadline,         ///< the deadline of a request passed while it was under way
  garbage,          ///< what came is not the protocol, or not an answer to the request
  other_node,       ///< another node answers at the address, or the node left the cluster
  no_node,          ///< the map names nobody
  given_up,         ///< the connection was closed for the sake of another client
  wrong_cluster,    ///< code 7
  out_of_space,     ///< code 8
  server_timeout,   ///< code 9
  not_a_member,     ///< code 11
  too_big,          ///< code 13
  busy,             ///< codes 14 and 32
  overload,         ///< codes 18, 83, 152 and those of aborted queries
  forbidden,        ///< code 22
  no_session,       ///< codes 65, 66 and 80
  final_code,       ///< every other code but 0
};
inline constexpr size_t kFaultKinds = 24;

/// Where an attempt goes on.
enum class Next : uint8_t {
  elsewhere,  ///< at once on the next different node; after a pause where there is none
  again,      ///< after a pause, on the node that the newest map names
  log_in,     ///< after a new login, which only the deadline bounds
  give_up,    ///< the request ends
};

/// What a fault says about the node.
enum class Blame : uint8_t {
  none,
  in_a_row,  ///< its circuit breaker opens when kFailuresToOpen follow each other
  at_once,   ///< its circuit breaker opens
};

/// Whether a write may have been applied although it failed.
enum class Doubt : uint8_t {
  none,
  if_sent,  ///< when it had left completely
};

struct FaultRule {
  FaultKind kind;
  std::string_view name;         ///< as the documentation prints it
  std::array<uint8_t, 8> codes;  ///< server result codes, 0 behind the last
  Next read;
  Next write;
  Blame blame;
  bool wakes_tend;  ///< the map may have changed
  Doubt doubt;
  /// The node may be at work on what was asked: the next attempt counts against the retry budget,
  /// unless it goes from a node whose breaker is open to one whose breaker is not.
  bool is_budgeted;
};

/// In the order of FaultKind.
inline constexpr std::array<FaultRule, kFaultKinds> kFaultRules = {{
    // clang-format off
    {FaultKind::refused, "connection refused", {}, Next::elsewhere, Next::again, Blame::at_once, true, Doubt::none, false},
    {FaultKind::connect_timeout, "no connection in time", {}, Next::elsewhere, Next::again, Blame::at_once, true, Doubt::none, false},
    {FaultKind::tls_refused, "TLS refused", {}, Next::elsewhere, Next::again, Blame::at_once, true, Doubt::none, false},
    {FaultKind::reset, "connection reset", {}, Next::elsewhere, Next::again, Blame::in_a_row, true, Doubt::if_sent, false},
    {FaultKind::closed_inside, "closed with requests on it", {}, Next::elsewhere, Next::again, Blame::in_a_row, true, Doubt::if_sent, false},
    {FaultKind::closed_idle, "closed while idle", {}, Next::elsewhere, Next::again, Blame::none, false, Doubt::if_sent, false},
    {FaultKind::silence, "silence of one connection", {}, Next::elsewhere, Next::again, Blame::in_a_row, true, Doubt::if_sent, true},
    {FaultKind::node_silence, "silence of the whole node", {}, Next::elsewhere, Next::again, Blame::at_once, true, Doubt::if_sent, true},
    {FaultKind::too_slow, "too slow for the bytes asked for", {}, Next::elsewhere, Next::again, Blame::in_a_row, true, Doubt::if_sent, true},
    {FaultKind::deadline, "deadline passed", {}, Next::give_up, Next::give_up, Blame::none, false, Doubt::if_sent, false},
    {FaultKind::garbage, "garbage", {}, Next::elsewhere, Next::again, Blame::in_a_row, true, Doubt::if_sent, false},
    {FaultKind::other_node, "another node, or one that left", {}, Next::elsewhere, Next::again, Blame::none, true, Doubt::if_sent, false},
    {FaultKind::no_node, "no node known", {}, Next::give_up, Next::give_up, Blame::none, true, Doubt::none, false},
    {FaultKind::given_up, "closed for another client", {}, Next::again, Next::again, Blame::none, false, Doubt::if_sent, false},
    {FaultKind::wrong_cluster, "code 7, cluster key mismatch", {7}, Next::elsewhere, Next::again, Blame::none, true, Doubt::none, false},
    {FaultKind::out_of_space, "code 8, out of space", {8}, Next::give_up, Next::give_up, Blame::none, false, Doubt::none, false},
    {FaultKind::server_timeout, "code 9, server-side time-out", {9}, Next::elsewhere, Next::again, Blame::none, true, Doubt::if_sent, true},
    {FaultKind::not_a_member, "code 11, partition unavailable", {11}, Next::elsewhere, Next::again, Blame::in_a_row, true, Doubt::none, false},
    {FaultKind::too_big, "code 13, record too big", {13}, Next::give_up, Next::give_up, Blame::none, false, Doubt::none, false},
    {FaultKind::busy, "codes 14 and 32, key busy", {14, 32}, Next::again, Next::again, Blame::none, false, Doubt::none, true},
    {FaultKind::overload, "codes 18, 83, 152 and 210 to 213, overload", {18, 83, 152, 210, 211, 212, 213}, Next::again, Next::again, Blame::none, false, Doubt::none, true},
    {FaultKind::forbidden, "code 22, forbidden", {22}, Next::give_up, Next::give_up, Blame::none, false, Doubt::none, false},
    {FaultKind::no_session, "codes 65, 66 and 80, no session", {65, 66, 80}, Next::log_in, Next::log_in, Blame::none, true, Doubt::none, false},
    {FaultKind::final_code, "every other code", {}, Next::give_up, Next::give_up, Blame::none, false, Doubt::none, false},
    // clang-format on
}};

constexpr const FaultRule& rule_of(FaultKind kind) {
  return kFaultRules[static_cast<size_t>(kind)];
}

/// What a result code other than kOk means. The table is the only source.
constexpr FaultKind fault_of_code(uint8_t code) {
  for (const FaultRule& rule : kFaultRules) {
    for (const uint8_t known : rule.codes) {
      if (known != 0 && known == code) return rule.kind;
    }
  }
  return FaultKind::final_code;
}

/// A fault that was met.
struct Fault {
  FaultKind kind = FaultKind::final_code;
  Status status;
};

/// True if the answer ends the request; kOk does.
constexpr bool is_final(uint8_t code) {
  return code == wire::result::kOk || rule_of(fault_of_code(code)).read == Next::give_up;
}

/// Failures of one node that follow each other until its circuit breaker opens.
inline constexpr uint32_t kFailuresToOpen = 3;

inline constexpr milliseconds kBackOffFirst{5};
inline constexpr milliseconds kBackOffMax{200};
inline constexpr milliseconds kLoginPause{50};
/// Of reads that wait for a map that names other replicas.
inline constexpr milliseconds kMapPause{25};

/// The pause before attempt number `attempt` (1 = the first retry): doubled with each, and a random
/// part of up to a half taken off, so that those who failed together do not come back together.
Duration back_off(uint32_t attempt, uint64_t& random_state);

/// Limits what is sent once more to a share of what is sent, plus a floor, so that retries cannot
/// double the load of a cluster that is in trouble. Owned by one thread.
class RetryBudget {
 public:
  struct Limits {
    double share = 0.2;      ///< of a retry, earned by each request
    double per_second = 40;  ///< earned by time
    double burst = 64;       ///< that may be saved up, besides what the last second or two earned
  };

  explicit RetryBudget(const Limits& limits) : limits_(limits), tokens_(limits.burst) {}

  void note_request(TimePoint now);
  /// Takes one. Returns how long it has to wait for its turn, zero mostly.
  Duration reserve(TimePoint now);
  /// Takes one if it has its turn now.
  bool try_take(TimePoint now);
  void give_back();

 private:
  void earn(TimePoint now);
  void keep_to_limit();
  void turn_second(TimePoint now);

  const Limits limits_;
  double tokens_;  // below zero: taken in advance
  TimePoint earned_at_{};
  TimePoint second_{};  // since when `requests_` counts
  double requests_ = 0;
  double requests_before_ = 0;  // in the second before
};

}  // namespace aerokv::client
