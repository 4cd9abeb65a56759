// SPDX-License-Identifier: Apache-2.0
// The texts of info answers, and the host names that a user writes. The first byte chooses.
#include "fuzz.h"
#include "wire/info.h"

using aerokv::fuzz::require;
namespace wire = aerokv::wire;

namespace {

void read_items(std::string_view text) {
  const auto items = wire::parse_info(text);
  require(items.size() <= text.size());
  static_cast<void>(wire::find_info(items, "replicas"));
  if (!items.empty()) static_cast<void>(wire::find_info(items, items.front().name));
  require(wire::parse_key_values(text).size() <= text.size());
}

void read_endpoints(std::string_view text) {
  if (const auto endpoint = wire::parse_endpoint(text, 3000)) {
    require(!endpoint->host.empty() && endpoint->host.size() <= 255 && endpoint->port > 0);
    const auto again = wire::parse_endpoint(endpoint->to_string(), 1);
    require(again && again->host == endpoint->host && again->port == endpoint->port);
    require(endpoint->tls_name.empty() || wire::is_tls_name(endpoint->tls_name));
    if (!endpoint->tls_name.empty()) {
      const std::string v6 = endpoint->host.find(':') == std::string::npos
                                 ? endpoint->host
                                 : "[" + endpoint->host + "]";
      const auto named = wire::parse_endpoint(
          v6 + ":" + endpoint->tls_name + ":" + std::to_string(endpoint->port), 1);
      require(named && *named == *endpoint);
    }
  }
  if (const auto list = wire::parse_endpoints(text, 3000)) {
    require(!list->empty() && list->size() <= text.size() + 1);
  }
}

void read_peers(std::string_view text) {
  const auto peers = wire::parse_peers(text);
  if (!peers) return;
  for (const wire::Peer& peer : peers->peers) {
    require(!peer.node.empty() && peer.node.size() <= aerokv::kNodeNameBytesMax);
    for (const wire::Endpoint& endpoint : peer.endpoints) {
      require(endpoint.port > 0);
      require(endpoint.tls_name.empty() ||
              (endpoint.tls_name == peer.tls_name && wire::is_tls_name(endpoint.tls_name)));
    }
  }
}

void read_replicas(std::string_view text) {
  const auto maps = wire::parse_replicas(text);
  if (!maps) return;
  for (const wire::ReplicaMap& map : *maps) {
    require(!map.ns.empty() && map.ns.size() <= aerokv::kNamespaceBytesMax);
    require(map.replication_factor >= 1);
    require(map.replicas.size() == std::min(map.replication_factor, aerokv::kReplicasMax));
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  aerokv::Bytes bytes = aerokv::fuzz::input(data, size);
  const uint8_t choice = aerokv::fuzz::take(bytes);
  const std::string_view text = aerokv::as_text(bytes);
  switch (choice % 5) {
    case 0:
      read_items(text);
      break;
    case 1:
      read_endpoints(text);
      break;
    case 2:
      read_peers(text);
      break;
    case 3:
      read_replicas(text);
      break;
    default:
      static_cast<void>(wire::parse_integer(text, "number"));
      break;
  }
  return 0;
}
