// SPDX-License-Identifier: Apache-2.0
// This process and its children: what they use, and how they are told what to do.
#pragma once

#include <sys/types.h>

#include <atomic>
#include <cstdint>
#include <memory>
#include <string>
#include <thread>
#include <vector>

#include "aerokv/status.h"
#include "base/fd.h"

namespace aerokv::bench {

/// User and system seconds of all threads of this process, children not included.
double process_cpu_seconds();

/// The same of another process that runs now; 0 if it cannot be read.
double process_cpu_seconds(pid_t pid);

/// Resident bytes of a process, or of this one; 0 if they cannot be read.
uint64_t resident_bytes(pid_t pid);
uint64_t resident_bytes();

/// Watches the resident bytes of this process from construction to stop().
class ResidentPeak {
 public:
  ResidentPeak();
  ~ResidentPeak() { stop(); }
  ResidentPeak(const ResidentPeak&) = delete;
  ResidentPeak& operator=(const ResidentPeak&) = delete;

  /// Ends the watch; returns by how many bytes the peak was above the first value.
  uint64_t stop();

 private:
  const uint64_t first_;
  std::atomic<uint64_t> peak_;
  std::atomic<bool> stopping_{false};
  std::thread thread_;
};

/// Another process that prints lines on stdout and takes commands on stdin. Ends with its stdin.
class Child {
 public:
  /// `arguments[0]` is the program, or empty for this program itself.
  static Result<std::unique_ptr<Child>> spawn(std::vector<std::string> arguments);

  ~Child();
  Child(const Child&) = delete;
  Child& operator=(const Child&) = delete;

  /// One line without its end. Errors: closed.
  Result<std::string> read_line();
  /// Sends one line and expects the answer "ok".
  Status command(const std::string& line);

  [[nodiscard]] pid_t pid() const { return pid_; }

 private:
  Child(pid_t pid, UniqueFd in, UniqueFd out);

  pid_t pid_;
  UniqueFd in_;   // its stdin
  UniqueFd out_;  // its stdout
  std::string buffered_;
};

/// Spawns a child whose first line is "ready ADDRESS", and returns the address with it.
struct ReadyChild {
  std::unique_ptr<Child> child;
  std::string address;
};
Result<ReadyChild> spawn_ready(std::vector<std::string> arguments);

}  // namespace aerokv::bench
