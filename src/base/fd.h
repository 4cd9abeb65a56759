// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <utility>

#include "aerokv/status.h"

namespace aerokv {

/// Owns one file descriptor. Move-only; thread-compatible.
class UniqueFd {
 public:
  UniqueFd() = default;
  explicit UniqueFd(int fd) : fd_(fd) {}
  UniqueFd(UniqueFd&& other) noexcept : fd_(std::exchange(other.fd_, -1)) {}
  UniqueFd& operator=(UniqueFd&& other) noexcept {
    if (this != &other) reset(std::exchange(other.fd_, -1));
    return *this;
  }
  UniqueFd(const UniqueFd&) = delete;
  UniqueFd& operator=(const UniqueFd&) = delete;
  ~UniqueFd() { reset(); }

  [[nodiscard]] int get() const { return fd_; }
  [[nodiscard]] bool is_open() const { return fd_ >= 0; }
  void reset(int fd = -1);

 private:
  int fd_ = -1;
};

/// Turns an errno of a system call into a Status; the only place that does so.
/// `what` names the call and its object ("connect 127.0.0.1:3000").
Status status_from_errno(int error, const std::string& what);

/// An eventfd, non-blocking and close-on-exec, with counter 0.
Result<UniqueFd> make_event_fd();

/// Makes `fd` readable once. Never blocks, safe from any thread; errors are impossible by
/// construction (a full counter is already readable) and ignored.
void signal_event_fd(int fd);

/// Takes the counter of `fd` back to 0.
void clear_event_fd(int fd);

}  // namespace aerokv
