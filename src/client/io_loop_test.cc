// SPDX-License-Identifier: Apache-2.0
#include "client/io_loop.h"

#include <gtest/gtest.h>

#include <atomic>
#include <future>
#include <thread>

namespace aerokv::client {
namespace {

class IoLoopTest : public ::testing::Test {
 protected:
  void SetUp() override { ASSERT_TRUE(loop_.start().ok()); }

  ClientOptions options_;
  ClientStats stats_;
  IoLoop loop_{options_, stats_, [] {}};
};

TEST_F(IoLoopTest, NothingOfAnOwnerRunsAfterItsRelease) {
  const int owner = 0;
  for (int round = 0; round < 20; ++round) {
    std::promise<void> may_go_on;
    std::atomic<bool> released{false}, ran{false}, ran_late{false};
    loop_.post(nullptr, [&] { may_go_on.get_future().wait(); });
    // Due when the thread looks at its tasks next, at the same time as the release.
    const TimePoint due = SteadyClock::now() + milliseconds(2);
    loop_.post(
        &owner,
        [&] {
          ran = true;
          ran_late = released.load();
        },
        due);
    std::thread releasing([&] {
      loop_.release(&owner);
      released = true;
    });
    while (SteadyClock::now() < due) std::this_thread::yield();
    may_go_on.set_value();
    releasing.join();
    EXPECT_TRUE(ran) << "it still waits, or runs after its owner has gone";
    std::promise<void> turned;
    loop_.post(nullptr, [&] { turned.set_value(); });
    turned.get_future().wait();
    EXPECT_FALSE(ran_late);
  }
}

TEST_F(IoLoopTest, TasksRunInOrderAndThoseTheyPostLater) {
  std::string order;
  std::promise<void> done;
  loop_.post(nullptr, [&] {
    loop_.post(nullptr, [&] {
      order += 'c';
      done.set_value();
    });
    order += 'a';
  });
  loop_.post(nullptr, [&] { order += 'b'; });
  done.get_future().wait();
  EXPECT_EQ(order.front(), 'a');
  EXPECT_EQ(order.find('c'), order.size() - 1);
}

}  // namespace
}  // namespace aerokv::client
