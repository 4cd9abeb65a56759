// SPDX-License-Identifier: Apache-2.0
#include "tests/hostile/proxy.h"

#include <sys/socket.h>

namespace aerokv::testing {
Proxy::Proxy(uint16_t server_port) : server_port_(server_port) {
  acceptor_ = std::thread([this] {
    while (true) {
      UniqueFd client = listener_.accept();
      if (!client.is_open()) return;
      UniqueFd server = connect_to(server_port_);
      if (!server.is_open()) continue;
      const std::scoped_lock lock(mutex_);
      if (stopping_) return;
      const int client_fd = client.get();
      const int server_fd = server.get();
      sockets_.push_back(std::move(client));
      sockets_.push_back(std::move(server));
      threads_.emplace_back([this, client_fd, server_fd] { serve(client_fd, server_fd); });
      threads_.emplace_back([client_fd, server_fd] {
        ByteVector frame;
        while (receive_frame(client_fd, frame) && send_all(server_fd, frame)) {
        }
        ::shutdown(server_fd, SHUT_RDWR);
        ::shutdown(client_fd, SHUT_RDWR);
      });
    }
  });
}

Proxy::~Proxy() {
  stopping_ = true;
  listener_.shut_down();
  acceptor_.join();
  for (const UniqueFd& socket : sockets_) ::shutdown(socket.get(), SHUT_RDWR);
  for (std::thread& thread : threads_) thread.join();
}

void Proxy::set_change(Change change) {
  const std::scoped_lock lock(change_mutex_);
  change_ = std::move(change);
}

void Proxy::serve(int client, int server) {
  ByteVector frame;
  while (receive_frame(server, frame)) {
    {
      const std::scoped_lock lock(change_mutex_);
      if (change_) change_(frame);
    }
    if (!send_all(client, frame)) break;
  }
  ::shutdown(server, SHUT_RDWR);
  ::shutdown(client, SHUT_RDWR);
}

}  // namespace aerokv::testing
