// SPDX-License-Identifier: Apache-2.0
#include "wire/info.h"

#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

namespace aerokv::wire {
namespace {

TEST(Info, SplitsLinesAndTabs) {
  const auto items = parse_info("node\tA1\nfeatures\ta\tb\nbare\n\nlast\tx");
  ASSERT_EQ(items.size(), 5U);
  EXPECT_EQ(items[0].name, "node");
  EXPECT_EQ(items[0].value, "A1");
  EXPECT_EQ(items[1].value, "a\tb");
  EXPECT_EQ(items[2].name, "bare");
  EXPECT_EQ(items[2].value, "");
  EXPECT_EQ(items[3].name, "");
  EXPECT_EQ(items[4].value, "x");
  EXPECT_TRUE(parse_info("").empty());
}

TEST(Info, Find) {
  const auto items =
      parse_info("node\tA1\nempty\t\nx\tERROR:4:bad\ny\tFAIL:11:gone\nz\terror=no\n");
  EXPECT_EQ(*find_info(items, "node"), "A1");
  EXPECT_EQ(*find_info(items, "empty"), "");
  EXPECT_EQ(find_info(items, "nod").error().code(), Code::protocol);
  EXPECT_EQ(find_info(items, "x").error().code(), Code::denied);
  EXPECT_EQ(find_info(items, "x").error().server_result(), 4);
  EXPECT_EQ(find_info(items, "y").error().code(), Code::unavailable);
  EXPECT_EQ(find_info(items, "z").error().code(), Code::denied);
  EXPECT_EQ(find_info({}, "node").error().code(), Code::protocol);
}

TEST(Info, ErrorLineOfAConnectionThatIsNotLoggedIn) {
  const auto items = parse_info("ERROR:80:not authenticated\n");
  const auto node = find_info(items, "node");
  ASSERT_FALSE(node);
  EXPECT_EQ(node.error().server_result(), 80);
  const auto large = parse_info("node\tERROR:99999999999:x\n");
  EXPECT_FALSE(find_info(large, "node"));
}

TEST(Info, KeyValues) {
  const auto pairs = parse_key_values("a=1;b=;c;d=x=y;");
  ASSERT_EQ(pairs.size(), 3U);
  EXPECT_EQ(pairs[0].first, "a");
  EXPECT_EQ(pairs[1].second, "");
  EXPECT_EQ(pairs[2].first, "d");
  EXPECT_EQ(pairs[2].second, "x=y");
  EXPECT_TRUE(parse_key_values("").empty());
  EXPECT_TRUE(parse_key_values(";;;").empty());
}

TEST(Endpoint, Forms) {
  const std::tuple<const char*, const char*, int, const char*> rows[] = {
      {"h", "h", 3000, "h:3000"},
      {"127.0.0.1:3100", "127.0.0.1", 3100, "127.0.0.1:3100"},
      {"[::1]", "::1", 3000, "[::1]:3000"},
      {"[fe80::1]:1", "fe80::1", 1, "[fe80::1]:1"},
      {"a.b-c_d:65535", "a.b-c_d", 65535, "a.b-c_d:65535"}};
  for (const auto& [text, host, port, printed] : rows) {
    const auto endpoint = parse_endpoint(text, 3000);
    ASSERT_TRUE(endpoint) << text;
    EXPECT_EQ(endpoint->host, host);
    EXPECT_EQ(endpoint->port, port);
    EXPECT_EQ(endpoint->to_string(), printed);
    const auto again = parse_endpoint(endpoint->to_string(), 1);
    ASSERT_TRUE(again) << text;
    EXPECT_EQ(*again, *endpoint);
  }
}

TEST(Endpoint, TlsNames) {
  const std::tuple<const char*, const char*, const char*, int> rows[] = {
      {"h:node-1.example:4333", "h", "node-1.example", 4333},
      {"[::1]:cluster:3000", "::1", "cluster", 3000},
      {"10.0.0.1:10.0.0.1:1", "10.0.0.1", "10.0.0.1", 1},
      {"h:4333:4334", "h", "4333", 4334}};
  for (const auto& [text, host, name, port] : rows) {
    const auto endpoint = parse_endpoint(text, 3000);
    ASSERT_TRUE(endpoint) << text;
    EXPECT_EQ(endpoint->host, host);
    EXPECT_EQ(endpoint->tls_name, name);
    EXPECT_EQ(endpoint->port, port);
    EXPECT_EQ(endpoint->to_string().find("cluster"), std::string::npos);
  }
  for (const std::string& text :
       {std::string("h:name"), std::string("h::3000"), std::string("h:.name:3000"),
        std::string("h:a b:3000"), std::string("h:name:"), std::string("h:name:0"),
        std::string("h:a:b:3000"), std::string("fe80::1:2"), std::string("[::1]::3000"),
        std::string("h:\x7f:3000"), "h:" + std::string(254, 'n') + ":3000"}) {
    EXPECT_FALSE(parse_endpoint(text, 3000)) << text;
  }
  EXPECT_TRUE(parse_endpoint("h:" + std::string(253, 'n') + ":3000", 3000));
}

TEST(Endpoint, Refused) {
  for (const std::string& text : {std::string(),
                                  std::string(":3000"),
                                  std::string("h:"),
                                  std::string("h:0"),
                                  std::string("h:65536"),
                                  std::string("h:-1"),
                                  std::string("h:3000x"),
                                  std::string("h: 3000"),
                                  std::string("h:0x10"),
                                  std::string("[::1"),
                                  std::string("[]"),
                                  std::string("[]:3000"),
                                  std::string("[::1]3000"),
                                  std::string("[::1]:"),
                                  std::string("::1"),
                                  std::string("a b"),
                                  std::string("h\n"),
                                  std::string("h,i"),
                                  std::string("h]"),
                                  std::string("a\0b", 3),
                                  std::string("h:99999999999999999999"),
                                  std::string(256, 'h')}) {
    const auto endpoint = parse_endpoint(text, 3000);
    ASSERT_FALSE(endpoint) << text;
    EXPECT_EQ(endpoint.error().code(), Code::invalid);
  }
  EXPECT_TRUE(parse_endpoint(std::string(255, 'h'), 3000));
}

TEST(Endpoints, List) {
  const auto list = parse_endpoints("a:1, b ,[::1]:3", 3000);
  ASSERT_TRUE(list);
  ASSERT_EQ(list->size(), 3U);
  EXPECT_EQ((*list)[1], (Endpoint{"b", 3000}));
  EXPECT_EQ((*list)[2], (Endpoint{"::1", 3}));
  for (const char* text : {"", ",", "a,", ",a", "a,,b"}) {
    EXPECT_EQ(parse_endpoints(text, 3000).error().code(), Code::invalid) << text;
  }
}

TEST(Peers, Empty) {
  for (const char* text : {"0,3000,[]", "0,,[]"}) {
    const auto peers = parse_peers(text);
    ASSERT_TRUE(peers) << text;
    EXPECT_EQ(peers->generation, 0);
    EXPECT_TRUE(peers->peers.empty());
  }
}

TEST(Peers, SeveralNodesAndAddresses) {
  const auto peers =
      parse_peers("7,3100,[[A2,,[127.0.0.1:3110]],[A3,tls.name,[127.0.0.1,[::1]:3120,[fe80::2]]]]");
  ASSERT_TRUE(peers) << peers.error().message();
  EXPECT_EQ(peers->generation, 7);
  ASSERT_EQ(peers->peers.size(), 2U);
  EXPECT_EQ(peers->peers[0].node, "A2");
  EXPECT_EQ(peers->peers[0].endpoints, (std::vector<Endpoint>{{"127.0.0.1", 3110}}));
  EXPECT_EQ(peers->peers[1].tls_name, "tls.name");
  EXPECT_EQ(peers->peers[0].endpoints[0].tls_name, "");
  for (const Endpoint& endpoint : peers->peers[1].endpoints) {
    EXPECT_EQ(endpoint.tls_name, "tls.name");
  }
  EXPECT_EQ(peers->peers[1].endpoints, (std::vector<Endpoint>{{"127.0.0.1", 3100, "tls.name"},
                                                              {"::1", 3120, "tls.name"},
                                                              {"fe80::2", 3100, "tls.name"}}));
}

TEST(Peers, Damaged) {
  const std::string good = "7,3100,[[A2,,[127.0.0.1:3110]],[A3,t,[[::1]:3120]]]";
  ASSERT_TRUE(parse_peers(good));
  for (size_t n = 0; n < good.size(); ++n) {
    EXPECT_FALSE(parse_peers(good.substr(0, n))) << n;
  }
  for (const std::string& text :
       {good + "]", good + ",", std::string("x,3000,[]"), std::string("1,0,[]"),
        std::string("1,65536,[]"), std::string("1,x,[]"), std::string("1,3000,[[,,[h]]]"),
        std::string("1,3000,[[A2,,[h]][A3,,[h]]]"), std::string("1,3000,[[A2,,[h:0]]]"),
        std::string("1,3000,[[A2,,[h,]]]"), std::string("1,3000,[[A2,,[,h]]]"),
        "1,3000,[[" + std::string(20, 'N') + ",,[h]]]"}) {
    const auto peers = parse_peers(text);
    ASSERT_FALSE(peers) << text;
    EXPECT_EQ(peers.error().code(), Code::protocol);
  }
  EXPECT_TRUE(parse_peers("1,3000,[[" + std::string(19, 'N') + ",,[h]]]"));
}

TEST(Peers, CountLimit) {
  const auto list_of = [](int count) {
    std::string text = "1,3000,[";
    for (int i = 0; i < count; ++i) {
      text += (i > 0 ? ",[N" : "[N") + std::to_string(i) + ",,[h]]";
    }
    return text + "]";
  };
  const auto at_limit = parse_peers(list_of(1024));
  ASSERT_TRUE(at_limit) << at_limit.error().message();
  EXPECT_EQ(at_limit->peers.size(), 1024U);
  EXPECT_FALSE(parse_peers(list_of(1025)));
}

std::string bitmap_text(const PartitionSet& set) {
  constexpr std::string_view kAlphabet =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string text;
  for (uint32_t at = 0; at < kPartitionCount; at += 6) {
    uint32_t value = 0;
    for (uint32_t bit = 0; bit < 6; ++bit) {
      value = value << 1 | (at + bit < kPartitionCount && set[at + bit] ? 1 : 0);
    }
    text += kAlphabet[value];
  }
  return text + "=";
}

TEST(Replicas, BitmapsOfEveryKind) {
  const uint32_t seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  PartitionSet none, all, first, last, some;
  all.set();
  first.set(0);
  last.set(kPartitionCount - 1);
  for (uint32_t p = 0; p < kPartitionCount; ++p) some[p] = (random() & 1) != 0;
  for (const PartitionSet& set : {none, all, first, last, some}) {
    const auto maps = parse_replicas("lmcache:3,1," + bitmap_text(set));
    ASSERT_TRUE(maps) << maps.error().message();
    ASSERT_EQ(maps->size(), 1U);
    EXPECT_EQ((*maps)[0].ns, "lmcache");
    EXPECT_EQ((*maps)[0].regime, 3U);
    EXPECT_EQ((*maps)[0].replication_factor, 1U);
    ASSERT_EQ((*maps)[0].replicas.size(), 1U);
    EXPECT_TRUE((*maps)[0].replicas[0] == set);
  }
}

TEST(Replicas, SeveralNamespacesAndReplicas) {
  PartitionSet even;
  for (uint32_t p = 0; p < kPartitionCount; p += 2) even.set(p);
  const std::string a = bitmap_text(even), b = bitmap_text(~even);
  const auto maps = parse_replicas("lmcache:0,2," + a + "," + b + ";wide:4294967295,5," + a + "," +
                                   b + "," + a + "," + b + "," + a + ";");
  ASSERT_TRUE(maps) << maps.error().message();
  ASSERT_EQ(maps->size(), 2U);
  EXPECT_TRUE((*maps)[0].replicas[1] == ~even);
  EXPECT_EQ((*maps)[1].replication_factor, 5U);
  EXPECT_EQ((*maps)[1].replicas.size(), kReplicasMax);
  EXPECT_EQ((*maps)[1].regime, 4294967295U);
  EXPECT_TRUE(parse_replicas("")->empty());
}

TEST(Replicas, Damaged) {
  const std::string bitmap = bitmap_text({});
  const std::string good = "lmcache:0,1," + bitmap;
  ASSERT_TRUE(parse_replicas(good));
  for (size_t n = 1; n < good.size(); ++n) {
    ASSERT_FALSE(parse_replicas(good.substr(0, n))) << n;
  }
  std::string bad_character = good;
  bad_character[100] = '*';
  std::string no_padding = good;
  no_padding.back() = 'A';
  for (const std::string& text : {bad_character,
                                  no_padding,
                                  good + "A",
                                  good + "," + bitmap,
                                  good + ";;",
                                  "x" + good + ";:",
                                  ":0,1," + bitmap,
                                  std::string(32, 'n') + ":0,1," + bitmap,
                                  "n:-1,1," + bitmap,
                                  "n:4294967296,1," + bitmap,
                                  "n:0,0," + bitmap,
                                  "n:0,-1," + bitmap,
                                  "n:0,256," + bitmap,
                                  "n:0,2," + bitmap,
                                  "n:0,999999999999," + bitmap,
                                  "n:x,1," + bitmap,
                                  "n:0,x," + bitmap,
                                  "n:,1," + bitmap,
                                  std::string("garbage"),
                                  std::string(";")}) {
    const auto maps = parse_replicas(text);
    ASSERT_FALSE(maps) << text.substr(0, 60);
    EXPECT_EQ(maps.error().code(), Code::protocol);
  }
  EXPECT_TRUE(parse_replicas(std::string(31, 'n') + ":0,1," + bitmap));
}

TEST(Integers, WholeTextOrNothing) {
  EXPECT_EQ(*parse_integer("0", "x"), 0);
  EXPECT_EQ(*parse_integer("-1", "x"), -1);
  EXPECT_EQ(*parse_integer("9223372036854775807", "x"), INT64_MAX);
  for (const char* text : {"", "-", "+1", " 1", "1 ", "1x", "9223372036854775808", "0x1", "1.0"}) {
    const auto number = parse_integer(text, "thing");
    ASSERT_FALSE(number) << text;
    EXPECT_EQ(number.error().code(), Code::protocol);
    EXPECT_NE(number.error().message().find("thing"), std::string::npos);
  }
}

}  // namespace
}  // namespace aerokv::wire
