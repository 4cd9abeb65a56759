// SPDX-License-Identifier: Apache-2.0
// What can be changed while a cluster runs: links, latency, stop-writes, restarts, nodes that are
// added and removed; and its commands.
#include "cluster_fixture.h"
#include "devserver/control.h"
#include "wire/result.h"

namespace aerokv::devserver_test {
namespace {

namespace result = wire::result;
using devserver::Options;

class EventsTest : public ClusterTest {
 protected:
  /// Seconds that it takes to ask for `key` on a connection that is there.
  double seconds_of_get(RawClient& client, const std::string& key) {
    const TimePoint start = SteadyClock::now();
    EXPECT_EQ(ask_code(client, get_of(key)), 0);
    return std::chrono::duration<double>(SteadyClock::now() - start).count();
  }

  std::string error_of(const std::string& line) {
    return devserver::control(*server_, line).message();
  }

  void put_all(int count) {
    for (int i = 0; i < count; ++i) {
      ASSERT_EQ(code(0, put_of("e" + std::to_string(i), pattern(60, static_cast<uint64_t>(i)))), 0);
    }
  }

  void expect_all(const std::vector<int>& nodes, int count) {
    for (int i = 0; i < count; ++i) {
      for (const int node : nodes) {
        ASSERT_EQ(value(node, "e" + std::to_string(i)), pattern(60, static_cast<uint64_t>(i)))
            << i << " at " << node;
      }
    }
  }
};

TEST_F(EventsTest, a_link_becomes_slow_and_fast_again_while_an_answer_is_under_way) {
  start_cluster(2);
  RawClient client = connect(0);
  const std::string key = key_of({0, 1});
  ASSERT_EQ(ask_code(client, put_of(key, pattern(900'000, 1))), 0);
  ASSERT_TRUE(server_->set_link(0, 3'000'000));
  EXPECT_GT(seconds_of_get(client, key), 0.2);  // 0.3 s at this speed
  RawClient other = connect(1);
  EXPECT_EQ(ask_code(other, get_of(key)), 0);  // its own link, and its own copy
  ASSERT_TRUE(server_->set_link(0, 1000));     // 15 minutes
  client.send(get_of(key).build());
  client.set_timeout(milliseconds(100));
  EXPECT_LT(client.receive(900'000).size(), 200'000U);
  ASSERT_TRUE(server_->set_link(0, 0));  // who waits for the link is woken
  client.set_timeout(milliseconds(10'000));
  EXPECT_GT(client.receive(690'000).size(), 600'000U);
  // From slow to less slow: who had a turn far away gets a nearer one.
  ASSERT_TRUE(server_->set_link(0, 1000));
  RawClient third = connect(0);
  third.send(get_of(key).build());
  third.set_timeout(milliseconds(100));
  const size_t begun = third.receive(900'000).size();
  ASSERT_TRUE(server_->set_link(0, 50'000'000));
  third.set_timeout(milliseconds(10'000));
  EXPECT_EQ(third.receive(900'000 - begun).size(), 900'000 - begun);
  EXPECT_FALSE(server_->set_link(2, 0));
}

TEST_F(EventsTest, latency_delays_each_answer_of_one_node_and_not_the_requests_behind_it) {
  start_cluster(2);
  RawClient client = connect(0);
  const std::string key = key_of({0, 1});
  ASSERT_EQ(ask_code(client, put_of(key, pattern(10, 1))), 0);
  ASSERT_TRUE(server_->set_latency(0, std::chrono::milliseconds(120)));
  const TimePoint start = SteadyClock::now();
  for (int i = 0; i < 10; ++i) client.send(get_of(key).build());
  for (int i = 0; i < 10; ++i) ASSERT_TRUE(client.receive_frame());
  const TimePoint end = SteadyClock::now();
  EXPECT_GE(end - start, milliseconds(120));
  EXPECT_LT(end - start, milliseconds(1000));  // ten times one after the other
  EXPECT_GE(seconds_of_get(client, key), 0.12);
  ASSERT_TRUE(server_->set_latency(devserver::kAllNodes, std::chrono::microseconds(0)));
  EXPECT_EQ(client.info("node"), "B1");
  EXPECT_FALSE(server_->set_latency(0, std::chrono::microseconds(-1)));
}

TEST_F(EventsTest, stop_writes_refuses_writes_and_nothing_else) {
  start_cluster(2);
  const std::string key = key_of({0, 1});
  const std::string other = key_of({1, 0});
  ASSERT_EQ(code(0, put_of(key, pattern(10, 1))), 0);
  ASSERT_TRUE(server_->set_stop_writes(0, true));
  EXPECT_EQ(code(0, put_of(key, pattern(10, 2))), result::kOutOfSpace);
  EXPECT_EQ(code(1, put_of(key, pattern(10, 2))), result::kOutOfSpace);  // passed on to it
  EXPECT_EQ(code(0, put_of(other, pattern(10, 2))), 0);                  // the other is master
  EXPECT_EQ(value(0, key), pattern(10, 1));
  EXPECT_NE(info(0, "namespace/lmcache").find(";stop_writes=true;"), std::string::npos);
  EXPECT_NE(info(1, "namespace/lmcache").find(";stop_writes=false;"), std::string::npos);
  EXPECT_EQ(code(0, remove_of(key)), 0);
  ASSERT_TRUE(server_->set_stop_writes(devserver::kAllNodes, false));
  EXPECT_EQ(code(0, put_of(key, pattern(10, 2))), 0);
}

TEST_F(EventsTest, a_spare_node_joins_takes_its_share_and_leaves_without_a_gap) {
  Options options;
  options.nodes = 2;
  options.spare_nodes = 1;
  options.timing = quick_timing();
  start(std::move(options));
  EXPECT_FALSE(server_->stats(2)->running);
  EXPECT_FALSE(RawClient::try_connect(server_->endpoints()[2]));
  EXPECT_EQ(claims({0, 1}), (std::map<std::string, int>{{"11", 4096}}));
  put_all(200);
  const int64_t peers = number(0, "peers-generation");
  ASSERT_TRUE(server_->start_node(2));
  EXPECT_EQ(code(2, exists_of("e1")), result::kUnavailable);
  settle();
  EXPECT_EQ(claims({0, 1, 2}), (std::map<std::string, int>{{"11", 4096}}));
  EXPECT_GT(number(0, "peers-generation"), peers);
  EXPECT_NE(info(0, "peers-clear-std").find("[B3,,["), std::string::npos);
  EXPECT_GT(server_->stats(2)->records, 80U);
  expect_all({0, 1, 2}, 200);

  // All the while that it leaves, every write and read succeeds.
  std::atomic<bool> stop{false};
  std::atomic<int> failed{0};
  std::thread load([&] {
    RawClient client = connect(0);
    for (int i = 0; !stop; ++i) {
      const std::string key = "l" + std::to_string(i % 50);
      failed += ask_code(client, put_of(key, pattern(20, 1))) == 0 ? 0 : 1;
      failed += ask_code(client, get_of(key)) == 0 ? 0 : 1;
    }
  });
  ASSERT_TRUE(server_->remove_node(2, kSettleTime));
  settle();
  stop = true;
  load.join();
  EXPECT_EQ(failed, 0);
  EXPECT_FALSE(server_->stats(2)->running);
  EXPECT_EQ(info(0, "peers-clear-std").find("[B3,"), std::string::npos);
  expect_all({0, 1}, 200);
  ASSERT_TRUE(server_->start_node(2));  // a spare one again
  settle();
  EXPECT_GT(server_->stats(2)->records, 80U);
  ASSERT_TRUE(server_->stop_node(0));
  ASSERT_TRUE(server_->stop_node(1));
  EXPECT_FALSE(server_->remove_node(2, kSettleTime));  // the last one
}

TEST_F(EventsTest, a_rolling_restart_loses_nothing_with_two_copies) {
  start_cluster(3);
  put_all(150);
  const auto rebalances = number(1, "rebalance-generation");
  ASSERT_TRUE(server_->rolling_restart(milliseconds(1), kSettleTime));
  expect_all({0, 1, 2}, 150);
  // Each of them was away: the last one to go has seen only its own return.
  EXPECT_EQ(number(2, "rebalance-generation"), 1);
  EXPECT_EQ(number(1, "rebalance-generation"), rebalances + 1);
  EXPECT_EQ(claims({0, 1, 2}), (std::map<std::string, int>{{"11", 4096}}));
}

TEST_F(EventsTest, after_a_blackout_peers_appear_one_by_one) {
  Options options;
  options.nodes = 3;
  options.timing = quick_timing();
  options.timing.join = milliseconds(900);
  start(std::move(options));
  for (int node = 0; node < 3; ++node) ASSERT_TRUE(server_->stop_node(node));
  for (int node = 0; node < 3; ++node) ASSERT_TRUE(server_->start_node(node));
  settle();
  // The last node was there first, alone, then with B2, then with B1.
  const auto since = [&](int generation) {
    return info(2, "peers-clear-std:generation=" + std::to_string(generation));
  };
  EXPECT_EQ(number(2, "peers-generation"), 3);
  EXPECT_EQ(since(3), "3,3000,[]");
  EXPECT_TRUE(since(2).starts_with("3,3000,[[B1,,[")) << since(2);
  EXPECT_EQ(since(2).find("B2"), std::string::npos);
  EXPECT_TRUE(since(1).find("[B2,,[") != std::string::npos) << since(1);
  EXPECT_EQ(number(0, "rebalance-generation"), 1);  // they came together
  EXPECT_EQ(claims({0, 1, 2}), (std::map<std::string, int>{{"11", 4096}}));
}

TEST_F(EventsTest, racks_keep_the_copies_of_a_record_apart) {
  Options options;
  options.nodes = 4;
  options.replication = 2;
  options.racks = {1, 1, 2, 2};
  options.timing = quick_timing();
  start(std::move(options));
  EXPECT_EQ(info(0, "rack-ids"), "lmcache:1");
  EXPECT_EQ(info(3, "rack-ids"), "lmcache:2");
  EXPECT_EQ(info(2, "racks:"), "ns=lmcache:rack_1=B1,B2:rack_2=B3,B4");
  const auto one_copy_in_each = [&](const std::vector<int>& racks) {
    std::vector<std::vector<std::vector<bool>>> all;
    for (int node = 0; node < 4; ++node) all.push_back(maps_of(info(node, "replicas")));
    for (uint32_t p = 0; p < kPartitionCount; ++p) {
      std::set<int> seen;
      for (size_t node = 0; node < 4; ++node) {
        if (all[node][0][p] || all[node][1][p]) seen.insert(racks[node]);
      }
      if (seen.size() != 2) return false;
    }
    return true;
  };
  EXPECT_TRUE(one_copy_in_each({1, 1, 2, 2}));
  EXPECT_FALSE(one_copy_in_each({1, 2, 1, 2}));
  put_all(100);
  const int64_t generation = number(0, "rebalance-generation");
  ASSERT_TRUE(server_->set_rack(1, 2));
  ASSERT_TRUE(server_->set_rack(2, 1));
  settle();
  EXPECT_GT(number(0, "rebalance-generation"), generation);
  EXPECT_TRUE(one_copy_in_each({1, 2, 1, 2}));
  expect_all({0, 3}, 100);
  // The whole rack 1 dies: rack 2 has everything.
  ASSERT_TRUE(server_->stop_node(0));
  ASSERT_TRUE(server_->stop_node(2));
  settle();
  expect_all({1, 3}, 100);
}

TEST_F(EventsTest, alternate_addresses_are_advertised_and_served) {
  Options options;
  options.nodes = 3;
  options.advertised_host = "192.0.2.1";
  options.alternate_host = "127.0.0.2";
  options.timing = quick_timing();
  start(std::move(options));
  const auto alternate = server_->alternate_endpoints();
  ASSERT_EQ(alternate.size(), 3U);
  EXPECT_EQ(info(0, "service-clear-std"),
            "192.0.2.1:" + std::to_string(server_->endpoints()[0].port));
  EXPECT_EQ(info(0, "service-clear-alt"), "127.0.0.2:" + std::to_string(alternate[0].port));
  EXPECT_EQ(info(0, "peers-clear-alt"),
            "4,3000,[[B2,,[127.0.0.2:" + std::to_string(alternate[1].port) +
                "]],[B3,,[127.0.0.2:" + std::to_string(alternate[2].port) + "]]]");
  EXPECT_NE(info(0, "peers-clear-std").find("[B2,,[192.0.2.1:"), std::string::npos);
  RawClient client(alternate[1]);
  EXPECT_EQ(client.info("node"), "B2");
  ASSERT_TRUE(server_->stop_node(1));
  EXPECT_TRUE(client.is_closed_by_server());
  EXPECT_FALSE(RawClient::try_connect(alternate[1]));
  settle();
  ASSERT_TRUE(server_->start_node(1));
  settle();
  EXPECT_EQ(RawClient(alternate[1]).info("node"), "B2");
}

TEST_F(EventsTest, commands_do_what_methods_do) {
  start_cluster(3);
  EXPECT_EQ(error_of("stop 1"), "");
  EXPECT_FALSE(server_->stats(1)->running);
  EXPECT_EQ(error_of("settle"), "");
  EXPECT_EQ(error_of("start all"), "");
  EXPECT_EQ(error_of("settle 30000"), "");
  EXPECT_TRUE(server_->stats(1)->member);
  EXPECT_EQ(error_of("pause 2"), "");
  EXPECT_TRUE(server_->stats(2)->frozen);
  EXPECT_EQ(error_of("resume 2"), "");
  EXPECT_EQ(error_of("settle"), "");
  EXPECT_EQ(error_of("restart 0 1"), "");
  EXPECT_EQ(error_of("settle"), "");
  EXPECT_EQ(error_of("rolling-restart 1"), "");
  EXPECT_EQ(error_of("link all 100M"), "");
  EXPECT_EQ(error_of("latency 1 0.5"), "");
  EXPECT_EQ(error_of("stop-writes all on"), "");
  EXPECT_EQ(code(0, put_of("k", pattern(1, 1))), result::kOutOfSpace);
  EXPECT_EQ(error_of("stop-writes all off"), "");
  EXPECT_EQ(code(0, put_of("k", pattern(1, 1))), 0);
  EXPECT_EQ(error_of("remove 2"), "");
  EXPECT_EQ(error_of("stop all"), "");
  for (const char* wrong :
       {"", "fly 1", "stop", "stop 3", "stop one", "stop 1 2", "link 1 fast", "latency 1 -1",
        "stop-writes 1 maybe", "rack 1 2", "restart all", "start -1", "latency 1 1e9"}) {
    EXPECT_NE(error_of(wrong), "") << wrong;
  }
}

}  // namespace
}  // namespace aerokv::devserver_test
