// SPDX-License-Identifier: Apache-2.0
// A cluster of three nodes that die, freeze, come back, and change their minds, under load.
#include <arpa/inet.h>
#include <netinet/in.h>
#include <sys/socket.h>

#include <atomic>
#include <thread>

#include "base/fd.h"
#include "tests/fault/world.h"

namespace aerokv::testing {
namespace {

using devserver::Fault;
using devserver::FaultAction;
using std::chrono::milliseconds;
using std::chrono::seconds;

constexpr size_t kObjects = 60;
constexpr auto kSettleTime = seconds(30);

devserver::Options three_nodes() {
  devserver::Options options = small_record_server(3);
  options.threads = 2;
  options.timing.detection = milliseconds(300 * kSlowness);
  options.timing.join = milliseconds(300 * kSlowness);
  options.timing.resume = milliseconds(200 * kSlowness);
  options.timing.map_change = milliseconds(60);
  options.timing.migration = std::chrono::microseconds(50);
  return options;
}

class ThreeNodes : public ::testing::Test {
 protected:
  explicit ThreeNodes(devserver::Options options = three_nodes())
      : server_(start_server(std::move(options))) {
    options_ = options_for(*server_);
    options_.request_timeout = milliseconds(150 * kSlowness);
    options_.write_request_timeout = milliseconds(300 * kSlowness);
    options_.read_timeout = seconds(10);
    options_.write_timeout = seconds(10);
    options_.tend_interval = milliseconds(100);
    for (size_t i = 0; i < kObjects; ++i) contents_.push_back(content(i));
  }

  static Buffer content(size_t i) { return random_bytes(i % 3 == 0 ? 700 : 2 * kSegment - i, i); }
  static std::string key(size_t i) { return "object/" + std::to_string(i); }

  std::vector<ItemResult> store_all(Store& store) {
    std::vector<Item> items;
    for (size_t i = 0; i < kObjects; ++i) items.push_back(put_item(key(i), contents_[i]));
    return run(store, Operation::put, std::move(items));
  }

  /// Loads everything; hits must be right. Returns the bits.
  std::string load_all(Store& store) {
    std::vector<Guarded> targets;
    for (size_t i = 0; i < kObjects; ++i) targets.emplace_back(contents_[i].size());
    std::vector<Item> items;
    for (size_t i = 0; i < kObjects; ++i) items.push_back(get_into(key(i), targets[i]));
    const std::vector<ItemResult> results = run(store, Operation::get, std::move(items));
    for (size_t i = 0; i < kObjects; ++i) {
      EXPECT_TRUE(targets[i].is_intact());
      if (results[i].outcome == Outcome::error) last_error_ = results[i].status.message();
      EXPECT_TRUE(results[i].outcome != Outcome::hit || targets[i].holds(contents_[i])) << key(i);
    }
    return bits_of(results);
  }

  std::string look_up_all(Store& store) {
    std::vector<Item> items;
    for (size_t i = 0; i < kObjects; ++i) items.push_back(key_item(key(i)));
    return bits_of(run(store, Operation::exists, std::move(items)));
  }

  /// Repeats `attempt` until it returns all ones.
  template <typename Attempt>
  void await_all_ones(Attempt attempt, const char* what) {
    const auto deadline = std::chrono::steady_clock::now() + kSettleTime;
    std::string bits;
    do {
      bits = attempt();
    } while (bits != kAllOnes && std::chrono::steady_clock::now() < deadline);
    EXPECT_EQ(bits, kAllOnes) << what << ": " << last_error_;
  }

  const std::string kAllOnes = std::string(kObjects, '1');
  std::unique_ptr<devserver::DevServer> server_;
  StoreOptions options_;
  std::vector<Buffer> contents_;
  std::string last_error_;
};

TEST_F(ThreeNodes, ADeadNodeCostsNothingButTime) {
  const std::unique_ptr<Store> store = open_store(options_);
  const std::unique_ptr<Store> other = open_store(options_);
  ASSERT_EQ(bits_of(store_all(*store)), kAllOnes);
  std::atomic<bool> stopping{false};
  std::atomic<uint64_t> stored{0}, not_stored{0}, loaded{0}, not_loaded{0};
  std::thread storing([&] {
    for (uint64_t i = 0; !stopping; ++i) {
      const Buffer payload = random_bytes(kSegment + i % 1000, i);
      const std::string name = "load/" + std::to_string(i % 50);
      const bool ok = bits_of(run(*other, Operation::put, {put_item(name, payload)})) == "1";
      ++(ok ? stored : not_stored);
      if (!ok) continue;
      Guarded buffer(payload.size());
      const std::string bits = bits_of(run(*other, Operation::get, {get_into(name, buffer)}));
      EXPECT_TRUE(bits != "1" || buffer.holds(payload));
      ++(bits == "1" ? loaded : not_loaded);
    }
  });
  const auto await_load = [&] {
    const uint64_t before = stored;
    while (stored < before + 20) std::this_thread::yield();
  };
  await_load();
  ASSERT_TRUE(server_->stop_node(1).ok());
  // From the first moment on: every object has a copy on another node.
  for (int i = 0; i < 20; ++i) {
    EXPECT_EQ(load_all(*store), kAllOnes) << last_error_;
    EXPECT_EQ(look_up_all(*store), kAllOnes);
  }
  ASSERT_TRUE(server_->await_settled(kSettleTime).ok());
  await_load();
  EXPECT_EQ(load_all(*store), kAllOnes) << last_error_;
  await_all_ones([&] { return bits_of(store_all(*store)); }, "store without the node");
  ASSERT_TRUE(server_->start_node(1).ok());
  for (int i = 0; i < 20; ++i) EXPECT_EQ(load_all(*store), kAllOnes) << last_error_;
  ASSERT_TRUE(server_->await_settled(kSettleTime).ok());
  await_load();
  EXPECT_EQ(load_all(*store), kAllOnes) << last_error_;
  EXPECT_EQ(bits_of(store_all(*store)), kAllOnes);
  stopping = true;
  storing.join();
  EXPECT_EQ(not_stored, 0U) << "of " << stored;
  EXPECT_EQ(not_loaded, 0U) << "of " << loaded;
  const auto uses_the_node = [&] {
    const Result<devserver::NodeStats> stats = server_->stats(1);
    return stats->requests[static_cast<size_t>(devserver::RequestKind::get)];
  };
  const uint64_t before = uses_the_node();
  await_all_ones(
      [&] {
        static_cast<void>(load_all(*store));
        return uses_the_node() > before ? kAllOnes : std::string();
      },
      "the node that came back is used again");
}

/// The cluster does not notice; only the client can help itself.
class FrozenNode : public ThreeNodes {
 protected:
  static devserver::Options slow_to_notice() {
    devserver::Options options = three_nodes();
    options.timing.detection = seconds(60);
    return options;
  }
  FrozenNode() : ThreeNodes(slow_to_notice()) {}
};

TEST_F(FrozenNode, CostsALoadOneRequestTimeout) {
  const std::unique_ptr<Store> store = open_store(options_);
  ASSERT_EQ(bits_of(store_all(*store)), kAllOnes);
  ASSERT_EQ(load_all(*store), kAllOnes);
  const StoreStats before = store->stats();
  ASSERT_TRUE(server_->pause_node(1).ok());
  auto begun = std::chrono::steady_clock::now();
  EXPECT_EQ(load_all(*store), kAllOnes) << last_error_;
  const auto took = std::chrono::steady_clock::now() - begun;
  const StoreStats after = store->stats();
  size_t commands = 0;
  for (const Buffer& content : contents_) commands += content.size() > kSegment ? 3 : 1;
  EXPECT_GT(after.stalls, before.stalls);
  // Each request goes astray at most once.
  EXPECT_LE(after.requests - before.requests, 2 * commands);
  EXPECT_LT(took, 5 * options_.request_timeout) << "the deadline is " << 10 << " s";
  // And now nobody is sent there any more.
  EXPECT_EQ(load_all(*store), kAllOnes) << last_error_;
  const StoreStats avoiding = store->stats();
  EXPECT_EQ(avoiding.stalls, after.stalls);
  // Only probes, the first of which may have been prepared before.
  EXPECT_GE(avoiding.requests - after.requests, commands);
  EXPECT_LE(avoiding.requests - after.requests, commands + avoiding.probes - after.probes + 1);
  begun = std::chrono::steady_clock::now();
  EXPECT_EQ(look_up_all(*store), kAllOnes);
  EXPECT_LT(std::chrono::steady_clock::now() - begun, options_.request_timeout);
  ASSERT_TRUE(server_->resume_node(1).ok());
  await_all_ones([&] { return bits_of(store_all(*store)); }, "store after the freeze");
  EXPECT_EQ(load_all(*store), kAllOnes) << last_error_;
}

TEST_F(FrozenNode, CostsALookupOneRequestTimeout) {
  const std::unique_ptr<Store> store = open_store(options_);
  ASSERT_EQ(bits_of(store_all(*store)), kAllOnes);
  ASSERT_EQ(look_up_all(*store), kAllOnes);
  ASSERT_TRUE(server_->pause_node(2).ok());
  const auto begun = std::chrono::steady_clock::now();
  EXPECT_EQ(look_up_all(*store), kAllOnes);
  EXPECT_LT(std::chrono::steady_clock::now() - begun, 4 * options_.request_timeout);
}

TEST_F(ThreeNodes, AFrozenNodeIsReplacedAndTakenBack) {
  const std::unique_ptr<Store> store = open_store(options_);
  ASSERT_EQ(bits_of(store_all(*store)), kAllOnes);
  ASSERT_TRUE(server_->pause_node(0).ok());
  EXPECT_EQ(load_all(*store), kAllOnes) << last_error_;
  await_all_ones([&] { return bits_of(store_all(*store)); }, "store while a node is frozen");
  EXPECT_EQ(load_all(*store), kAllOnes) << last_error_;
  ASSERT_TRUE(server_->resume_node(0).ok());
  // It still believes in its old map: what it says may be old, but never wrong.
  for (int i = 0; i < 10; ++i) static_cast<void>(load_all(*store));
  ASSERT_TRUE(server_->await_settled(kSettleTime).ok());
  await_all_ones([&] { return bits_of(store_all(*store)); }, "store after the freeze");
  await_all_ones([&] { return load_all(*store); }, "load after the freeze");
}

TEST_F(ThreeNodes, TheWholeClusterMayGoAndComeBack) {
  options_.read_timeout = options_.write_timeout = milliseconds(500 * kSlowness);
  const std::unique_ptr<Store> store = open_store(options_);
  ASSERT_EQ(bits_of(store_all(*store)), kAllOnes);
  for (int node = 0; node < 3; ++node) ASSERT_TRUE(server_->stop_node(node).ok());
  const auto begun = std::chrono::steady_clock::now();
  EXPECT_EQ(load_all(*store), std::string(kObjects, 'E'));
  EXPECT_EQ(look_up_all(*store), std::string(kObjects, 'E'));
  EXPECT_EQ(bits_of(store_all(*store)), std::string(kObjects, 'E'));
  EXPECT_LT(std::chrono::steady_clock::now() - begun, milliseconds(5000 * kSlowness));
  for (int node = 0; node < 3; ++node) ASSERT_TRUE(server_->start_node(node).ok());
  ASSERT_TRUE(server_->await_settled(kSettleTime).ok());
  await_all_ones([&] { return bits_of(store_all(*store)); }, "store in the new cluster");
  EXPECT_EQ(load_all(*store), kAllOnes) << last_error_;
  EXPECT_EQ(look_up_all(*store), kAllOnes);
}

TEST_F(ThreeNodes, NodesRestartOneAfterTheOther) {
  const std::unique_ptr<Store> store = open_store(options_);
  ASSERT_EQ(bits_of(store_all(*store)), kAllOnes);
  for (int node = 0; node < 3; ++node) {
    ASSERT_TRUE(server_->stop_node(node).ok());
    EXPECT_EQ(look_up_all(*store), kAllOnes);
    EXPECT_EQ(load_all(*store), kAllOnes) << last_error_;
    ASSERT_TRUE(server_->await_settled(kSettleTime).ok());
    ASSERT_TRUE(server_->start_node(node).ok());
    EXPECT_EQ(load_all(*store), kAllOnes) << last_error_;
    ASSERT_TRUE(server_->await_settled(kSettleTime).ok());
    EXPECT_EQ(load_all(*store), kAllOnes) << last_error_;
    EXPECT_EQ(look_up_all(*store), kAllOnes);
  }
  await_all_ones([&] { return bits_of(store_all(*store)); }, "store at the end");
}

/// A node that has not joined answers code 11 to everything.
TEST_F(ThreeNodes, CodeElevenIsRetriedElsewhere) {
  const std::unique_ptr<Store> store = open_store(options_);
  ASSERT_EQ(bits_of(store_all(*store)), kAllOnes);
  for (int node = 0; node < 3; ++node) {
    Fault fault;
    fault.node = node;
    fault.action = FaultAction::result_code;
    fault.code = 11;
    const uint64_t id = server_->add_fault(fault);
    EXPECT_EQ(load_all(*store), kAllOnes) << last_error_;
    EXPECT_EQ(look_up_all(*store), kAllOnes);
    EXPECT_GT(server_->fault_counters()[0].applied, 0U);
    server_->remove_fault(id);
  }
}

TEST_F(ThreeNodes, AnEmptyRestartUnderLoadLosesNothing) {
  // The node is back before the others have noticed, empty, and is not a member for a while.
  const std::unique_ptr<Store> store = open_store(options_);
  ASSERT_EQ(bits_of(store_all(*store)), kAllOnes);
  ASSERT_TRUE(server_->stop_node(2).ok());
  ASSERT_TRUE(server_->start_node(2).ok());
  for (int i = 0; i < 20; ++i) {
    EXPECT_EQ(load_all(*store), kAllOnes) << last_error_;
    EXPECT_EQ(look_up_all(*store), kAllOnes);
  }
  ASSERT_TRUE(server_->await_settled(kSettleTime).ok());
  EXPECT_EQ(load_all(*store), kAllOnes) << last_error_;
}

/// Maps stay half-changed, and both bitmaps name the acting master, for as long as the load runs.
class SlowMigration : public ThreeNodes {
 protected:
  static devserver::Options slow() {
    devserver::Options options = three_nodes();
    options.timing.map_change = milliseconds(400);
    options.timing.migration = std::chrono::microseconds(300);
    return options;
  }
  SlowMigration() : ThreeNodes(slow()) {}
};

TEST_F(SlowMigration, HalfChangedMapsServeEverything) {
  const std::unique_ptr<Store> store = open_store(options_);
  ASSERT_EQ(bits_of(store_all(*store)), kAllOnes);
  ASSERT_TRUE(server_->stop_node(0).ok());
  while (!server_->await_settled(milliseconds(1)).ok()) {
    EXPECT_EQ(load_all(*store), kAllOnes) << last_error_;
    if (HasFailure()) break;
  }
  ASSERT_TRUE(server_->start_node(0).ok());
  while (!server_->await_settled(milliseconds(1)).ok()) {
    EXPECT_EQ(load_all(*store), kAllOnes) << last_error_;
    if (HasFailure()) break;
  }
  await_all_ones([&] { return bits_of(store_all(*store)); }, "store at the end");
  EXPECT_EQ(load_all(*store), kAllOnes) << last_error_;
}

/// Takes connections, into its queue, and never says a word.
class SilentPort {
 public:
  explicit SilentPort(int backlog) : fd_(::socket(AF_INET, SOCK_STREAM | SOCK_CLOEXEC, 0)) {
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    socklen_t length = sizeof address;
    EXPECT_EQ(::bind(fd_.get(), reinterpret_cast<sockaddr*>(&address), length), 0);
    EXPECT_EQ(::getsockname(fd_.get(), reinterpret_cast<sockaddr*>(&address), &length), 0);
    port_ = ntohs(address.sin_port);
    if (backlog >= 0) {
      EXPECT_EQ(::listen(fd_.get(), backlog), 0);
    }
  }
  [[nodiscard]] std::string host() const { return "127.0.0.1:" + std::to_string(port_); }

 private:
  UniqueFd fd_;
  uint16_t port_ = 0;
};

TEST_F(ThreeNodes, DeadSeedsDoNotHoldUpAStart) {
  const SilentPort silent(8);
  const SilentPort refusing(-1);
  options_.connect_timeout = seconds(20);
  for (const std::string& dead : {silent.host(), refusing.host()}) {
    for (const bool first : {true, false}) {
      StoreOptions options = options_;
      const std::string live =
          "127.0.0.1:" + std::to_string(server_->endpoints()[first ? 0 : 2].port);
      options.hosts = first ? dead + "," + live : live + "," + dead;
      const auto begun = std::chrono::steady_clock::now();
      const std::unique_ptr<Store> store = open_store(options);
      EXPECT_EQ(bits_of(store_all(*store)), kAllOnes);
      EXPECT_EQ(load_all(*store), kAllOnes) << last_error_;
      EXPECT_LT(std::chrono::steady_clock::now() - begun, seconds(10)) << options.hosts;
      EXPECT_EQ(store->stats().nodes.size(), 3U);
    }
  }
}

TEST(Seeds, AllDeadAreAllNamed) {
  const SilentPort silent(8);
  const SilentPort refusing(-1);
  StoreOptions options;
  options.hosts = silent.host() + "," + refusing.host();
  options.connect_timeout = milliseconds(300);
  const auto begun = std::chrono::steady_clock::now();
  const Result<std::unique_ptr<Store>> store = Store::open(options);
  EXPECT_LT(std::chrono::steady_clock::now() - begun, seconds(5));
  ASSERT_FALSE(store);
  EXPECT_EQ(store.error().code(), Code::unavailable);
  EXPECT_NE(store.error().message().find(silent.host()), std::string::npos)
      << store.error().message();
  EXPECT_NE(store.error().message().find(refusing.host()), std::string::npos)
      << store.error().message();
}

}  // namespace
}  // namespace aerokv::testing
