// SPDX-License-Identifier: Apache-2.0
#include "base/fd.h"

#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <utility>

namespace aerokv {
namespace {

bool is_open(int fd) {
  return ::fcntl(fd, F_GETFD) >= 0;
}

bool is_readable(int fd) {
  pollfd entry{fd, POLLIN, 0};
  return ::poll(&entry, 1, 0) == 1 && (entry.revents & POLLIN) != 0;
}

TEST(UniqueFd, ClosesWhatItOwnsOnce) {
  const int raw = ::eventfd(0, EFD_CLOEXEC);
  ASSERT_GE(raw, 0);
  {
    UniqueFd first(raw);
    EXPECT_TRUE(first.is_open());
    UniqueFd second(std::move(first));
    EXPECT_FALSE(
        first.is_open());  // NOLINT(bugprone-use-after-move): the state after a move is promised
    EXPECT_EQ(second.get(), raw);
    UniqueFd third;
    third = std::move(second);
    EXPECT_TRUE(is_open(raw));
    UniqueFd& alias = third;
    third = std::move(alias);  // must not close
    EXPECT_TRUE(is_open(raw));
  }
  EXPECT_FALSE(is_open(raw));
}

TEST(UniqueFd, AssignmentAndResetCloseTheOldOne) {
  const int first = ::eventfd(0, EFD_CLOEXEC);
  const int second = ::eventfd(0, EFD_CLOEXEC);
  UniqueFd fd(first);
  fd = UniqueFd(second);
  EXPECT_FALSE(is_open(first));
  EXPECT_TRUE(is_open(second));
  fd.reset();
  EXPECT_FALSE(is_open(second));
  fd.reset();
  EXPECT_EQ(fd.get(), -1);
}

TEST(EventFd, SignalsAddUpAndClear) {
  const auto fd = make_event_fd();
  ASSERT_TRUE(fd) << fd.error().message();
  EXPECT_NE(::fcntl(fd->get(), F_GETFL) & O_NONBLOCK, 0);
  EXPECT_NE(::fcntl(fd->get(), F_GETFD) & FD_CLOEXEC, 0);
  EXPECT_FALSE(is_readable(fd->get()));
  clear_event_fd(fd->get());  // nothing to clear: returns at once
  for (int i = 0; i < 10; ++i) signal_event_fd(fd->get());
  EXPECT_TRUE(is_readable(fd->get()));
  EXPECT_TRUE(is_readable(fd->get()));  // level, not edge
  clear_event_fd(fd->get());
  EXPECT_FALSE(is_readable(fd->get()));
}

TEST(EventFd, FullCounterDoesNotBlock) {
  const auto fd = make_event_fd();
  ASSERT_TRUE(fd);
  ASSERT_EQ(::eventfd_write(fd->get(), 0xFFFFFFFFFFFFFFFEULL), 0);
  signal_event_fd(fd->get());
  EXPECT_TRUE(is_readable(fd->get()));
}

TEST(Errno, BecomesACode) {
  EXPECT_EQ(status_from_errno(ECONNREFUSED, "x").code(), Code::unavailable);
  EXPECT_EQ(status_from_errno(ECONNRESET, "x").code(), Code::unavailable);
  EXPECT_EQ(status_from_errno(ETIMEDOUT, "x").code(), Code::timeout);
  EXPECT_EQ(status_from_errno(EMFILE, "x").code(), Code::overloaded);
  EXPECT_EQ(status_from_errno(ENOMEM, "x").code(), Code::overloaded);
  EXPECT_EQ(status_from_errno(EBADF, "x").code(), Code::internal);
  const Status status = status_from_errno(ECONNREFUSED, "connect 127.0.0.1:3000");
  EXPECT_EQ(status.message().find("connect 127.0.0.1:3000: "), 0U);
}

}  // namespace
}  // namespace aerokv
