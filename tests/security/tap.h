// SPDX-License-Identifier: Apache-2.0
// Stands between a client and a server and harms the bytes of the server, without knowing what they
// mean: what a line, or somebody on it, can do to TLS.
#pragma once

#include "tests/hostile/scripted_node.h"

namespace aerokv::testing {

class Tap {
 public:
  /// What happens to the server's bytes of each connection, counted from its first.
  struct Plan {
    enum class Harm : uint8_t {
      none,
      cut,     ///< after `at` bytes the connection is closed
      silent,  ///< after `at` bytes nothing more comes
      flip,    ///< one bit of the byte at `at`
    };
    Harm harm = Harm::none;
    uint64_t at = 0;
  };

  explicit Tap(uint16_t server_port);
  ~Tap();
  Tap(const Tap&) = delete;
  Tap& operator=(const Tap&) = delete;

  [[nodiscard]] uint16_t port() const { return listener_.port(); }
  [[nodiscard]] std::string host() const { return listener_.host(); }
  /// For connections that are made from now on.
  void set_plan(const Plan& plan);
  /// Bytes that the server has sent on the connection that ended last.
  [[nodiscard]] uint64_t last_bytes() const { return last_bytes_; }

 private:
  void serve(int client, int server, Plan plan);

  const uint16_t server_port_;
  Listener listener_;
  std::mutex mutex_;
  Plan plan_;                       // guarded by mutex_
  std::list<UniqueFd> sockets_;     // guarded by mutex_
  std::list<std::thread> threads_;  // guarded by mutex_
  std::atomic<uint64_t> last_bytes_{0};
  std::atomic<bool> stopping_{false};
  std::thread acceptor_;
};

}  // namespace aerokv::testing
