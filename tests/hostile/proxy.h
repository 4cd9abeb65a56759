// SPDX-License-Identifier: Apache-2.0
// Stands between a client and a development server and changes what the server says.
#pragma once

#include "tests/hostile/scripted_node.h"

namespace aerokv::testing {

class Proxy {
 public:
  /// Gets each frame of the server; what it makes of it is sent in its place.
  using Change = std::function<void(ByteVector& frame)>;

  explicit Proxy(uint16_t server_port);
  ~Proxy();

  [[nodiscard]] std::string host() const { return listener_.host(); }
  /// Null: everything passes as it is. Called by one thread at a time.
  void set_change(Change change);

 private:
  void serve(int client, int server);

  const uint16_t server_port_;
  Listener listener_;
  std::mutex mutex_;
  std::list<UniqueFd> sockets_;     // guarded by mutex_
  std::list<std::thread> threads_;  // guarded by mutex_
  std::mutex change_mutex_;
  Change change_;  // guarded by change_mutex_
  std::atomic<bool> stopping_{false};
  std::thread acceptor_;
};

}  // namespace aerokv::testing
