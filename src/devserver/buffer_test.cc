// SPDX-License-Identifier: Apache-2.0
#include "devserver/buffer.h"

#include <gtest/gtest.h>

#include <cstring>
#include <random>
#include <thread>

namespace aerokv::devserver {
namespace {

void fill(const BufferRef& buffer, int value) {
  std::memset(buffer.data(), value, buffer.capacity());
}

bool holds(const BufferRef& buffer, int value) {
  for (size_t i = 0; i < buffer.capacity(); ++i) {
    if (buffer.data()[i] != static_cast<std::byte>(value)) return false;
  }
  return true;
}

TEST(BufferPool, GivesAtLeastWhatWasAskedFor) {
  BufferPool pool(64U << 20, Arena::kChunkBytes);
  for (const size_t size : {size_t{1}, size_t{4095}, size_t{4096}, size_t{100'000}, size_t{1} << 20,
                            size_t{17} << 20, size_t{130} << 20}) {
    const BufferRef buffer = pool.allocate(size);
    ASSERT_TRUE(buffer);
    EXPECT_GE(buffer.capacity(), size);
    buffer.data()[0] = std::byte{1};
    buffer.data()[buffer.capacity() - 1] = std::byte{2};
  }
}

TEST(BufferPool, BuffersDoNotOverlap) {
  const unsigned seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  // So little idle memory that buffers go cold and come back while others live.
  BufferPool pool(1U << 20, Arena::kChunkBytes);
  std::vector<std::pair<BufferRef, int>> live;
  for (int step = 0; step < 600; ++step) {
    if (live.size() > 20 || (!live.empty() && random() % 3 == 0)) {
      const size_t victim = random() % live.size();
      ASSERT_TRUE(holds(live[victim].first, live[victim].second));
      live.erase(live.begin() + static_cast<std::ptrdiff_t>(victim));
    } else {
      BufferRef buffer = pool.allocate(1 + random() % 300'000);
      ASSERT_TRUE(buffer);
      const int value = step % 251;
      fill(buffer, value);
      live.emplace_back(std::move(buffer), value);
    }
    ASSERT_LE(pool.idle_bytes(), 1U << 20);
  }
  for (const auto& [buffer, value] : live) EXPECT_TRUE(holds(buffer, value));
}

TEST(BufferPool, UsesReturnedMemoryAgain) {
  BufferPool pool(64U << 20);
  BufferRef first = pool.allocate(1U << 20);
  const std::byte* const at = first.data();
  first = {};
  EXPECT_GT(pool.idle_bytes(), 0U);
  EXPECT_EQ(pool.allocate(1U << 20).data(), at);
}

TEST(BufferPool, ManyThreadsTakeAndReturn) {
  BufferPool pool(8U << 20, 2 * Arena::kChunkBytes);
  std::vector<std::thread> threads;
  std::atomic<int> damaged{0};
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      std::mt19937 random(static_cast<unsigned>(t));
      std::vector<BufferRef> held;
      for (int i = 0; i < 300; ++i) {
        BufferRef buffer = pool.allocate(1 + random() % 600'000);
        fill(buffer, t);
        held.push_back(std::move(buffer));
        if (held.size() < 8) continue;
        const BufferRef other = held.front();
        if (!holds(other, t)) ++damaged;
        held.erase(held.begin());
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(damaged.load(), 0);
}

TEST(Arena, EndsWhileItTouches) {
  for (int i = 0; i < 20; ++i) {
    Arena arena(8 * Arena::kChunkBytes);
    ASSERT_NE(arena.take(4096), nullptr);
  }
}

}  // namespace
}  // namespace aerokv::devserver
