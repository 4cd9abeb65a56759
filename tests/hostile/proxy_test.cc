// SPDX-License-Identifier: Apache-2.0
// Answers of a good server that are changed at random on their way. Nothing wrong is ever loaded,
// nothing hangs, and once the answers are left alone everything works again.
#include "tests/hostile/proxy.h"

#include <random>

#include "tests/fault/world.h"

namespace aerokv::testing {
namespace {

using std::chrono::seconds;

/// Changes some frames at random.
class Mutator {
 public:
  explicit Mutator(uint64_t seed) : random_(seed) {}

  void operator()(ByteVector& frame) {
    if (pick(4) != 0) return;
    // Answers have no number: that a whole one is lost, or comes twice, cannot be seen, and TCP
    // does not do it. Only info messages, which are not lined up, are treated so.
    const bool is_lined_up = frame.size() > 1 && frame[1] == std::byte{3};
    switch (pick(is_lined_up ? 7 : 9)) {
      case 0:  // one bit
        at(frame, frame.size()) ^= std::byte{1} << pick(8);
        break;
      case 1:  // one bit near the front, where the counts and sizes are
        at(frame, 120) ^= std::byte{1} << pick(8);
        break;
      case 2:
        at(frame, 120) = std::byte{pick(2) == 0 ? uint8_t{0} : uint8_t{0xFF}};
        break;
      case 3:
        frame.resize(1 + pick(frame.size()));
        break;
      case 4: {
        ByteVector more(pick(100) + 1);
        for (std::byte& byte : more) byte = static_cast<std::byte>(pick(256));
        frame.insert(frame.begin() + static_cast<std::ptrdiff_t>(pick(frame.size())), more.begin(),
                     more.end());
        break;
      }
      case 5: {
        const size_t from = pick(frame.size());
        const size_t count = std::min(pick(50) + 1, frame.size() - from);
        const auto begin = frame.begin() + static_cast<std::ptrdiff_t>(from);
        frame.erase(begin, begin + static_cast<std::ptrdiff_t>(count));
        break;
      }
      case 6:
        for (int i = 0; i < 16; ++i) at(frame, frame.size()) = static_cast<std::byte>(pick(256));
        break;
      case 7: {
        const ByteVector copy = frame;
        frame.insert(frame.end(), copy.begin(), copy.end());
        break;
      }
      default:
        frame.clear();
        break;
    }
  }

 private:
  size_t pick(size_t count) { return count == 0 ? 0 : random_() % count; }
  std::byte& at(ByteVector& frame, size_t limit) {
    static std::byte nowhere{};
    return frame.empty() ? nowhere : frame[pick(std::min(limit, frame.size()))];
  }

  std::mt19937_64 random_;
};

/// One server, one proxy, one store.
class Round {
 public:
  explicit Round(uint64_t seed) : seed_(seed) {
    const std::string key = "k";
    for (size_t i = 0; i < kKeys; ++i) {
      contents_.push_back(random_bytes(i % 2 == 0 ? 900 : kSegment + 5000 * i, i));
    }
    StoreOptions options = hostile_options(proxy_.host());
    options.connect_timeout = seconds(5);
    options.tend_interval = std::chrono::milliseconds(100);
    // A change may rename the bin of the sums, as if the writer had known none, and another one the
    // payload. That the bin of the CRC-32 is renamed as well does not happen by chance.
    options.enable_crc32 = true;
    store_ = open_store(options);
    await_all_ones([this] { return store_all(); });
  }

  void run_all() {
    proxy_.set_change(Mutator(seed_));
    for (int i = 0; i < 12; ++i) {
      const auto begun = std::chrono::steady_clock::now();
      load_all();
      static_cast<void>(bits_of(run(*store_, Operation::exists, keys())));
      static_cast<void>(bits_of(run(*store_, Operation::touch, keys())));
      if (i % 3 == 1) static_cast<void>(bits_of(run(*store_, Operation::remove, keys())));
      if (i % 3 == 2) static_cast<void>(store_all());
      static_cast<void>(store_->inspect("1"));
      EXPECT_LT(std::chrono::steady_clock::now() - begun, seconds(15 * kSlowness)) << seed_;
    }
    EXPECT_EQ(store_->stats().bytes_in_flight, 0U);
    proxy_.set_change(nullptr);
    await_all_ones([this] { return store_all(); });
    await_all_ones([this] { return load_all(); });
    await_all_ones([this] { return bits_of(run(*store_, Operation::exists, keys())); });
  }

 private:
  static constexpr size_t kKeys = 5;

  template <typename Attempt>
  void await_all_ones(Attempt attempt) {
    const auto deadline = std::chrono::steady_clock::now() + seconds(20);
    std::string bits;
    do {
      bits = attempt();
    } while (bits != std::string(kKeys, '1') && std::chrono::steady_clock::now() < deadline);
    EXPECT_EQ(bits, std::string(kKeys, '1')) << "seed " << seed_;
  }

  std::string store_all() {
    std::vector<Item> items;
    for (size_t i = 0; i < kKeys; ++i) items.push_back(put_item(std::to_string(i), contents_[i]));
    return bits_of(run(*store_, Operation::put, std::move(items)));
  }

  std::string load_all() {
    std::vector<Guarded> targets;
    for (size_t i = 0; i < kKeys; ++i) targets.emplace_back(contents_[i].size());
    std::vector<Item> items;
    for (size_t i = 0; i < kKeys; ++i) items.push_back(get_into(std::to_string(i), targets[i]));
    const auto results = run(*store_, Operation::get, std::move(items));
    for (size_t i = 0; i < kKeys; ++i) {
      EXPECT_TRUE(targets[i].is_intact()) << "seed " << seed_;
      if (results[i].outcome != Outcome::hit) continue;
      EXPECT_EQ(results[i].bytes, contents_[i].size()) << "seed " << seed_;
      EXPECT_TRUE(targets[i].holds(contents_[i])) << "seed " << seed_;
    }
    return bits_of(results);
  }

  static std::vector<Item> keys() {
    std::vector<Item> items;
    for (size_t i = 0; i < kKeys; ++i) items.push_back(key_item(std::to_string(i)));
    return items;
  }

  const uint64_t seed_;
  std::unique_ptr<devserver::DevServer> server_ = start_server(small_record_server());
  Proxy proxy_{server_->endpoints()[0].port};
  std::unique_ptr<Store> store_;
  std::vector<Buffer> contents_;
};

TEST(HostileProxy, ChangedAnswersHarmNothing) {
  const uint64_t seed = std::random_device{}();
  std::printf("seed %llu\n", static_cast<unsigned long long>(seed));
  const size_t before = peak_resident_bytes();
  constexpr uint64_t kRounds = 24;
  std::atomic<uint64_t> next{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([&] {
      for (uint64_t n = next++; n < kRounds; n = next++) Round(seed + n).run_all();
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_LT(peak_resident_bytes(), before + (size_t{500} << 20) * kSlowness);
}

TEST(HostileProxy, ChangedAnswersToAStartAreSurvived) {
  const uint64_t seed = std::random_device{}();
  std::printf("seed %llu\n", static_cast<unsigned long long>(seed));
  const std::unique_ptr<devserver::DevServer> server = start_server(small_record_server());
  std::atomic<uint64_t> next{0};
  std::atomic<uint64_t> opened{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([&] {
      for (uint64_t n = next++; n < 120; n = next++) {
        Proxy proxy(server->endpoints()[0].port);
        proxy.set_change(Mutator(seed + n));
        const auto begun = std::chrono::steady_clock::now();
        StoreOptions options = hostile_options(proxy.host());
        options.connect_timeout = std::chrono::milliseconds(150 * kSlowness);
        const Result<std::unique_ptr<Store>> store = Store::open(options);
        EXPECT_LT(std::chrono::steady_clock::now() - begun, seconds(8 * kSlowness)) << seed + n;
        opened += store ? 1 : 0;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_GT(opened, 0U);
}

}  // namespace
}  // namespace aerokv::testing
