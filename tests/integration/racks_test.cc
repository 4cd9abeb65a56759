// SPDX-License-Identifier: Apache-2.0
// Racks and alternate addresses: which nodes a store talks to.
#include <array>

#include "base/certificates_testing.h"
#include "tests/integration/cluster_fixture.h"

namespace aerokv::testing {
namespace {

using devserver::RequestKind;
using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr size_t kObjects = 40;
constexpr int kNodes = 4;
constexpr auto kSettleTime = seconds(30);
constexpr auto kPatience = seconds(20);

devserver::Options four_nodes() {
  devserver::Options options;
  options.nodes = kNodes;
  options.threads = 2;
  options.timing.detection = milliseconds(400);
  options.timing.join = milliseconds(300);
  options.timing.map_change = milliseconds(20);
  options.timing.migration = std::chrono::microseconds(20);
  return options;
}

std::string hosts_text(const std::vector<devserver::Endpoint>& endpoints) {
  std::string hosts;
  for (const devserver::Endpoint& endpoint : endpoints) {
    hosts += (hosts.empty() ? "" : ",") + endpoint.host + ":" + std::to_string(endpoint.port);
  }
  return hosts;
}

class RackTest : public ::testing::Test {
 protected:
  RackTest() {
    for (size_t i = 0; i < kObjects; ++i) contents_.push_back(random_bytes(1000 + 14'000 * i, i));
  }

  void start(devserver::Options options) { server_ = start_server(std::move(options)); }

  StoreOptions near_rack(int rack) const {
    StoreOptions options = options_for(*server_);
    options.replica = Replica::prefer_rack;
    options.rack_id = rack;
    options.target_segment_bytes = 256 << 10;
    options.tend_interval = milliseconds(100);
    options.read_timeout = seconds(10);
    options.write_timeout = seconds(10);
    return options;
  }

  static std::string key(size_t i) { return "rack/" + std::to_string(i); }

  std::string store_all(Store& store) {
    std::vector<Item> items;
    for (size_t i = 0; i < kObjects; ++i) items.push_back(put_item(key(i), contents_[i]));
    return bits_of(run(store, Operation::put, std::move(items)));
  }

  std::string load_all(Store& store) {
    std::vector<Buffer> targets;
    std::vector<Item> items;
    for (const Buffer& content : contents_) targets.emplace_back(content.size());
    for (size_t i = 0; i < kObjects; ++i) items.push_back(get_item(key(i), targets[i]));
    const std::vector<ItemResult> results = run(store, Operation::get, std::move(items));
    for (size_t i = 0; i < kObjects; ++i) {
      EXPECT_TRUE(results[i].outcome != Outcome::hit || targets[i] == contents_[i]) << key(i);
      if (results[i].outcome == Outcome::error) ADD_FAILURE() << results[i].status.message();
    }
    return bits_of(results);
  }

  std::string look_up_all(Store& store) {
    std::vector<Item> items;
    for (size_t i = 0; i < kObjects; ++i) items.push_back(key_item(key(i)));
    return bits_of(run(store, Operation::exists, std::move(items)));
  }

  /// Requests that read records, by node.
  std::array<uint64_t, kNodes> reads() const {
    std::array<uint64_t, kNodes> counts{};
    for (int node = 0; node < kNodes; ++node) {
      const auto stats = server_->stats(node);
      for (const RequestKind kind : {RequestKind::get, RequestKind::exists, RequestKind::batch}) {
        counts.at(static_cast<size_t>(node)) += stats->requests[static_cast<size_t>(kind)];
      }
    }
    return counts;
  }

  /// Loads and looks up everything; true if only nodes of `mask` were asked, and each of them.
  bool reads_at(Store& store, uint32_t mask) {
    const auto before = reads();
    EXPECT_EQ(load_all(store), kAllOnes);
    EXPECT_EQ(look_up_all(store), kAllOnes);
    const auto after = reads();
    for (size_t node = 0; node < kNodes; ++node) {
      if ((after.at(node) > before.at(node)) != ((mask >> node & 1) != 0)) return false;
    }
    return true;
  }

  void await_reads_at(Store& store, uint32_t mask, const char* what) {
    const auto deadline = std::chrono::steady_clock::now() + kPatience;
    while (!reads_at(store, mask)) {
      ASSERT_LT(std::chrono::steady_clock::now(), deadline) << what;
    }
  }

  const std::string kAllOnes = std::string(kObjects, '1');
  std::unique_ptr<devserver::DevServer> server_;
  std::vector<Buffer> contents_;
};

TEST_F(RackTest, LoadsStayInTheirRackWhileItLivesAndFindTheOtherWhenItDies) {
  devserver::Options options = four_nodes();
  options.racks = {1, 1, 2, 2};
  start(std::move(options));
  const std::unique_ptr<Store> one = open_store(near_rack(1));
  const std::unique_ptr<Store> two = open_store(near_rack(2));
  ASSERT_EQ(store_all(*one), kAllOnes);
  await_reads_at(*one, 0b0011, "rack 1");
  await_reads_at(*two, 0b1100, "rack 2");
  for (int i = 0; i < 5; ++i) {
    EXPECT_TRUE(reads_at(*one, 0b0011));
    EXPECT_TRUE(reads_at(*two, 0b1100));
  }
  // One node of the rack dies: its copies are in the other rack, those of the other stay near.
  ASSERT_TRUE(server_->stop_node(0).ok());
  EXPECT_EQ(load_all(*one), kAllOnes);
  ASSERT_TRUE(server_->await_settled(kSettleTime).ok());
  // All of it: everything comes from far, from the first moment on.
  ASSERT_TRUE(server_->stop_node(1).ok());
  for (int i = 0; i < 5; ++i) EXPECT_EQ(load_all(*one), kAllOnes);
  ASSERT_TRUE(server_->await_settled(kSettleTime).ok());
  EXPECT_EQ(look_up_all(*one), kAllOnes);
  ASSERT_TRUE(server_->start_node(0).ok());
  ASSERT_TRUE(server_->start_node(1).ok());
  ASSERT_TRUE(server_->await_settled(kSettleTime).ok());
  await_reads_at(*one, 0b0011, "the rack that came back is used again");
}

TEST_F(RackTest, ANodeThatMovesToAnotherRackIsFollowed) {
  devserver::Options options = four_nodes();
  options.racks = {1, 1, 2, 2};
  start(std::move(options));
  const std::unique_ptr<Store> store = open_store(near_rack(1));
  ASSERT_EQ(store_all(*store), kAllOnes);
  await_reads_at(*store, 0b0011, "rack 1");
  ASSERT_TRUE(server_->set_rack(1, 2).ok());
  ASSERT_TRUE(server_->set_rack(2, 1).ok());
  ASSERT_TRUE(server_->await_settled(kSettleTime).ok());
  await_reads_at(*store, 0b0101, "the new rack 1");
}

TEST_F(RackTest, WithoutRacksEveryCopyIsEquallyNear) {
  start(four_nodes());
  const std::unique_ptr<Store> store = open_store(near_rack(1));
  ASSERT_EQ(store_all(*store), kAllOnes);
  await_reads_at(*store, 0b1111, "all nodes");
}

class AlternateTest : public RackTest {
 protected:
  /// What is advertised otherwise leads nowhere.
  static devserver::Options behind_a_translation() {
    devserver::Options options = four_nodes();
    options.advertised_host = "127.1.2.3";
    options.alternate_host = "127.0.0.2";
    return options;
  }

  void expect_all_nodes_used(const StoreOptions& options) {
    const std::unique_ptr<Store> store = open_store(options);
    ASSERT_EQ(store_all(*store), kAllOnes);
    EXPECT_EQ(load_all(*store), kAllOnes);
    for (int node = 0; node < kNodes; ++node) {
      EXPECT_GT(server_->stats(node)->requests[static_cast<size_t>(RequestKind::put)], 0U) << node;
    }
    ASSERT_TRUE(server_->stop_node(1).ok());
    EXPECT_EQ(load_all(*store), kAllOnes);
    ASSERT_TRUE(server_->await_settled(kSettleTime).ok());
    ASSERT_TRUE(server_->start_node(1).ok());
    ASSERT_TRUE(server_->await_settled(kSettleTime).ok());
    const auto before = reads()[1];
    const auto deadline = std::chrono::steady_clock::now() + kPatience;
    while (reads()[1] == before) {
      EXPECT_EQ(load_all(*store), kAllOnes);
      ASSERT_LT(std::chrono::steady_clock::now(), deadline) << "the node that came back";
    }
  }
};

TEST_F(AlternateTest, PeersAreReachedAtTheirAlternateAddresses) {
  start(behind_a_translation());
  StoreOptions options = options_for(*server_);
  options.hosts = hosts_text({server_->alternate_endpoints().front()});
  options.use_services_alternate = true;
  options.tend_interval = milliseconds(100);
  options.read_timeout = seconds(10);
  options.write_timeout = seconds(10);
  expect_all_nodes_used(options);
}

TEST_F(AlternateTest, TheSameOverTls) {
  const CertificateSet certificates;
  devserver::Options server = behind_a_translation();
  server.tls.options.enable = true;
  server.tls.options.cert_file = certificates.server_cert();
  server.tls.options.key_file = certificates.server_key();
  server.tls.name = "cluster.test";
  server.clear_port = false;
  start(std::move(server));
  StoreOptions options = options_for(*server_);
  options.hosts = hosts_text({server_->alternate_tls_endpoints().front()});
  options.use_services_alternate = true;
  options.tend_interval = milliseconds(100);
  options.read_timeout = seconds(10);
  options.write_timeout = seconds(10);
  options.tls.enable = true;
  options.tls.ca_file = certificates.ca_file();
  options.tls_name = "cluster.test";
  expect_all_nodes_used(options);
}

TEST_F(AlternateTest, WithoutTheOptionOnlyTheSeedIsReachedAndPassesRequestsOn) {
  start(behind_a_translation());
  StoreOptions options = options_for(*server_);
  options.hosts = hosts_text({server_->endpoints().front()});
  options.read_timeout = seconds(10);
  options.write_timeout = seconds(10);
  const std::unique_ptr<Store> store = open_store(options);
  ASSERT_EQ(store_all(*store), kAllOnes);
  EXPECT_TRUE(reads_at(*store, 0b0001));
}

}  // namespace
}  // namespace aerokv::testing
