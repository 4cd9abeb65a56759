// SPDX-License-Identifier: Apache-2.0
// Every recorded exchange of a real server, one node and a cluster in its states, against ours.
#include "replay.h"

#include <gtest/gtest.h>

#include <set>
#include <thread>

#include "base/clock.h"

namespace aerokv::devserver_test {
namespace {

using devserver::DevServer;
using devserver::Options;
using golden::Json;

std::unique_ptr<DevServer> start(Options options) {
  auto server = DevServer::start(std::move(options));
  if (!server) {
    ADD_FAILURE() << server.error().message();
    return nullptr;
  }
  return std::move(server).value();
}

std::vector<devserver::NamespaceOptions> recorded_namespaces() {
  std::vector<devserver::NamespaceOptions> namespaces(2);
  namespaces[0].nsup_period_s = 10;
  namespaces[1].name = "nsup0";
  namespaces[1].nsup_period_s = 0;
  return namespaces;
}

TEST(ReplayTest, one_node_gives_the_recorded_answers) {
  Options options;
  options.namespaces = recorded_namespaces();
  const auto server = start(options);
  ASSERT_NE(server, nullptr);
  Replay replay([&](const Json&) { return server->endpoints()[0]; });
  replay.substitute("127.0.0.1:3000", "127.0.0.1:" + std::to_string(server->endpoints()[0].port));
  int compared = 0;
  for (const Json& exchange : load_lines("aerospike/exchanges.jsonl")) {
    const Replay::Verdict verdict = replay.run(exchange);
    compared += verdict.compared ? 1 : 0;
    EXPECT_TRUE(verdict.good) << exchange["name"].text << ": " << verdict.detail;
  }
  EXPECT_EQ(compared, 378);
}

TEST(ReplayTest, a_damaged_recording_is_noticed) {
  Options options;
  options.namespaces = recorded_namespaces();
  const auto server = start(options);
  ASSERT_NE(server, nullptr);
  Replay replay([&](const Json&) { return server->endpoints()[0]; });
  int noticed = 0;
  for (Json exchange : load_lines("aerospike/exchanges.jsonl")) {
    const bool damages =
        exchange["name"].text == "put_int" || exchange["name"].text == "batch_exists_5" ||
        exchange["name"].text == "info_build" || exchange["name"].text == "put_ttl_60";
    if (!exchange["delay_before_ms"].is_null()) continue;
    for (size_t i = 0; damages && i < exchange.keys.size(); ++i) {
      if (exchange.keys[i] == "response") exchange.list[i].text.replace(35, 1, "7");
    }
    const Replay::Verdict verdict = replay.run(exchange);
    if (damages && !verdict.good) ++noticed;
    if (exchange["name"].text == "batch_exists_5") break;
  }
  EXPECT_EQ(noticed, 4);
}

/// The recorded states follow each other; this brings the cluster into them.
class ClusterStates {
 public:
  explicit ClusterStates(DevServer& server) : server_(server) {}

  void enter(const std::string& state) {
    if (state == "B3_killed_not_yet_detected") {
      ASSERT_TRUE(server_.stop_node(2));
    } else if (state == "two_nodes_migrating") {
      await("cluster-stable:ignore-migrations=true;size=2", 0);
    } else if (state == "B3_starting") {
      await("cluster-stable:size=2", 0);
      await("cluster-stable:size=2", 1);
      ASSERT_TRUE(server_.start_node(2));
    } else if (state == "B3_joined_migrating") {
      await_value("partition-generation", 2, [](const std::string& v) { return v != "-1"; });
    } else if (state == "settled_3_again") {
      for (int node = 0; node < 3; ++node) await("cluster-stable:size=3", node);
    } else {
      ASSERT_EQ(state, "settled_3");
    }
  }

 private:
  void await(const std::string& command, int node) {
    await_value(command, node, [](const std::string& v) { return !v.starts_with("ERROR"); });
  }

  void await_value(const std::string& command, int node,
                   const std::function<bool(const std::string&)>& good) {
    RawClient client(server_.endpoints()[static_cast<size_t>(node)]);
    const TimePoint deadline = SteadyClock::now() + std::chrono::seconds(60);
    while (!good(client.info(command))) {
      ASSERT_LT(SteadyClock::now(), deadline) << command;
      std::this_thread::sleep_for(milliseconds(5));
    }
  }

  DevServer& server_;
};

Options three_nodes() {
  Options options;
  options.nodes = 3;
  options.cluster_name = "lmcache-trio";
  options.namespaces[0].nsup_period_s = 10;
  // The recorded timing, but for migrations: those of 20000 records have nothing to show here.
  options.timing.migration = std::chrono::microseconds(500);
  return options;
}

TEST(ReplayTest, a_cluster_gives_the_recorded_answers_in_its_states) {
  const auto server = start(three_nodes());
  ASSERT_NE(server, nullptr);
  const auto node_of = [](const Json& exchange) {
    return static_cast<size_t>(exchange["node"].text[1] - '1');
  };
  Replay replay([&](const Json& x) { return server->endpoints()[node_of(x)]; });
  for (size_t i = 0; i < 3; ++i) {
    replay.substitute("127.0.0.1:3" + std::to_string(i + 1) + "00",
                      "127.0.0.1:" + std::to_string(server->endpoints()[i].port));
  }
  ClusterStates states(*server);
  std::string state;
  int compared = 0;
  for (const Json& exchange : load_lines("aerospike_cluster/exchanges.jsonl")) {
    if (exchange["state"].text != state) {
      state = exchange["state"].text;
      states.enter(state);
      ASSERT_FALSE(HasFatalFailure()) << state;
    }
    const Replay::Verdict verdict = replay.run(exchange);
    compared += verdict.compared ? 1 : 0;
    EXPECT_TRUE(verdict.good) << exchange["name"].text << ": " << verdict.detail;
    if (exchange["name"].text == "two_info_B1") {
      // The recording marks the whole map as volatile; its first bitmap is not.
      const std::string text(as_text(replay.answer("two_info_B1")));
      const std::string recorded(as_text(golden::from_hex(exchange["response"].text)));
      const auto first_map = [](const std::string& t) {
        return t.substr(t.find("replicas\t"), sizeof("replicas\tlmcache:0,2,") + 683);
      };
      EXPECT_EQ(first_map(text), first_map(recorded));
    }
  }
  EXPECT_EQ(compared, 78);
}

}  // namespace
}  // namespace aerokv::devserver_test
