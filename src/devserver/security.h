// SPDX-License-Identifier: Apache-2.0
// Users, logins and sessions.
#pragma once

#include <chrono>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "aerokv/bytes.h"
#include "base/clock.h"
#include "devserver/answer.h"
#include "devserver/devserver.h"

namespace aerokv::devserver {

/// What a connection may do. Default: nothing, if there are users.
struct Session {
  bool logged_in = false;
  bool can_read = false;
  bool can_write = false;
  TimePoint expires{};
};

/// Thread-safe.
class Security {
 public:
  Security(std::vector<UserOptions> users, std::chrono::seconds session_ttl);

  [[nodiscard]] bool enabled() const { return !users_.empty(); }

  /// Answers one security message and notes in `session` what it brought.
  void handle(Bytes body, Session& session, Answer& out);

  /// 0, or the code with which a record request of this kind is refused.
  [[nodiscard]] uint8_t check(const Session& session, bool writes) const;

 private:
  struct User {
    UserOptions options;
    std::string credential;  // bcrypt with the protocol's salt, what clients send
  };
  struct Token {
    std::string user;
    TimePoint expires{};
  };

  void login(std::string_view user, std::string_view credential, Session& session, Answer& out);
  void authenticate(std::string_view user, Bytes token, Session& session, Answer& out);
  [[nodiscard]] const User* find_user(std::string_view name) const;
  static void open_session(const User& user, TimePoint expires, Session& session);

  std::vector<User> users_;
  const std::chrono::seconds session_ttl_;
  std::mutex mutex_;
  std::unordered_map<std::string, Token> tokens_;
};

}  // namespace aerokv::devserver
