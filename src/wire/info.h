// SPDX-License-Identifier: Apache-2.0
// Parsers of info answers. Input is a stranger's text: every count and length is checked.
#pragma once

#include <bitset>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "aerokv/status.h"
#include "base/limits.h"

namespace aerokv::wire {

/// One line of an info answer; both views point into the answer.
struct InfoItem {
  std::string_view name;  ///< the command, echoed with its parameters
  std::string_view value;
};

/// Splits an answer at line feeds, then at the first tab. A line without tab has an empty value.
std::vector<InfoItem> parse_info(std::string_view body);

/// The value of command `name`. Errors: protocol if it is not in the answer; denied (with the
/// server's code) if the value is an error text (`ERROR:code:text`, `FAIL:...`, `error=...`).
Result<std::string_view> find_info(const std::vector<InfoItem>& items, std::string_view name);

/// Values of the form `key=value;key=value`. Keys are compared whole, never as substrings.
std::vector<std::pair<std::string_view, std::string_view>> parse_key_values(std::string_view text);

/// An address to connect to; `host` may be a name, IPv4 or IPv6 without brackets.
struct Endpoint {
  std::string host;
  uint16_t port = 3000;
  std::string tls_name{};  ///< whom its certificate must name; empty = not said

  bool operator==(const Endpoint&) const = default;
  /// "host:port", "[v6]:port": for people, who do not connect by the TLS name.
  [[nodiscard]] std::string to_string() const;
};

/// Whether `text` can be compared with the names of a certificate: 1 to 253 printable characters
/// without blank, ',', ':', '[' and ']', and no dot in front.
bool is_tls_name(std::string_view text);

/// Parses `host`, `host:port`, `host:tls-name:port`, the host also as `[v6]`.
/// Errors: invalid, naming the text.
Result<Endpoint> parse_endpoint(std::string_view text, uint16_t default_port);

/// `host:port,host:port`. Errors: invalid if the list or one entry is empty.
Result<std::vector<Endpoint>> parse_endpoints(std::string_view text, uint16_t default_port);

struct Peer {
  std::string node;
  std::string tls_name;
  std::vector<Endpoint> endpoints;
};

struct Peers {
  int64_t generation = 0;
  std::vector<Peer> peers;
};

/// `generation,[default-port],[[node,[tls],[endpoint,...]],...]`. Errors: protocol.
Result<Peers> parse_peers(std::string_view text);

using PartitionSet = std::bitset<kPartitionCount>;

/// What one node says about one namespace.
struct ReplicaMap {
  std::string ns;
  uint32_t regime = 0;                 ///< > 0: strong consistency
  uint32_t replication_factor = 0;     ///< bitmaps in the answer
  std::vector<PartitionSet> replicas;  ///< [k]: partitions of which the node is replica k; at most
                                       ///< kReplicasMax are kept
};

/// The value of the command `replicas`. Errors: protocol.
Result<std::vector<ReplicaMap>> parse_replicas(std::string_view text);

/// A decimal number that fills `text` completely. Errors: protocol, naming `what`.
Result<int64_t> parse_integer(std::string_view text, std::string_view what);

}  // namespace aerokv::wire
