// SPDX-License-Identifier: Apache-2.0
// Nodes whose info answers are garbage, endless, contradictory or absurd. A start ends in an error
// or in a store that works as far as the nodes allow, soon, and with little memory.
#include "tests/fault/world.h"
#include "tests/hostile/scripted_node.h"

namespace aerokv::testing {
namespace {

using std::chrono::milliseconds;
using std::chrono::seconds;

class HostileInfo : public ::testing::Test {
 protected:
  /// Opens a store on `node` and uses it, if it opens. True if it did.
  bool use(const ScriptedNode& node, const std::string& what) {
    const auto begun = std::chrono::steady_clock::now();
    StoreOptions options = hostile_options(node.host());
    options.tend_interval = milliseconds(50);
    Result<std::unique_ptr<Store>> store = Store::open(options);
    bool opened = false;
    if (store) {
      opened = true;
      Guarded buffer(2 * kSegment);
      const auto loaded = run(**store, Operation::get, {get_into("k", buffer)});
      EXPECT_NE(loaded[0].outcome, Outcome::hit) << what;
      EXPECT_NE(bits_of(run(**store, Operation::exists, {key_item("k")})), "1") << what;
    } else {
      EXPECT_FALSE(store.error().message().empty()) << what;
      EXPECT_NE(store.error().code(), Code::internal) << what;
    }
    store = Status(Code::closed, "");
    EXPECT_LT(std::chrono::steady_clock::now() - begun, seconds(8 * kSlowness)) << what;
    return opened;
  }

  const size_t peak_before_ = peak_resident_bytes();
};

std::string peers_of(size_t count, const std::string& address) {
  std::string text = "7,3000,[";
  for (size_t i = 0; i < count; ++i) {
    if (i > 0) text += ",";
    text += "[BB9" + std::to_string(1000000 + i) + ",,[" + address + "]]";
  }
  return text + "]";
}

std::vector<std::string> garbage() {
  return {"",
          " ",
          "ERROR:4:bad",
          "FAIL",
          "-1",
          "0",
          "99999999999999999999999999999",
          "-9223372036854775808",
          "NaN",
          "1,2,3",
          std::string("a\0b\0", 4),
          "\xff\xfe\xfd",
          "\t\t\t",
          ";;;;====;;;;",
          std::string(1 << 20, 'A'),
          std::string(1 << 20, '['),
          std::string(1 << 20, ';'),
          std::string(1 << 20, ',')};
}

TEST_F(HostileInfo, AHealthyScriptIsAccepted) {
  const ScriptedNode node;
  EXPECT_TRUE(use(node, "healthy"));
}

TEST_F(HostileInfo, EveryValueMayBeGarbage) {
  std::vector<std::thread> threads;
  for (const char* name : {"node", "build", "partition-generation", "peers-generation",
                           "peers-clear-std", "replicas", "namespace/lmcache"}) {
    threads.emplace_back([this, name] {
      size_t number = 0;
      for (const std::string& value : garbage()) {
        ScriptedNode node;
        node.info[name] = value;
        use(node, std::string(name) + " garbage " + std::to_string(number++));
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_LT(peak_resident_bytes(), peak_before_ + (300 << 20) * kSlowness);
}

TEST_F(HostileInfo, Peers) {
  const std::pair<const char*, std::string> cases[] = {
      {"unclosed", "1,3000,[[BB1,,[127.0.0.1:1]]"},
      {"nested", "1,3000,[[[[BB1,,[127.0.0.1:1]]]]]"},
      {"itself", "1,3000,[[BB9000000000001,,[127.0.0.1:1]]]"},
      {"twice", "1,3000,[[BB1,,[127.0.0.1:1]],[BB1,,[127.0.0.1:2]]]"},
      {"a thousand", peers_of(1000, "127.0.0.1:1")},
      {"no address", "1,3000,[[BB1,,[]]]"},
      {"port 0", "1,3000,[[BB1,,[127.0.0.1:0]]]"},
      {"port huge", "1,3000,[[BB1,,[127.0.0.1:99999]]]"},
      {"port negative", "1,3000,[[BB1,,[127.0.0.1:-1]]]"},
      {"address of nobody", "1,3000,[[BB1,,[0.0.0.0:1,255.255.255.255:1]]]"},
      {"bad v6", "1,3000,[[BB1,,[[::zz]:1]]]"},
      {"long name", "1,3000,[[" + std::string(5000, 'B') + ",,[127.0.0.1:1]]]"},
      {"many addresses", "1,3000,[[BB1,,[127.0.0.1:1" +
                             [] {
                               std::string more;
                               for (int i = 0; i < 5000; ++i) more += ",127.0.0.1:1";
                               return more;
                             }() +
                             "]]]"},
  };
  for (const auto& [name, value] : cases) {
    ScriptedNode node;
    node.info["peers-clear-std"] = value;
    use(node, std::string("peers ") + name);
  }
}

TEST_F(HostileInfo, AMillionPeersAreNotAllBelieved) {
  ScriptedNode node;
  node.info["peers-clear-std"] = peers_of(150000, "127.0.0.1:1");
  use(node, "150,000 peers");
  EXPECT_LT(peak_resident_bytes(), peak_before_ + (200 << 20) * kSlowness);
}

/// Peers that are all this one node, which says another name every time.
TEST_F(HostileInfo, PeersThatAreNobody) {
  ScriptedNode node;
  node.info["peers-clear-std"] = peers_of(50, node.host());
  use(node, "50 peers that are the seed");
  std::atomic<int> count{0};
  ScriptedNode shifty;
  shifty.on_info = [&](const std::string& commands) -> std::optional<Reply> {
    if (commands.find("partition-generation") == std::string::npos) return std::nullopt;
    const std::string number = std::to_string(++count);
    return Reply{info_frame("node\tBB9" + number + "\npartition-generation\t" + number +
                            "\npeers-generation\t" + number + "\nbuild\t8.1.2.0\nreplicas\t" +
                            shifty.info.at("replicas") + "\n")};
  };
  use(shifty, "another name in each answer");
  EXPECT_LT(count, 100) << "it was asked again and again without a pause";
}

TEST_F(HostileInfo, GenerationsThatNeverStandStill) {
  std::atomic<int> count{0};
  ScriptedNode node;
  node.on_info = [&](const std::string& commands) -> std::optional<Reply> {
    if (commands.find("peers-generation") == std::string::npos) return std::nullopt;
    const std::string number = std::to_string(++count);
    return Reply{info_frame("node\tBB9000000000001\npeers-generation\t" + number +
                            "\npartition-generation\t" + number + "\n")};
  };
  EXPECT_TRUE(use(node, "restless"));
}

TEST_F(HostileInfo, Replicas) {
  const std::string all = all_partitions();
  const std::string none = std::string(683, 'A') + "=";
  const std::pair<const char*, std::string> cases[] = {
      {"other namespace", "other:0,1," + all},
      {"no partition", "lmcache:0,1," + none},
      {"short bitmap", "lmcache:0,1," + all.substr(0, 100)},
      {"long bitmap", "lmcache:0,1," + all + all},
      {"not base64", "lmcache:0,1," + std::string(684, '*')},
      {"no bitmap", "lmcache:0,1"},
      {"count too high", "lmcache:0,2," + all},
      {"count huge", "lmcache:0,4294967295," + all},
      {"count negative", "lmcache:0,-1," + all},
      {"count 0", "lmcache:0,0"},
      {"regime huge", "lmcache:4294967295,1," + all},
      {"regime over", "lmcache:99999999999,1," + all},
      {"both bitmaps name it", "lmcache:0,2," + all + "," + all},
      {"fifty bitmaps", "lmcache:0,50" +
                            [&] {
                              std::string more;
                              for (int i = 0; i < 50; ++i) more += "," + all;
                              return more;
                            }()},
      {"long namespace", std::string(4000, 'n') + ":0,1," + all},
      {"namespace twice", "lmcache:0,1," + all + ";lmcache:0,1," + none},
      {"a thousand namespaces",
       [&] {
         std::string more;
         for (int i = 0; i < 1000; ++i) more += "ns" + std::to_string(i) + ":0,1," + all + ";";
         return more + "lmcache:0,1," + all;
       }()},
  };
  for (const auto& [name, value] : cases) {
    ScriptedNode node;
    node.info["replicas"] = value;
    const bool opened = use(node, std::string("replicas ") + name);
    EXPECT_TRUE(opened || std::string(name) != "both bitmaps name it");
  }
}

TEST_F(HostileInfo, NamespaceLimits) {
  for (const char* value :
       {"max-record-size=0", "max-record-size=1", "max-record-size=131071",
        "max-record-size=18446744073709551615", "max-record-size=-5", "max-record-size=1M",
        "max-record-size=8388609", "write-block-size=99999999999", "nsup-period=-1",
        "max-record-size=131072;max-record-size=8388608", "type=unknown", "unrelated=1"}) {
    ScriptedNode node;
    node.info["namespace/lmcache"] = value;
    use(node, value);
  }
}

TEST_F(HostileInfo, AnswersThatAreNoAnswers) {
  const ByteVector half = info_frame("node\tBB9");
  ByteVector huge(8);
  store_be<uint64_t>(huge.data(), 0x0201FFFFFFFFFFFFULL);
  ByteVector over_limit(8);
  store_be<uint64_t>(over_limit.data(), 0x0201000000000000ULL | (kInfoBytesMax + 1));
  ByteVector at_limit(8);
  store_be<uint64_t>(at_limit.data(), 0x0201000000000000ULL | kInfoBytesMax);
  ByteVector wrong_version = half;
  wrong_version[0] = std::byte{9};
  const ByteVector text(4096, std::byte{'x'});
  ByteVector twice = half;
  twice.insert(twice.end(), half.begin(), half.end());
  const std::pair<const char*, Reply> cases[] = {
      {"nothing, closed", {{}, true}},
      {"half a header", {ByteVector(half.begin(), half.begin() + 5), true}},
      {"half a body", {ByteVector(half.begin(), half.end() - 3), true}},
      {"half a body and silence", {ByteVector(half.begin(), half.end() - 3)}},
      {"empty", {info_frame("")}},
      {"only line feeds", {info_frame(std::string(100000, '\n'))}},
      {"other commands", {info_frame("status\tok\nfeatures\tbatch\n")}},
      {"record frame", {header_frame(0)}},
      {"security frame", {frame_of(wire::MessageType::security, ByteVector(16))}},
      {"compressed frame", {frame_of(wire::MessageType::compressed, ByteVector(16))}},
      {"wrong version", {wrong_version}},
      {"huge size", {huge}},
      {"over the limit", {over_limit}},
      {"endless body", {at_limit, false, true, text}},
      {"endless frames", {half, false, true, half}},
      {"two answers", {twice}},
      {"one byte at a time",
       {info_frame(std::string(100000, 'x')), false, false, {}, milliseconds(20)}},
  };
  std::vector<std::thread> threads;
  for (const auto& [name, reply] : cases) {
    threads.emplace_back([this, name = name, &reply = reply] {
      ScriptedNode node;
      node.on_info = [&reply](const std::string&) { return reply; };
      EXPECT_FALSE(use(node, std::string("info answer: ") + name)) << name;
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const auto& [name, reply] : cases) {  // only to the question about the namespace
    ScriptedNode node;
    node.on_info = [&reply = reply](const std::string& commands) {
      return commands.find("namespace/") == 0 ? std::optional<Reply>(reply) : std::nullopt;
    };
    EXPECT_FALSE(use(node, std::string("namespace answer: ") + name)) << name;
  }
  EXPECT_LT(peak_resident_bytes(), peak_before_ + (200 << 20) * kSlowness);
}

TEST_F(HostileInfo, AnswersToALogin) {
  const auto security = [](std::initializer_list<int> bytes) {
    ByteVector body;
    for (const int byte : bytes) body.push_back(static_cast<std::byte>(byte));
    return frame_of(wire::MessageType::security, body);
  };
  const auto padded = [&](uint8_t code, std::initializer_list<int> fields, int count) {
    ByteVector body(16);
    body[1] = std::byte{code};
    body[3] = static_cast<std::byte>(count);
    for (const int byte : fields) body.push_back(static_cast<std::byte>(byte));
    return frame_of(wire::MessageType::security, body);
  };
  ByteVector over_limit(8);
  store_be<uint64_t>(over_limit.data(), 0x0202000000000000ULL | (kSecurityBytesMax + 1));
  ByteVector huge(8);
  store_be<uint64_t>(huge.data(), 0x0202FFFFFFFFFFFFULL);
  const ByteVector cases[] = {
      {},
      security({}),
      security({0}),
      padded(0, {}, 0),
      padded(0, {}, 255),
      padded(0, {0, 0, 0, 200, 5, 1, 2, 3}, 1),
      padded(0, {0xFF, 0xFF, 0xFF, 0xFF, 5}, 1),
      padded(0, {0, 0, 0, 0}, 1),
      padded(0, {0, 0, 0, 5, 6, 0xFF, 0xFF, 0xFF, 0xFF}, 1),
      padded(52, {}, 0),
      padded(60, {}, 0),
      padded(66, {}, 0),
      padded(255, {}, 0),
      over_limit,
      huge,
      info_frame("x"),
      header_frame(0),
  };
  std::vector<std::thread> threads;
  for (size_t i = 0; i < std::size(cases); ++i) {
    threads.emplace_back([&cases, i] {
      ScriptedNode node;
      node.on_info = [&](const std::string& commands) -> std::optional<Reply> {
        const bool is_login = commands.size() > 3 && commands[0] == '\0';
        return is_login ? std::optional<Reply>(Reply{cases[i]}) : std::nullopt;
      };
      StoreOptions options = hostile_options(node.host());
      options.username = "tester";
      options.password = "secret";
      const auto begun = std::chrono::steady_clock::now();
      const Result<std::unique_ptr<Store>> store = Store::open(options);
      EXPECT_LT(std::chrono::steady_clock::now() - begun, seconds(8 * kSlowness)) << i;
      EXPECT_TRUE(store || !store.error().message().empty()) << i;
    });
  }
  for (std::thread& thread : threads) thread.join();
}

TEST_F(HostileInfo, GreetingsNobodyAskedFor) {
  for (const ByteVector& greeting :
       {info_frame("node\tBB9\n"), header_frame(0), ByteVector(100000, std::byte{'x'}),
        ByteVector(3, std::byte{2})}) {
    ScriptedNode node;
    node.greeting = greeting;
    EXPECT_FALSE(use(node, "greeting"));
  }
}

/// Two clusters of one node each are a mistake, but no reason for a start to fail.
TEST_F(HostileInfo, SeedsOfDifferentClusters) {
  const std::unique_ptr<devserver::DevServer> first = start_server(small_record_server());
  devserver::Options options = small_record_server();
  options.node_ids = {"A2"};
  const std::unique_ptr<devserver::DevServer> second = start_server(options);
  const std::unique_ptr<Store> store =
      open_store(hostile_options(hosts_of(*first) + "," + hosts_of(*second)));
  const Buffer payload = random_bytes(2 * kSegment, 1);
  EXPECT_EQ(bits_of(run(*store, Operation::put, {put_item("k", payload)})), "1");
  Guarded buffer(payload.size());
  EXPECT_EQ(bits_of(run(*store, Operation::get, {get_into("k", buffer)})), "1");
  EXPECT_TRUE(buffer.holds(payload));
}

/// One liar among honest nodes cannot keep the others from serving.
TEST_F(HostileInfo, ALiarBesideAnHonestNode) {
  const std::unique_ptr<devserver::DevServer> server = start_server(small_record_server());
  for (const char* lie : {"silence", "garbage", "claims nothing"}) {
    ScriptedNode liar;
    if (std::string(lie) == "silence") {
      liar.on_info = [](const std::string&) { return Reply{}; };
    } else if (std::string(lie) == "garbage") {
      liar.on_info = [](const std::string&) { return Reply{ByteVector(64, std::byte{'g'})}; };
    } else {
      liar.info["replicas"] = "lmcache:0,1," + std::string(683, 'A') + "=";
    }
    for (const bool first : {true, false}) {
      StoreOptions options = hostile_options(first ? liar.host() + "," + hosts_of(*server)
                                                   : hosts_of(*server) + "," + liar.host());
      const std::unique_ptr<Store> store = open_store(options);
      const Buffer payload = random_bytes(2 * kSegment, 1);
      EXPECT_EQ(bits_of(run(*store, Operation::put, {put_item("k", payload)})), "1") << lie;
      Guarded buffer(payload.size());
      EXPECT_EQ(bits_of(run(*store, Operation::get, {get_into("k", buffer)})), "1") << lie;
      EXPECT_TRUE(buffer.holds(payload));
    }
  }
}

}  // namespace
}  // namespace aerokv::testing
