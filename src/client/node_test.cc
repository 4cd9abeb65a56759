// SPDX-License-Identifier: Apache-2.0
#include "client/node.h"

#include <gtest/gtest.h>

namespace aerokv::client {
namespace {

NodePtr make_node(const std::string& name) {
  return std::make_shared<Node>(name, wire::Endpoint{"127.0.0.1", 3000}, SocketAddress{});
}

wire::ReplicaMap claims(std::initializer_list<std::initializer_list<uint32_t>> bitmaps,
                        uint32_t regime = 0) {
  wire::ReplicaMap map;
  map.ns = "lmcache";
  map.regime = regime;
  map.replication_factor = static_cast<uint32_t>(bitmaps.size());
  for (const auto& bits : bitmaps) {
    wire::PartitionSet set;
    for (const uint32_t p : bits) set[p] = true;
    map.replicas.push_back(set);
  }
  return map;
}

class RoutingTest : public ::testing::Test {
 protected:
  RoutingTest() {
    map_.nodes = {a_, b_, c_};
    map_.partitions.resize(kPartitionCount);
    map_.partitions[7] = {a_, b_, nullptr};
    map_.replication_factor = 2;
  }

  std::string choose(ReplicaPolicy policy, bool is_write, uint32_t attempt, uint32_t spread = 0) {
    const NodePtr node = choose_node(map_, {policy, rack_}, 7, is_write, attempt, spread);
    return node ? node->name() : "none";
  }

  NodePtr a_ = make_node("A"), b_ = make_node("B"), c_ = make_node("C");
  ClusterMap map_;
  int rack_ = -1;
};

TEST_F(RoutingTest, SequenceStartsAtTheMasterAndWrapsAround) {
  EXPECT_EQ(choose(ReplicaPolicy::sequence, false, 0), "A");
  EXPECT_EQ(choose(ReplicaPolicy::sequence, false, 1), "B");
  EXPECT_EQ(choose(ReplicaPolicy::sequence, false, 2), "A");
}

TEST_F(RoutingTest, MasterPolicyAndWritesStayOnTheMaster) {
  for (uint32_t attempt = 0; attempt < 3; ++attempt) {
    EXPECT_EQ(choose(ReplicaPolicy::master, false, attempt), "A");
    EXPECT_EQ(choose(ReplicaPolicy::sequence, true, attempt), "A");
  }
}

TEST_F(RoutingTest, AnySpreadsOverTheReplicas) {
  EXPECT_EQ(choose(ReplicaPolicy::any, false, 0, 0), "A");
  EXPECT_EQ(choose(ReplicaPolicy::any, false, 0, 1), "B");
  EXPECT_EQ(choose(ReplicaPolicy::any, false, 1, 1), "A");
}

TEST_F(RoutingTest, RackComesFirst) {
  map_.racks = {{"A", 1}, {"B", 2}};
  rack_ = 2;
  EXPECT_EQ(choose(ReplicaPolicy::prefer_rack, false, 0), "B");
  EXPECT_EQ(choose(ReplicaPolicy::prefer_rack, false, 1), "A");
  EXPECT_EQ(choose(ReplicaPolicy::prefer_rack, true, 0), "A");
}

TEST_F(RoutingTest, ReadsAvoidSuspects) {
  a_->suspect(SteadyClock::now(), {});
  EXPECT_EQ(choose(ReplicaPolicy::sequence, false, 0), "B");
  EXPECT_EQ(choose(ReplicaPolicy::sequence, false, 1), "A");
  b_->suspect(SteadyClock::now(), {});
  EXPECT_EQ(choose(ReplicaPolicy::sequence, false, 0), "A");
}

TEST_F(RoutingTest, AReadThatFailedGoesToAnotherHealthyReplica) {
  const auto next = [&](uint32_t attempt, const NodePtr& last) {
    return choose_node(map_, {ReplicaPolicy::sequence, -1}, 7, false, attempt, 0, last.get())
        ->name();
  };
  // The failure has made A a suspect and moved it to the end, where the attempt number points.
  a_->suspect(SteadyClock::now(), {});
  EXPECT_EQ(next(1, a_), "B");
  EXPECT_EQ(next(2, b_), "A");  // B has answered, but not well
  b_->suspect(SteadyClock::now(), {});
  EXPECT_EQ(next(1, a_), "B");
  EXPECT_EQ(next(2, b_), "A");
  map_.partitions[7] = {a_, nullptr, nullptr};
  EXPECT_EQ(next(1, a_), "A");
}

TEST_F(RoutingTest, ADroppedNodeIsNeverChosen) {
  a_->deactivate();
  EXPECT_EQ(choose(ReplicaPolicy::sequence, false, 0), "B");
  EXPECT_NE(choose(ReplicaPolicy::sequence, true, 0), "A");
}

TEST_F(RoutingTest, BothSlotsOnOneNodeAreOneCandidate) {
  // An acting master sets its bit in both bitmaps while the replica waits for its data.
  map_.partitions[7] = {a_, a_, nullptr};
  EXPECT_EQ(choose(ReplicaPolicy::sequence, false, 0), "A");
  EXPECT_EQ(choose(ReplicaPolicy::sequence, false, 1), "A");
}

TEST_F(RoutingTest, UnclaimedPartitionsAreAskedOfAnyNode) {
  map_.partitions[7] = {};
  EXPECT_NE(choose(ReplicaPolicy::sequence, false, 0), "none");
  EXPECT_NE(choose(ReplicaPolicy::sequence, true, 0), "none");
  map_.nodes.clear();
  EXPECT_EQ(choose(ReplicaPolicy::sequence, false, 0), "none");
}

TEST_F(RoutingTest, StrongConsistencyReadsTheMaster) {
  map_.strong_consistency = true;
  EXPECT_EQ(choose(ReplicaPolicy::any, false, 1, 1), "A");
}

TEST(PartitionTable, ASetBitTakesTheSlotAndAClearBitChangesNothing) {
  PartitionTable table;
  const NodePtr a = make_node("A");
  const NodePtr b = make_node("B");
  EXPECT_TRUE(table.claim(a, claims({{1, 2}, {3}})).empty());
  EXPECT_EQ(table.slots()[1][0], a);
  EXPECT_EQ(table.slots()[3][1], a);
  EXPECT_TRUE(table.claim(a, claims({{}, {}})).empty());
  EXPECT_EQ(table.slots()[1][0], a);
  const std::vector<NodePtr> losers = table.claim(b, claims({{2}, {}}));
  ASSERT_EQ(losers.size(), 1U);
  EXPECT_EQ(losers[0], a);
  EXPECT_EQ(table.slots()[2][0], b);
  EXPECT_EQ(table.slots()[1][0], a);
}

TEST(PartitionTable, AnOlderRegimeIsIgnored) {
  PartitionTable table;
  const NodePtr a = make_node("A");
  const NodePtr b = make_node("B");
  table.claim(a, claims({{5}}, 3));
  table.claim(b, claims({{5}}, 2));
  EXPECT_EQ(table.slots()[5][0], a);
  table.claim(b, claims({{5}}, 3));
  EXPECT_EQ(table.slots()[5][0], b);
  EXPECT_TRUE(table.strong_consistency());
}

TEST(PartitionTable, ALoneNodeDoesNotShrinkTheReplicationFactor) {
  PartitionTable table;
  const NodePtr a = make_node("A");
  table.claim(a, claims({{1}, {2}}));
  table.claim(a, claims({{1, 2}}));
  EXPECT_EQ(table.replication_factor(), 2U);
}

TEST(PartitionTable, DroppingANodeEmptiesItsSlots) {
  PartitionTable table;
  const NodePtr a = make_node("A");
  table.claim(a, claims({{1}, {2}}));
  EXPECT_TRUE(table.owns_any(a));
  table.drop(a);
  EXPECT_FALSE(table.owns_any(a));
  EXPECT_EQ(table.slots()[1][0], nullptr);
}

TEST(Node, AnAnswerAskedForBeforeTheFailureClearsNothing) {
  const NodePtr node = make_node("A");
  const TimePoint before = SteadyClock::now();
  const TimePoint failed = before + milliseconds(5);
  node->suspect(failed, {});
  node->clear_suspicion(before);
  EXPECT_TRUE(node->is_suspect());
  node->clear_suspicion(failed + milliseconds(1));
  EXPECT_FALSE(node->is_suspect());
}

TEST(Node, OnlyTheSessionThatWasRefusedIsRejected) {
  const NodePtr node = make_node("A");
  const auto old_session = std::make_shared<Session>();
  const auto new_session = std::make_shared<Session>();
  node->set_session(new_session);
  node->reject_session(old_session);
  EXPECT_EQ(node->session(), new_session);
  node->reject_session(new_session);
  EXPECT_EQ(node->session(), nullptr);
}

TEST(Resolve, NumericAddressesAndErrors) {
  const Result<std::vector<SocketAddress>> v4 = resolve({"127.0.0.1", 3000});
  ASSERT_TRUE(v4);
  EXPECT_TRUE(v4->front().is_loopback());
  const Result<std::vector<SocketAddress>> v6 = resolve({"::1", 3000});
  ASSERT_TRUE(v6);
  EXPECT_TRUE(v6->front().is_loopback());
  const Result<std::vector<SocketAddress>> far = resolve({"192.0.2.1", 3000});
  ASSERT_TRUE(far);
  EXPECT_FALSE(far->front().is_loopback());
}

}  // namespace
}  // namespace aerokv::client
