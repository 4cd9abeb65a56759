// SPDX-License-Identifier: Apache-2.0
#include "tests/security/tap.h"

#include <poll.h>
#include <sys/socket.h>

#include <array>

namespace aerokv::testing {
Tap::Tap(uint16_t server_port) : server_port_(server_port) {
  acceptor_ = std::thread([this] {
    while (true) {
      UniqueFd client = listener_.accept();
      if (!client.is_open() || stopping_) return;
      UniqueFd server = connect_to(server_port_);
      if (!server.is_open()) continue;
      const std::scoped_lock lock(mutex_);
      const int client_fd = client.get();
      const int server_fd = server.get();
      sockets_.push_back(std::move(client));
      sockets_.push_back(std::move(server));
      threads_.emplace_back(
          [this, client_fd, server_fd, plan = plan_] { serve(client_fd, server_fd, plan); });
    }
  });
}

Tap::~Tap() {
  stopping_ = true;
  listener_.shut_down();
  acceptor_.join();
  for (const UniqueFd& socket : sockets_) ::shutdown(socket.get(), SHUT_RDWR);
  for (std::thread& thread : threads_) thread.join();
}

void Tap::set_plan(const Plan& plan) {
  const std::scoped_lock lock(mutex_);
  plan_ = plan;
}

void Tap::serve(int client, int server, Plan plan) {
  std::vector<std::byte> buffer(64 << 10);
  uint64_t passed = 0;
  std::array<pollfd, 2> fds{pollfd{client, POLLIN, 0}, pollfd{server, POLLIN, 0}};
  while (::poll(fds.data(), fds.size(), -1) > 0) {
    bool is_open = true;
    for (size_t i = 0; i < fds.size() && is_open; ++i) {
      if (fds[i].revents == 0) continue;
      const ssize_t count = ::recv(fds[i].fd, buffer.data(), buffer.size(), 0);
      if (count <= 0) {
        is_open = false;
        break;
      }
      MutableBytes bytes(buffer.data(), static_cast<size_t>(count));
      const bool is_answer = i == 1;
      if (is_answer && plan.harm == Plan::Harm::flip && plan.at >= passed &&
          plan.at < passed + bytes.size()) {
        bytes[plan.at - passed] ^= std::byte{0x10};
      }
      if (is_answer && plan.harm != Plan::Harm::flip && plan.harm != Plan::Harm::none &&
          passed + bytes.size() > plan.at) {
        bytes = bytes.first(plan.at > passed ? plan.at - passed : 0);
        is_open = plan.harm == Plan::Harm::silent;
      }
      if (is_answer) passed += bytes.size();
      if (!bytes.empty() && !send_all(fds[1 - i].fd, bytes)) is_open = false;
    }
    if (!is_open) break;
  }
  last_bytes_ = passed;
  ::shutdown(client, SHUT_RDWR);
  ::shutdown(server, SHUT_RDWR);
}

}  // namespace aerokv::testing
