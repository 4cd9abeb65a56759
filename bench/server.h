// SPDX-License-Identifier: Apache-2.0
// The development server as a process of its own, with a fault plan that is set over stdin.
#pragma once

#include <string>

#include "aerokv/status.h"
#include "process.h"

namespace aerokv::bench {

/// Prints "ready HOSTS"; commands on stdin: "delay US", "latency US", "clear". Serves until stdin
/// ends. `link_bytes_per_second` is what its link carries, 0 = no limit.
int run_server(uint64_t link_bytes_per_second);

/// Prints "ready HOST:PORT HOST:PORT", the second address for TLS. Serves until stdin ends.
int run_tls_server(const std::string& certificate, const std::string& key);

/// The server that a benchmark runs against.
class Server {
 public:
  /// Starts this program again as a server.
  static Result<Server> start(uint64_t link_bytes_per_second = 0);
  /// Uses servers that run already; they have no fault plan.
  static Server at(std::string hosts);

  [[nodiscard]] const std::string& hosts() const { return hosts_; }
  [[nodiscard]] bool has_faults() const { return child_ != nullptr; }
  Status command(const std::string& line) { return child_->command(line); }
  /// CPU seconds of the server so far; 0 if it was not started here.
  [[nodiscard]] double cpu_seconds() const {
    return child_ ? process_cpu_seconds(child_->pid()) : 0;
  }

 private:
  std::string hosts_;
  std::unique_ptr<Child> child_;
};

}  // namespace aerokv::bench
