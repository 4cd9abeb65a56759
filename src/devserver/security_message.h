// SPDX-License-Identifier: Apache-2.0
// Security messages, taken apart and put together.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "aerokv/bytes.h"
#include "devserver/answer.h"
#include "devserver/devserver.h"

namespace aerokv::devserver {

enum class SecurityCommand : uint8_t {
  authenticate = 0,
  create_user = 1,
  drop_user = 2,
  set_password = 3,
  change_password = 4,
  grant_roles = 5,
  revoke_roles = 6,
  query_users = 9,
  login = 20,
};

/// Fields point into the message.
struct SecurityMessage {
  SecurityCommand command{};
  std::optional<std::string_view> user;
  std::optional<std::string_view> password;      ///< hashed
  std::optional<std::string_view> old_password;  ///< hashed
  std::optional<std::string_view> credential;    ///< hashed
  std::optional<std::string_view> clear_password;
  std::optional<Bytes> token;
  std::optional<Bytes> roles;
};

/// Empty if the lengths contradict each other.
std::optional<SecurityMessage> parse_security(Bytes body);

/// The roles of a field; empty if it is malformed or has an unknown one.
std::optional<RoleMask> parse_roles(Bytes field);

void answer_code(Answer& out, uint8_t code);
void answer_session(Answer& out, std::string_view token, uint32_t ttl_seconds);

/// An answer about users, unit by unit.
class UserList {
 public:
  explicit UserList(Answer& out) : out_(out), at_(out.begin_frame()) {}
  void add(std::string_view name, RoleMask roles);
  /// Sends the list; `code` ends it.
  void finish(uint8_t code);

 private:
  Answer& out_;
  size_t at_;
};

}  // namespace aerokv::devserver
