// SPDX-License-Identifier: Apache-2.0
// Users, logins and sessions.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <memory>
#include <mutex>
#include <string>
#include <unordered_map>
#include <vector>

#include "aerokv/bytes.h"
#include "base/clock.h"
#include "devserver/answer.h"
#include "devserver/devserver.h"
#include "devserver/security_message.h"

namespace aerokv::devserver {

/// How many requests a second are let through. Thread-safe.
class Quota {
 public:
  /// `per_second` 0 = no limit.
  void set(uint32_t per_second) { per_second_ = per_second; }
  /// Counts one request; false if it is one too many.
  bool admit(TimePoint now);

 private:
  std::atomic<uint32_t> per_second_{0};
  std::atomic<int64_t> second_{0};
  std::atomic<uint32_t> used_{0};
};

/// A user as sessions see it: what changes here changes for those that are open. Thread-safe.
struct Account {
  explicit Account(std::string user) : name(std::move(user)) {}
  const std::string name;
  std::atomic<RoleMask> roles{0};
  std::atomic<bool> dropped{false};
  Quota reads, writes;
};

/// What a connection may do. Default: nothing, if there are users.
struct Session {
  std::shared_ptr<Account> account;  ///< null: nobody has logged in
  TimePoint expires{};
  uint64_t epoch = 0;
};

/// What a request needs a right for.
enum class Action : uint8_t { login_only, read, write, truncate, configure, manage_users };

/// Thread-safe.
class Security {
 public:
  Security(std::vector<UserOptions> users, std::chrono::seconds session_ttl, bool has_tls);

  [[nodiscard]] bool enabled() const { return enabled_; }

  /// Answers one security message and notes in `session` what it brought. `certificate_name` is
  /// what the client's certificate says, if it has shown one.
  void handle(Bytes body, const std::string& certificate_name, Session& session, Answer& out);

  /// 0, or the code with which a request is refused.
  [[nodiscard]] uint8_t check(const Session& session, Action action) const;
  /// The same for one that counts against the user's quota.
  [[nodiscard]] uint8_t admit(const Session& session, Action action) const;

  Status set_user(UserOptions user);
  Status drop_user(std::string_view name);
  void expire_sessions();

 private:
  struct User {
    Login login = Login::internal;
    std::string credential;  // bcrypt with the protocol's salt, what clients send
    std::string password;    // external users only
    std::shared_ptr<Account> account;
  };
  struct Token {
    std::shared_ptr<Account> account;
    TimePoint expires{};
    uint64_t epoch = 0;
  };

  // All of these require mutex_.
  [[nodiscard]] User* find_user(std::string_view name);
  void put_user(UserOptions user);
  bool erase_user(std::string_view name);
  uint8_t log_in(const SecurityMessage& message, const std::string& certificate_name,
                 std::shared_ptr<Account>& account);
  uint8_t authenticate(const SecurityMessage& message, const std::string& certificate_name,
                       Session& session);
  uint8_t create_user(const SecurityMessage& message);
  uint8_t change_password(const SecurityMessage& message, const Session& session);
  uint8_t change_roles(const SecurityMessage& message, bool grants);
  void query_users(const SecurityMessage& message, Answer& out);

  void answer_login(const SecurityMessage& message, const std::string& certificate_name,
                    Session& session, Answer& out);
  uint8_t manage(const SecurityMessage& message, const Session& session);

  const bool enabled_;
  const uint8_t disabled_code_;
  const std::chrono::seconds session_ttl_;
  std::atomic<uint64_t> epoch_{1};  // of sessions; older ones have ended
  std::mutex mutex_;
  std::vector<User> users_;                        // guarded by mutex_
  std::unordered_map<std::string, Token> tokens_;  // guarded by mutex_
};

}  // namespace aerokv::devserver
