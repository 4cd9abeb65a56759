// SPDX-License-Identifier: Apache-2.0
#include "serde/worker_pool.h"

#include <gtest/gtest.h>

#include <atomic>

#include "serde/serdes_testing.h"

namespace aerokv::serde {
namespace {

class Units final : public PoolTask {
 public:
  Units(size_t units, std::function<void(size_t, Parallel&)> body)
      : PoolTask(units), body_(std::move(body)) {}
  void run(size_t unit, Parallel& parallel) noexcept override { body_(unit, parallel); }
  void cancel(size_t first) noexcept override { cancelled_from_ = first; }
  void finish() noexcept override { done_.open(); }
  void await() { done_.pass(); }
  [[nodiscard]] size_t cancelled_from() const { return cancelled_from_; }

 private:
  std::function<void(size_t, Parallel&)> body_;
  size_t cancelled_from_ = SIZE_MAX;
  Gate done_;
};

TEST(WorkerPool, EveryPartOfNestedRunsIsDoneOnce) {
  for (const size_t workers : {1U, 2U, 8U}) {
    auto pool = *WorkerPool::start(workers);
    std::vector<std::atomic<int>> hits(4 * 7 * 5);
    const auto task = std::make_shared<Units>(4, [&](size_t unit, Parallel& parallel) {
      parallel.run(7, [&, unit](size_t part) {
        parallel.run(5, [&, unit, part](size_t leaf) { ++hits[(unit * 7 + part) * 5 + leaf]; });
      });
    });
    ASSERT_TRUE(pool->post(task).ok());
    task->await();
    for (const auto& hit : hits) EXPECT_EQ(hit.load(), 1);
  }
}

TEST(WorkerPool, IdleThreadsHelpWithALargeUnit) {
  auto pool = *WorkerPool::start(3);
  Gate all;
  // Each of three parts waits for the two others: only three threads at once can end this.
  const auto task = std::make_shared<Units>(
      1, [&](size_t, Parallel& parallel) { parallel.run(3, [&](size_t) { all.pass(); }); });
  ASSERT_TRUE(pool->post(task).ok());
  all.await_arrivals(3);
  all.open();
  task->await();
}

TEST(WorkerPool, ALargeUnitNeedsNoHelpers) {
  auto pool = *WorkerPool::start(2);
  Gate gate;
  const auto blocker = std::make_shared<Units>(1, [&](size_t, Parallel&) { gate.pass(); });
  ASSERT_TRUE(pool->post(blocker).ok());
  gate.await_arrivals(1);
  std::atomic<size_t> parts{0};
  const auto task = std::make_shared<Units>(
      1, [&](size_t, Parallel& parallel) { parallel.run(100, [&](size_t) { ++parts; }); });
  ASSERT_TRUE(pool->post(task).ok());
  task->await();
  EXPECT_EQ(parts.load(), 100U);
  gate.open();
  blocker->await();
}

TEST(WorkerPool, UnitsOfOneTaskRunBesideEachOther) {
  auto pool = *WorkerPool::start(4);
  Gate gate;
  const auto task = std::make_shared<Units>(4, [&](size_t, Parallel&) { gate.pass(); });
  ASSERT_TRUE(pool->post(task).ok());
  gate.await_arrivals(4);
  gate.open();
  task->await();
}

TEST(WorkerPool, CloseTellsWhatNeverRan) {
  auto pool = *WorkerPool::start(1);
  Gate gate;
  const auto half = std::make_shared<Units>(5, [&](size_t, Parallel&) { gate.pass(); });
  const auto whole = std::make_shared<Units>(2, [](size_t, Parallel&) { FAIL(); });
  ASSERT_TRUE(pool->post(half).ok());
  ASSERT_TRUE(pool->post(whole).ok());
  gate.await_arrivals(1);
  std::thread closer([&] { pool->close(); });
  whole->await();
  gate.open();
  pool->close();
  closer.join();
  half->await();
  EXPECT_EQ(half->cancelled_from(), 1U);
  EXPECT_EQ(whole->cancelled_from(), 0U);
  EXPECT_EQ(pool->post(whole).code(), Code::closed);
}

}  // namespace
}  // namespace aerokv::serde
