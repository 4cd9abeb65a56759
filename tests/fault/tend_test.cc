// SPDX-License-Identifier: Apache-2.0
// What the tend makes of nodes that are silent, new, cut off, behind the times, moved or replaced.
#include "client/tend.h"

#include <condition_variable>
#include <set>

#include "tests/fault/world.h"
#include "tests/hostile/scripted_node.h"

namespace aerokv::testing {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

const std::set<int> kAll = {0, 1, 2};
constexpr auto kSoon = seconds(5 * kSlowness);

/// A node that says what the test wants it to believe.
class Believer {
 public:
  explicit Believer(std::string name) : name_(std::move(name)) {
    node_.on_info = [this](const std::string& commands) { return answer(commands); };
  }

  [[nodiscard]] std::string host() const { return node_.host(); }
  [[nodiscard]] const std::string& name() const { return name_; }
  [[nodiscard]] int questions() const { return questions_; }

  /// Its peers, by name and address; changes the generation unless `quietly`.
  void set_peers(const std::vector<std::pair<std::string, std::string>>& peers,
                 bool quietly = false) {
    const std::scoped_lock lock(mutex_);
    peers_.clear();
    for (const auto& [name, hosts] : peers) {
      peers_ += (peers_.empty() ? "[" : ",[") + name + ",,[" + hosts + "]]";
    }
    if (!quietly) ++peers_generation_;
  }
  void know(const std::vector<const Believer*>& peers) {
    std::vector<std::pair<std::string, std::string>> list;
    for (const Believer* peer : peers) list.emplace_back(peer->name_, peer->host());
    set_peers(list);
  }
  /// Which thirds of the partitions it is master of.
  void claim(std::set<int> thirds) {
    const std::scoped_lock lock(mutex_);
    thirds_ = std::move(thirds);
    ++partition_generation_;
  }
  void set_joined(bool joined) { joined_ = joined; }
  void set_silent(bool silent) { silent_ = silent; }
  void rename(const std::string& name) {
    const std::scoped_lock lock(mutex_);
    name_ = name;
  }

 private:
  /// The partitions of its thirds, as Base64.
  [[nodiscard]] std::string bitmap() const {
    constexpr std::string_view kAlphabet =
        "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
    std::string text;
    for (uint32_t first = 0; first < kPartitionCount; first += 6) {
      uint32_t bits = 0;
      for (uint32_t p = first; p < first + 6; ++p) {
        const bool is_mine = p < kPartitionCount && thirds_.count(static_cast<int>(p % 3)) > 0;
        bits = bits << 1 | (is_mine ? 1 : 0);
      }
      text += kAlphabet[bits];
    }
    return text + "=";
  }

  std::optional<Reply> answer(const std::string& commands) {
    ++questions_;
    if (silent_) return Reply{};
    const std::scoped_lock lock(mutex_);
    std::string text;
    for (size_t at = 0; at < commands.size();) {
      const size_t end = std::min(commands.find('\n', at), commands.size());
      const std::string command = commands.substr(at, end - at);
      text += command + "\t" + value(command) + "\n";
      at = end + 1;
    }
    return Reply{info_frame(text)};
  }

  std::string value(const std::string& command) const {
    if (command == "node") return name_;
    if (command == "build") return "8.1.2.0";
    if (command == "partition-generation") {
      return joined_ ? std::to_string(partition_generation_) : "-1";
    }
    if (command == "peers-generation") return std::to_string(peers_generation_);
    if (command == "peers-clear-std") {
      return std::to_string(peers_generation_) + ",3000,[" + peers_ + "]";
    }
    if (command == "replicas") return "lmcache:0,1," + bitmap();
    return "ok";
  }

  std::mutex mutex_;
  std::string name_;                // guarded by mutex_
  std::string peers_;               // guarded by mutex_
  int peers_generation_ = 1;        // guarded by mutex_
  int partition_generation_ = 100;  // guarded by mutex_
  std::set<int> thirds_ = kAll;     // guarded by mutex_
  std::atomic<bool> joined_{true};
  std::atomic<bool> silent_{false};
  std::atomic<int> questions_{0};
  ScriptedNode node_;
};

class Tend : public ::testing::Test {
 protected:
  using Map = std::shared_ptr<const client::ClusterMap>;

  Status start(const std::string& hosts) {
    Result<std::vector<wire::Endpoint>> seeds = wire::parse_endpoints(hosts, 3000);
    EXPECT_TRUE(seeds);
    options_.seeds = *seeds;
    options_.ns = "lmcache";
    tender_ = std::make_unique<client::Tender>(options_, Secret(), [this](const Map& map) {
      const std::scoped_lock lock(mutex_);
      map_ = map;
      for (const auto& [name, count] : masters(*map)) most_[name] = std::max(most_[name], count);
      condition_.notify_all();
    });
    return tender_->start();
  }

  /// Waits until a map is there that is as wanted.
  template <typename Wanted>
  bool await_map(Wanted wanted, milliseconds patience = kSoon) {
    std::unique_lock lock(mutex_);
    return condition_.wait_for(lock, patience, [&] { return map_ && wanted(*map_); });
  }

  /// Nodes in the map, and how many partitions each is master of.
  static std::map<std::string, int> masters(const client::ClusterMap& map) {
    std::map<std::string, int> count;
    for (const client::NodePtr& node : map.nodes) count[node->name()] = 0;
    for (const client::Replicas& replicas : map.partitions) {
      if (replicas[0]) ++count[replicas[0]->name()];
    }
    return count;
  }
  std::map<std::string, int> masters() {
    const std::scoped_lock lock(mutex_);
    return map_ ? masters(*map_) : std::map<std::string, int>();
  }
  /// The most partitions that any map so far had it as master of.
  int most(const std::string& name) {
    const std::scoped_lock lock(mutex_);
    return most_[name];
  }
  bool await_masters(const std::map<std::string, int>& wanted, milliseconds patience = kSoon) {
    return await_map([&](const client::ClusterMap& map) { return masters(map) == wanted; },
                     patience);
  }

  /// Waits until the node has been asked so often that several rounds have passed.
  static void await_rounds(const Believer& node, int rounds = 4) {
    const int before = node.questions();
    const auto deadline = std::chrono::steady_clock::now() + kSoon;
    while (node.questions() < before + rounds && std::chrono::steady_clock::now() < deadline) {
      std::this_thread::sleep_for(milliseconds(1));  // nothing announces a question
    }
    EXPECT_GE(node.questions(), before + rounds);
  }

  client::ClientOptions options_ = [] {
    client::ClientOptions options;
    options.tend_interval = milliseconds(30);
    options.connect_timeout = seconds(2);
    return options;
  }();
  Believer a_{"A"}, b_{"B"}, c_{"C"};

 private:
  std::mutex mutex_;
  std::condition_variable condition_;
  Map map_;                          // guarded by mutex_
  std::map<std::string, int> most_;  // guarded by mutex_

 protected:
  std::unique_ptr<client::Tender> tender_;  // the first to go: it calls back
};

class Trio : public Tend {
 protected:
  Trio() {
    a_.know({&b_, &c_});
    b_.know({&a_, &c_});
    c_.know({&a_, &b_});
    a_.claim({0});
    b_.claim({1});
    c_.claim({2});
  }
  void start_settled() {
    ASSERT_TRUE(start(a_.host()).ok());
    ASSERT_TRUE(await_masters(kThirds)) << masters()["A"] << " " << masters()["B"];
  }
  const std::map<std::string, int> kWithoutC = {{"A", 2731}, {"B", 1365}};
  const std::map<std::string, int> kThirds = {{"A", 1366}, {"B", 1365}, {"C", 1365}};
};

TEST_F(Trio, WhatOthersSayIsUsedWhileOneIsSilent) {
  options_.connect_timeout = seconds(60);
  start_settled();
  c_.set_silent(true);
  await_rounds(c_, 1);
  for (int i = 0; i < 3; ++i) {
    a_.claim({0, 2});
    b_.claim({1});
    EXPECT_TRUE(await_masters({{"A", 2731}, {"B", 1365}, {"C", 0}}));
    a_.claim({0});
    b_.claim({1, 2});
    EXPECT_TRUE(await_masters({{"A", 1366}, {"B", 2730}, {"C", 0}}));
  }
}

TEST_F(Trio, ASilentNodeThatNobodyListsIsDropped) {
  options_.connect_timeout = milliseconds(200 * kSlowness);
  start_settled();
  c_.set_silent(true);
  a_.know({&b_});
  b_.know({&a_});
  a_.claim({0, 2});
  EXPECT_TRUE(await_masters(kWithoutC));
}

TEST_F(Trio, ANewcomerIsTriedUntilItHasJoined) {
  c_.set_joined(false);
  a_.know({&b_});
  b_.know({&a_});
  ASSERT_TRUE(start(a_.host()).ok());
  ASSERT_TRUE(await_masters({{"A", 1366}, {"B", 1365}}));
  a_.know({&b_, &c_});  // the text will not change again, nor will the generation
  await_rounds(c_, 2);
  EXPECT_EQ(masters().count("C"), 0U);
  c_.set_joined(true);
  EXPECT_TRUE(await_masters(kThirds));
}

TEST_F(Trio, ANodeThatIsCutOffDoesNotTakeTheMap) {
  start_settled();
  c_.know({});
  c_.claim(kAll);
  await_rounds(c_);
  EXPECT_EQ(masters(), kThirds);
  EXPECT_EQ(most("C"), kThirds.at("C"));
  // The others notice, and go on without it.
  a_.know({&b_});
  b_.know({&a_});
  a_.claim({0, 2});
  EXPECT_TRUE(await_masters(kWithoutC));
  // It is back, as a member.
  c_.know({&a_, &b_});
  a_.know({&b_, &c_});
  b_.know({&a_, &c_});
  a_.claim({0});
  b_.claim({1});
  c_.claim({2});
  EXPECT_TRUE(await_masters(kThirds));
}

TEST_F(Trio, ANodeThatGoesOnAfterAFreezeDoesNotTakeItsPartitionsBack) {
  start_settled();
  a_.know({&b_});
  b_.know({&a_});
  a_.claim({0, 2});
  ASSERT_TRUE(await_map([](const auto& map) { return masters(map)["A"] == 2731; }));
  await_rounds(b_);
  c_.claim({2});  // it believes in its old map, and that it has peers
  for (int i = 0; i < 20; ++i) {
    await_rounds(a_, 1);
    EXPECT_EQ(masters()["A"], 2731);
  }
}

TEST_F(Trio, WhoIsLeftAloneSpeaksForItself) {
  start_settled();
  a_.set_joined(false);
  b_.set_joined(false);
  c_.know({});
  c_.claim(kAll);
  EXPECT_TRUE(await_masters({{"C", 4096}}));
}

TEST_F(Tend, ASingleNodeIsACluster) {
  ASSERT_TRUE(start(a_.host()).ok());
  EXPECT_TRUE(await_masters({{"A", 4096}}));
}

TEST_F(Tend, DeadSeedsBesideALonelyNodeDoNotMatter) {
  const std::string dead = Listener().host();  // nobody listens there any more
  ASSERT_TRUE(start(dead + "," + a_.host() + "," + dead).ok());
  EXPECT_TRUE(await_masters({{"A", 4096}}));
}

TEST_F(Tend, AnotherNodeAtAKnownAddressReplacesItAtOnce) {
  ASSERT_TRUE(start(a_.host()).ok());
  client::NodePtr old;
  ASSERT_TRUE(await_map([&](const auto& map) {
    old = map.nodes.at(0);
    return true;
  }));
  a_.rename("D");
  EXPECT_TRUE(await_masters({{"D", 4096}}));
  EXPECT_FALSE(old->is_active());
}

TEST_F(Trio, APeerThatHasMovedIsFoundAtItsNewAddress) {
  auto first = std::make_unique<Believer>("D");
  first->know({&a_});
  first->claim({1});
  a_.know({first.get()});
  ASSERT_TRUE(start(a_.host()).ok());
  ASSERT_TRUE(await_masters({{"A", 1366}, {"D", 1365}}));
  Believer second("D");
  second.know({&a_});
  second.claim({1});
  const std::string old_host = first->host();
  first.reset();
  a_.set_peers({{"D", second.host()}}, true);
  const auto has_moved = [&](const client::ClusterMap& map) {
    return std::any_of(map.nodes.begin(), map.nodes.end(), [&](const client::NodePtr& node) {
      return node->name() == "D" && node->endpoint().to_string() == second.host();
    });
  };
  EXPECT_TRUE(await_map(has_moved));
  EXPECT_EQ(masters(), (std::map<std::string, int>{{"A", 1366}, {"D", 1365}}));
}

TEST_F(Tend, EveryAddressOfAPeerIsTried) {
  const std::string dead = Listener().host();
  a_.set_peers({{"B", dead + "," + dead + "," + b_.host()}});
  b_.know({&a_});
  b_.claim({1});
  ASSERT_TRUE(start(a_.host()).ok());
  EXPECT_TRUE(await_map([](const auto& map) { return masters(map)["B"] == 1365; }));
}

TEST_F(Tend, AClusterIsFoundAgainWhereItsNodesHaveBeen) {
  auto seed = std::make_unique<Believer>("S");
  seed->know({&b_});
  b_.know({seed.get()});
  b_.claim({1});
  ASSERT_TRUE(start(seed->host()).ok());
  ASSERT_TRUE(await_map([](const auto& map) { return map.nodes.size() == 2; }));
  b_.set_joined(false);
  seed->know({});
  seed->claim(kAll);
  ASSERT_TRUE(await_masters({{"S", 4096}}));
  seed.reset();  // the only seed, and the only node that is known
  b_.know({});
  b_.claim(kAll);
  b_.set_joined(true);
  EXPECT_TRUE(await_map([](const auto& map) { return masters(map)["B"] == 4096; }));
}

TEST_F(Trio, AMillionWakesAreNotAMillionQuestions) {
  options_.tend_interval = seconds(60);
  start_settled();
  const int before = a_.questions();
  const auto begun = std::chrono::steady_clock::now();
  while (std::chrono::steady_clock::now() - begun < milliseconds(350)) tender_->wake();
  await_rounds(a_, 1);
  const auto took =
      std::chrono::duration_cast<milliseconds>(std::chrono::steady_clock::now() - begun);
  EXPECT_GE(a_.questions() - before, 2);
  EXPECT_LE(a_.questions() - before, 2 + took.count() / 100);
}

TEST_F(Tend, AStartWaitsForSeedsAsLongAsItIsTold) {
  options_.start_timeout = kSoon;
  a_.set_joined(false);
  std::thread later([&] {
    await_rounds(a_, 4);
    a_.set_joined(true);
  });
  EXPECT_TRUE(start(a_.host()).ok());
  later.join();
}

TEST_F(Tend, AStartThatWaitsEndsWithTheReasonOfEverySeed) {
  options_.start_timeout = milliseconds(600);
  a_.set_joined(false);
  b_.set_silent(true);
  const std::string dead = Listener().host();
  const auto begun = std::chrono::steady_clock::now();
  const Status status = start(a_.host() + "," + b_.host() + "," + dead);
  const auto took = std::chrono::steady_clock::now() - begun;
  EXPECT_EQ(status.code(), Code::unavailable);
  for (const std::string& part : {a_.host(), std::string("has not joined"), b_.host(), dead}) {
    EXPECT_NE(status.message().find(part), std::string::npos) << status.message();
  }
  EXPECT_GE(took, milliseconds(600));
  EXPECT_LT(took, seconds(3 * kSlowness));
}

TEST_F(Tend, ASilentSeedDoesNotDelayAStart) {
  options_.connect_timeout = seconds(60);
  b_.set_silent(true);
  a_.know({&b_});  // listed, not only a seed
  const auto begun = std::chrono::steady_clock::now();
  ASSERT_TRUE(start(b_.host() + "," + a_.host()).ok());
  EXPECT_LT(std::chrono::steady_clock::now() - begun, seconds(2 * kSlowness));
}

}  // namespace
}  // namespace aerokv::testing
