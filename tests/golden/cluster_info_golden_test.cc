// SPDX-License-Identifier: Apache-2.0
// Info texts of a real cluster of three nodes that lost, froze and regained nodes.
#include <gtest/gtest.h>

#include <set>
#include <sstream>
#include <string>

#include "recordings.h"
#include "wire/info.h"

namespace aerokv::golden {
namespace {

TEST(GoldenClusterInfo, Peers) {
  std::istringstream lines(read_golden("cluster_info/peers.txt"));
  size_t count = 0;
  for (std::string line; std::getline(lines, line); ++count) {
    SCOPED_TRACE(line);
    const auto peers = wire::parse_peers(line);
    ASSERT_TRUE(peers) << peers.error().message();
    // The text again from what was understood.
    std::string again = std::to_string(peers->generation) + ",3000,[";
    for (const wire::Peer& peer : peers->peers) {
      again += (again.back() == '[' ? "[" : ",[") + peer.node + "," + peer.tls_name + ",[";
      for (const wire::Endpoint& endpoint : peer.endpoints) again += endpoint.to_string();
      again += "]]";
    }
    EXPECT_EQ(again + "]", line);
  }
  EXPECT_EQ(count, 39U);
}

TEST(GoldenClusterInfo, ReplicaBitmaps) {
  std::istringstream lines(read_golden("cluster_info/replicas.jsonl"));
  std::set<size_t> factors;
  size_t count = 0;
  for (std::string line; std::getline(lines, line); ++count) {
    const Json json = parse_json(line);
    SCOPED_TRACE(json["event"].text + " " + json["label"].text + " " + json["node"].text);
    const auto maps = wire::parse_replicas(json["text"].text);
    ASSERT_TRUE(maps) << maps.error().message();
    ASSERT_EQ(maps->size(), 1U);
    const wire::ReplicaMap& map = maps->front();
    EXPECT_EQ(map.ns, "lmcache");
    EXPECT_EQ(map.regime, 0U);
    const std::vector<Json>& set_bits = json["set_bits"].list;
    ASSERT_EQ(map.replicas.size(), set_bits.size());
    EXPECT_EQ(map.replication_factor, set_bits.size());
    for (size_t k = 0; k < set_bits.size(); ++k) {
      EXPECT_EQ(map.replicas[k].count(), static_cast<size_t>(set_bits[k].number)) << k;
    }
    if (set_bits.size() == 2) {
      const auto in_both = (map.replicas[0] & map.replicas[1]).count();
      EXPECT_EQ(in_both, static_cast<size_t>(json["in_both"].number));
    }
    factors.insert(map.replicas.size());
  }
  EXPECT_EQ(count, 23U);
  EXPECT_EQ(factors, (std::set<size_t>{1, 2}));
}

}  // namespace
}  // namespace aerokv::golden
