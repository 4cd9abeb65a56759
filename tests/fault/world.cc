// SPDX-License-Identifier: Apache-2.0
#include "tests/fault/world.h"

#include <poll.h>
#include <sys/resource.h>

#include <algorithm>
#include <set>
#include <thread>

#include "store/keys.h"

namespace aerokv::testing {

devserver::Options small_record_server(int nodes) {
  devserver::Options options;
  options.nodes = nodes;
  options.threads = 1;
  options.namespaces[0].max_record_bytes = 128 << 10;
  return options;
}

StoreOptions impatient_options(const devserver::DevServer& server) {
  StoreOptions options = options_for(server);
  options.num_io_threads = 1;
  options.request_timeout = kRequestTimeout;
  options.write_request_timeout = kRequestTimeout;
  options.read_timeout = 8 * kRequestTimeout;
  options.write_timeout = 6 * kRequestTimeout;
  options.connect_timeout = std::chrono::milliseconds(1000 * kSlowness);
  return options;
}

bool Guarded::is_intact() const {
  const auto is_canary = [](std::byte b) { return b == kCanary; };
  const auto body = bytes_.begin() + kGuard;
  return std::all_of(bytes_.begin(), body, is_canary) &&
         std::all_of(body + static_cast<std::ptrdiff_t>(size_), bytes_.end(), is_canary);
}

bool Guarded::holds(Bytes payload) const {
  return payload.size() <= size_ &&
         std::equal(payload.begin(), payload.end(), bytes_.begin() + kGuard);
}

Item get_into(std::string key, Guarded& buffer) {
  Item item;
  item.key = std::move(key);
  item.target = buffer.target();
  return item;
}

Completion await_completion(Connector& connector, uint64_t id, std::chrono::milliseconds timeout,
                            std::map<uint64_t, Completion>* others) {
  const auto deadline = std::chrono::steady_clock::now() + timeout;
  while (true) {
    std::optional<Completion> found;
    for (Completion& completion : connector.drain()) {
      if (completion.id == id) {
        EXPECT_FALSE(found) << "two completions of batch " << id;
        found = std::move(completion);
      } else if (others != nullptr) {
        EXPECT_TRUE(others->emplace(completion.id, completion).second);
      } else {
        ADD_FAILURE() << "completion of batch " << completion.id << ", expected only " << id;
      }
    }
    if (found) return *std::move(found);
    const auto left =
        std::chrono::ceil<std::chrono::milliseconds>(deadline - std::chrono::steady_clock::now());
    if (left.count() <= 0) {
      ADD_FAILURE() << "batch " << id << ": no completion within " << timeout.count() << " ms";
      return {};
    }
    pollfd fd{connector.event_fd(), POLLIN, 0};
    ::poll(&fd, 1, static_cast<int>(left.count()));
  }
}

Completion complete(Connector& connector, Operation operation, std::vector<Item> items) {
  const size_t count = items.size();
  const Result<uint64_t> id = connector.submit(operation, std::move(items));
  if (!id) {
    ADD_FAILURE() << id.error().message();
    return {};
  }
  Completion completion = await_completion(connector, *id, std::chrono::seconds(20 * kSlowness));
  EXPECT_EQ(completion.bits.size(), count);
  completion.bits.resize(count);
  EXPECT_EQ(completion.ok, completion.error.empty());
  EXPECT_EQ(connector.pending(), 0U);
  EXPECT_TRUE(connector.drain().empty());
  return completion;
}

std::string text_of(const std::vector<uint8_t>& bits) {
  std::string text;
  for (const uint8_t bit : bits) text += static_cast<char>('0' + bit);
  return text;
}

size_t peak_resident_bytes() {
  rusage usage{};
  ::getrusage(RUSAGE_SELF, &usage);
  return static_cast<size_t>(usage.ru_maxrss) * 1024;
}

LagMeter& LagMeter::instance() {
  static LagMeter meter;
  return meter;
}

LagMeter::LagMeter() {
  thread_ = std::thread([this] {
    constexpr auto kStep = std::chrono::milliseconds(2);
    auto last = std::chrono::steady_clock::now();
    while (!stopping_) {
      std::this_thread::sleep_for(kStep);
      const auto now = std::chrono::steady_clock::now();
      if (now - last > kStep + kRequestTimeout / 4) last_lag_ = now.time_since_epoch().count();
      last = now;
    }
  });
}

LagMeter::~LagMeter() {
  stopping_ = true;
  thread_.join();
}

bool LagMeter::was_calm_since(std::chrono::steady_clock::time_point begin) const {
  return last_lag_ < begin.time_since_epoch().count();
}

const char* sight_name(Sight sight) {
  constexpr const char* kNames[] = {"a miss", "the first content", "the second content",
                                    "WRONG BYTES", "an error"};
  return kNames[static_cast<size_t>(sight)];
}

namespace {

std::unique_ptr<Connector> connector_for(const StoreOptions& options) {
  Result<std::unique_ptr<Connector>> connector = Connector::create(open_store(options));
  if (!connector) {
    ADD_FAILURE() << connector.error().message();
    std::abort();
  }
  return *std::move(connector);
}

}  // namespace

World::World() : server_(start_server(small_record_server())) {
  StoreOptions options = impatient_options(*server_);
  observer_ = open_store(options);
  writer_ = connector_for(options);
  options.verify = Verify::full;
  verifier_ = connector_for(options);
}

std::vector<wire::Digest> World::digests(const std::string& key, size_t segments) const {
  const std::string& set = observer_->options().set_name;
  std::vector<wire::Digest> all = {wire::compute_digest(set, store::meta_user_key(key))};
  for (uint32_t i = 0; i < segments; ++i) {
    all.push_back(wire::compute_digest(set, store::segment_user_key(key, i)));
  }
  return all;
}

Sight World::look(const std::string& key, const Buffer& first, const Buffer& second) {
  Guarded buffer(std::max(first.size(), second.size()));
  const std::vector<ItemResult> results = run(*observer_, Operation::get, {get_into(key, buffer)});
  EXPECT_TRUE(buffer.is_intact());
  if (results[0].outcome == Outcome::miss) return Sight::miss;
  if (results[0].outcome == Outcome::error) return Sight::failed;
  const auto is = [&](const Buffer& content) {
    return results[0].bytes == content.size() && buffer.holds(content);
  };
  if (!second.empty() && is(second)) return Sight::second;
  return !first.empty() && is(first) ? Sight::first : Sight::wrong;
}

void World::await_quiet(bool trusted) {
  // A connection that was just opened, or one that a tend has yet to open again, hides one that was
  // given up: what is seen has to last for a moment, for longer where some seem to be missing.
  constexpr int kSteady = 3, kSteadyWithout = 60;
  const auto deadline = std::chrono::steady_clock::now() + std::chrono::seconds(10);
  for (int steady = 0; std::chrono::steady_clock::now() < deadline;) {
    int64_t open = 0;
    bool any_suspect = false;
    std::set<uint64_t> engines;
    for (const Store* store : {&writer_store(), &*verifier_->store(), &*observer_}) {
      const StoreStats stats = store->stats();
      if (!engines.insert(stats.engine).second) continue;  // stores share it
      ++open;                                              // of the tend
      for (const StoreStats::NodeStats& node : stats.nodes) {
        open += node.connections;
        any_suspect = any_suspect || node.suspect;
      }
    }
    const auto now = static_cast<int64_t>(server_->stats(0)->connections_now);
    steady = now > open || (trusted && any_suspect) ? 0 : steady + 1;
    if (steady >= (now == open ? kSteady : kSteadyWithout)) return;
    // Nothing announces the end of a connection on the other side.
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  ADD_FAILURE() << "the server did not come to rest";
}

}  // namespace aerokv::testing
