// SPDX-License-Identifier: Apache-2.0
// What a host may rely on whatever it and the cluster do: one completion for each batch, in time,
// and no buffer touched after close().
#include <arpa/inet.h>
#include <fcntl.h>
#include <poll.h>
#include <sys/socket.h>
#include <sys/wait.h>
#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <set>
#include <thread>

#include "base/fd.h"
#include "store/keys.h"
#include "tests/fault/world.h"
#include "wire/result.h"

namespace aerokv::testing {
namespace {

using devserver::Fault;
using devserver::FaultAction;
using devserver::RequestKind;
using std::chrono::milliseconds;
using std::chrono::seconds;

std::unique_ptr<Connector> connect(const StoreOptions& options) {
  Result<std::unique_ptr<Connector>> connector = Connector::create(open_store(options));
  if (!connector) std::abort();
  return *std::move(connector);
}

/// Collects completions, each only once, until there are at least `wanted`.
void await_all(Connector& connector, size_t wanted, std::map<uint64_t, Completion>& all) {
  const auto deadline = std::chrono::steady_clock::now() + seconds(60);
  while (all.size() < wanted && std::chrono::steady_clock::now() < deadline) {
    for (Completion& completion : connector.drain()) {
      EXPECT_TRUE(all.emplace(completion.id, completion).second)
          << "batch " << completion.id << " was completed twice";
    }
    if (all.size() >= wanted) break;
    pollfd fd{connector.event_fd(), POLLIN, 0};
    ::poll(&fd, 1, 1000);
  }
  EXPECT_GE(all.size(), wanted);
}

class ConnectorFault : public ::testing::Test {
 protected:
  void put(Connector& connector, const std::string& key, const Buffer& payload) {
    const Completion completion = complete(connector, Operation::put, {put_item(key, payload)});
    ASSERT_TRUE(completion.ok) << completion.error;
  }

  std::unique_ptr<devserver::DevServer> server_ = start_server(small_record_server());
  StoreOptions options_ = impatient_options(*server_);
};

TEST_F(ConnectorFault, CloseLeavesNoBufferInUse) {
  std::unique_ptr<Connector> setup = connect(options_);
  const Buffer payload = random_bytes(5 * kSegment, 1);
  for (int i = 0; i < 8; ++i) put(*setup, "k" + std::to_string(i), payload);
  StoreOptions options = options_;
  options.num_io_threads = 2;
  options.read_timeout = options.write_timeout = seconds(60);
  options.request_timeout = options.write_request_timeout = seconds(60);
  for (const uint64_t skip : {0U, 1U, 5U, 20U, 40U}) {
    const std::unique_ptr<Connector> connector = connect(options);
    Fault fault;
    fault.action = FaultAction::delay;
    fault.delay = milliseconds(40);
    fault.skip = skip;
    const uint64_t id = server_->add_fault(fault);
    std::map<uint64_t, Completion> all;
    {
      std::vector<Buffer> targets;
      std::vector<Buffer> payloads;
      for (int i = 0; i < 8; ++i) {
        targets.emplace_back(payload.size());
        payloads.push_back(payload);
      }
      for (size_t i = 0; i < 8; ++i) {
        const std::string key = "k" + std::to_string(i);
        ASSERT_TRUE(connector->submit(Operation::get, {get_item(key, targets[i])}));
        ASSERT_TRUE(connector->submit(Operation::put, {put_item("n" + key, payloads[i])}));
        ASSERT_TRUE(connector->submit(Operation::exists, {key_item(key)}));
      }
      ASSERT_TRUE(server_->await_fault(id, 1, seconds(10)).ok());
      const auto begun = std::chrono::steady_clock::now();
      connector->close();
      EXPECT_LT(std::chrono::steady_clock::now() - begun, seconds(5));
      await_all(*connector, 24, all);
      for (Buffer& buffer : targets) std::fill(buffer.begin(), buffer.end(), std::byte{0});
    }  // freed, while the server still answers
    const auto is_closed = [](const auto& item) { return !item.second.ok; };
    EXPECT_GT(std::count_if(all.begin(), all.end(), is_closed), 0);
    EXPECT_EQ(connector->pending(), 0U);
    connector->close();
    const Result<uint64_t> late = connector->submit(Operation::exists, {key_item("k0")});
    ASSERT_FALSE(late);
    EXPECT_EQ(late.error().code(), Code::closed);
    EXPECT_TRUE(connector->drain().empty());
    server_->clear_faults();
  }
}

TEST_F(ConnectorFault, SubmitsThatRaceWithCloseAreAllAnswered) {
  for (int round = 0; round < 10; ++round) {
    const std::unique_ptr<Connector> connector = connect(options_);
    std::atomic<uint64_t> accepted{0};
    std::vector<std::thread> threads;
    for (int t = 0; t < 3; ++t) {
      threads.emplace_back([&] {
        while (connector->submit(Operation::exists, {key_item("x")})) ++accepted;
      });
    }
    while (accepted < 30) std::this_thread::yield();
    connector->close();
    for (std::thread& thread : threads) thread.join();
    std::map<uint64_t, Completion> all;
    await_all(*connector, accepted, all);
    EXPECT_EQ(connector->pending(), 0U);
  }
}

TEST_F(ConnectorFault, ASharedStoreSurvivesTheEndOfOneConnector) {
  const std::shared_ptr<Store> store = open_store(options_);
  const std::unique_ptr<Connector> first = *Connector::create(store);
  const std::unique_ptr<Connector> second = *Connector::create(store);
  put(*first, "k", random_bytes(100, 1));
  first->close();
  EXPECT_EQ(text_of(complete(*second, Operation::exists, {key_item("k")}).bits), "1");
}

TEST_F(ConnectorFault, AForkedChildIsToldSo) {
#if defined(__SANITIZE_THREAD__)
  GTEST_SKIP() << "ThreadSanitizer does not support it";
#endif
  const std::unique_ptr<Connector> connector = connect(options_);
  const pid_t child = ::fork();
  if (child == 0) {
    const Result<uint64_t> id = connector->submit(Operation::exists, {key_item("k")});
    ::_exit(!id && id.error().code() == Code::closed ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  EXPECT_TRUE(complete(*connector, Operation::exists, {key_item("k")}).ok);
}

/// Duplicates the sockets of this process that are connected to `port`.
std::vector<UniqueFd> copies_of_sockets_to(uint16_t port) {
  std::vector<UniqueFd> copies;
  for (const auto& entry : std::filesystem::directory_iterator("/proc/self/fd")) {
    const int fd = std::stoi(entry.path().filename().string());
    sockaddr_in peer{};
    socklen_t length = sizeof peer;
    if (::getpeername(fd, reinterpret_cast<sockaddr*>(&peer), &length) != 0) continue;
    // Not dup(): for the thread sanitizer that is a use of the descriptor by this thread.
    if (ntohs(peer.sin_port) == port) copies.emplace_back(::fcntl(fd, F_DUPFD_CLOEXEC, 0));
  }
  return copies;
}

// A connection that failed was closed and freed, but epoll went on to name it as long as a child
// that was forked meanwhile, and had not called exec() yet, held its socket.
TEST_F(ConnectorFault, SocketsThatAnotherProcessStillHoldsAreForgotten) {
  const std::unique_ptr<Connector> connector = connect(options_);
  put(*connector, "k", random_bytes(3 * kSegment, 1));
  const auto colon = options_.hosts.rfind(':');
  const auto port = static_cast<uint16_t>(std::stoi(options_.hosts.substr(colon + 1)));
  const std::vector<UniqueFd> copies = copies_of_sockets_to(port);  // as a child has them
  ASSERT_FALSE(copies.empty());
  ASSERT_TRUE(server_->stop_node(0).ok());
  for (int i = 0; i < 20; ++i) complete(*connector, Operation::exists, {key_item("k")});
  ASSERT_TRUE(server_->start_node(0).ok());
  const auto deadline = std::chrono::steady_clock::now() + seconds(30);
  Completion completion;
  do {
    completion = complete(*connector, Operation::put, {put_item("k", random_bytes(100, 2))});
  } while (!completion.ok && std::chrono::steady_clock::now() < deadline);
  EXPECT_TRUE(completion.ok) << completion.error;
}

// One record never answers; everything else in the batch does, and the batch ends in time.
class HangingKey : public ConnectorFault, public ::testing::WithParamInterface<Operation> {};

TEST_P(HangingKey, CostsOnlyItself) {
  const Operation operation = GetParam();
  const std::unique_ptr<Connector> connector = connect(options_);
  constexpr size_t kKeys = 40;
  constexpr size_t kHanging = 17;
  std::vector<Buffer> payloads;
  for (size_t i = 0; i < kKeys; ++i) payloads.push_back(random_bytes(kSegment / 2, i));
  const auto key = [](size_t i) { return "key" + std::to_string(i); };
  if (operation == Operation::get) {
    for (size_t i = 0; i < kKeys; ++i) put(*connector, key(i), payloads[i]);
  }
  Fault fault;
  fault.action = FaultAction::drop;
  fault.kinds = devserver::mask_of(RequestKind::get, RequestKind::put, RequestKind::remove);
  fault.digests = {wire::compute_digest(options_.set_name, key(kHanging) + "|m")};
  server_->add_fault(fault);
  std::vector<Buffer> targets(kKeys, Buffer(kSegment / 2));
  std::vector<Item> items;
  for (size_t i = 0; i < kKeys; ++i) {
    items.push_back(operation == Operation::get ? get_item(key(i), targets[i])
                                                : put_item(key(i), payloads[i]));
  }
  const auto begun = std::chrono::steady_clock::now();
  const Completion completion = complete(*connector, operation, std::move(items));
  const auto took = std::chrono::steady_clock::now() - begun;
  // A store takes its meta record away again, which has half a second of its own.
  EXPECT_LT(took, options_.read_timeout + milliseconds(1000 * kSlowness));
  std::string expected(kKeys, '1');
  expected[kHanging] = '0';
  EXPECT_EQ(text_of(completion.bits), expected) << completion.error;
  EXPECT_FALSE(completion.ok);
  for (size_t i = 0; operation == Operation::get && i < kKeys; ++i) {
    EXPECT_TRUE(i == kHanging || targets[i] == payloads[i]) << i;
  }
}

INSTANTIATE_TEST_SUITE_P(All, HangingKey, ::testing::Values(Operation::get, Operation::put),
                         [](const auto& test) {
                           return test.param == Operation::get ? "get" : "put";
                         });

TEST_F(ConnectorFault, ASegmentThatIsNeverTouchedCostsItsObjectAlone) {
  options_.batch_timeout = milliseconds(400 * kSlowness);
  const std::unique_ptr<Connector> connector = connect(options_);
  put(*connector, "sick", random_bytes(3 * kSegment, 1));
  put(*connector, "well", random_bytes(2 * kSegment, 2));
  Fault fault;
  fault.kinds = devserver::mask_of(RequestKind::batch_row);
  fault.digests = {wire::compute_digest(options_.set_name, store::segment_user_key("sick", 1))};
  fault.action = FaultAction::result_code;
  fault.code = wire::result::kTimeout;  // asked for again and again
  server_->add_fault(fault);
  ASSERT_TRUE(server_->set_latency(0, milliseconds(60)).ok());  // so that a step takes its time
  for (int i = 0; i < 8; ++i) {
    const Completion completion =
        complete(*connector, Operation::touch, {key_item("well"), key_item("sick")});
    EXPECT_EQ(text_of(completion.bits), "10") << completion.error;
  }
}

TEST_F(ConnectorFault, ManySubmitsAreEachAnsweredOnce) {
  const std::unique_ptr<Connector> connector = connect(options_);
  put(*connector, "k", random_bytes(10, 1));
  constexpr size_t kSubmits = 100000 / (kSlowness * kSlowness);
  std::map<uint64_t, Completion> all;
  std::set<uint64_t> ids;
  size_t hits = 0;
  std::string error;
  for (size_t i = 0; i < kSubmits; ++i) {
    const Result<uint64_t> id = connector->submit(Operation::exists, {key_item("k")});
    ASSERT_TRUE(id) << id.error().message();
    EXPECT_TRUE(ids.insert(*id).second);
    // As many as LMCache would never have: the answer must come all the same.
    while (connector->pending() > 500) await_all(*connector, all.size() + 1, all);
  }
  await_all(*connector, kSubmits, all);
  EXPECT_EQ(all.size(), kSubmits);
  for (const auto& [id, completion] : all) {
    EXPECT_EQ(ids.count(id), 1U);
    hits += completion.ok && text_of(completion.bits) == "1" ? 1 : 0;
    if (!completion.ok) error = completion.error;
  }
  EXPECT_EQ(hits, kSubmits) << error;
  EXPECT_EQ(connector->pending(), 0U);
}

size_t open_files() {
  const std::filesystem::directory_iterator files("/proc/self/fd");
  return static_cast<size_t>(std::distance(begin(files), end(files)));
}

size_t resident_bytes() {
  size_t pages = 0, resident = 0;
  std::ifstream("/proc/self/statm") >> pages >> resident;
  return resident * static_cast<size_t>(::sysconf(_SC_PAGESIZE));
}

TEST_F(ConnectorFault, TenThousandFailingLoadsLeaveNothingBehind) {
  const std::unique_ptr<Connector> connector = connect(options_);
  const Buffer payload = random_bytes(2000, 1);
  put(*connector, "there", payload);
  Buffer target(2000);
  const auto load = [&](int count) {
    std::map<uint64_t, Completion> all;
    for (int i = 0; i < count; ++i) {
      std::vector<Item> items = {get_item("absent" + std::to_string(i % 3), target),
                                 get_item("there", target)};
      ASSERT_TRUE(connector->submit(Operation::get, std::move(items)));
      await_all(*connector, all.size() + 1, all);
    }
    for (const auto& [id, completion] : all) EXPECT_EQ(completion.bits[0], 0);
  };
  // Every fourth answer is cut off, and the connection with it.
  Fault fault;
  fault.kinds = devserver::mask_of(RequestKind::get);
  fault.action = FaultAction::close_after_bytes;
  fault.bytes = 30;
  for (uint64_t i = 0; i < 12000; i += 4) {
    fault.skip = i;
    fault.count = 1;
    if (i < 4000) server_->add_fault(fault);
  }
  load(1000);
  server_->clear_faults();
  load(500);
  const size_t files = open_files();
  const size_t bytes = resident_bytes();
  load(10000 / kSlowness);
  EXPECT_LE(open_files(), files + 2);
  // Sanitizers keep freed memory for a while.
  EXPECT_TRUE(kSlowness > 1 || resident_bytes() < bytes + (4 << 20));
  EXPECT_EQ(connector->store()->stats().bytes_in_flight, 0U);
}

TEST(ConnectorMemory, BytesInFlightStayUnderTheBudget) {
  devserver::Options server_options;
  const std::unique_ptr<devserver::DevServer> server = start_server(server_options);
  StoreOptions options = options_for(*server);
  options.max_bytes_in_flight = 16 << 20;
  options.read_timeout = options.write_timeout = seconds(60);
  constexpr size_t kObject = 8 << 20;
  constexpr size_t kObjects = 25;  // 200 MB
  const Buffer payload = random_bytes(kObject, 1);
  {
    const std::unique_ptr<Connector> connector = connect(options);
    std::vector<Item> puts;
    for (size_t i = 0; i < kObjects; ++i) puts.push_back(put_item(std::to_string(i), payload));
    EXPECT_TRUE(complete(*connector, Operation::put, std::move(puts)).ok);
    const StoreStats stats = connector->store()->stats();
    EXPECT_LE(stats.bytes_in_flight_peak, options.max_bytes_in_flight + (1 << 20));
    // Two connections with two segments each, at the very least.
    EXPECT_GT(stats.bytes_in_flight_peak, 3U << 20);
  }
  const std::unique_ptr<Connector> connector = connect(options);
  std::vector<Buffer> targets(kObjects, Buffer(kObject));
  std::vector<Item> gets;
  for (size_t i = 0; i < kObjects; ++i) gets.push_back(get_item(std::to_string(i), targets[i]));
  EXPECT_TRUE(complete(*connector, Operation::get, std::move(gets)).ok);
  for (const Buffer& target : targets) EXPECT_TRUE(target == payload);
  const StoreStats stats = connector->store()->stats();
  EXPECT_LE(stats.bytes_in_flight_peak, options.max_bytes_in_flight + (1 << 20));
  EXPECT_EQ(stats.bytes_in_flight, 0U);
}

}  // namespace
}  // namespace aerokv::testing
