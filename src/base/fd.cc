// SPDX-License-Identifier: Apache-2.0
#include "base/fd.h"

#include <sys/eventfd.h>
#include <unistd.h>

#include <cerrno>
#include <cstdint>
#include <system_error>

namespace aerokv {

void UniqueFd::reset(int fd) {
  if (fd_ >= 0) ::close(fd_);
  fd_ = fd;
}

Status status_from_errno(int error, const std::string& what) {
  Code code = Code::unavailable;
  if (error == ETIMEDOUT) code = Code::timeout;
  if (error == ENOMEM || error == EMFILE || error == ENFILE) code = Code::overloaded;
  if (error == EINVAL || error == EBADF || error == EFAULT) code = Code::internal;
  return {code, what + ": " + std::generic_category().message(error)};
}

Result<UniqueFd> make_event_fd() {
  UniqueFd fd(::eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC));
  if (!fd.is_open()) return status_from_errno(errno, "eventfd");
  return fd;
}

void signal_event_fd(int fd) {
  const uint64_t one = 1;
  while (::write(fd, &one, sizeof one) < 0 && errno == EINTR) {
  }
}

void clear_event_fd(int fd) {
  uint64_t count = 0;
  while (::read(fd, &count, sizeof count) < 0 && errno == EINTR) {
  }
}

}  // namespace aerokv
