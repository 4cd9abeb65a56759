// SPDX-License-Identifier: Apache-2.0
#include "devserver/security.h"

#include <crypt.h>
#include <openssl/crypto.h>
#include <openssl/rand.h>

#include <algorithm>

#include "base/limits.h"
#include "wire/result.h"

namespace aerokv::devserver {
namespace {

namespace result = wire::result;

// Clients hash passwords with this salt before they send them; it is part of the protocol.
constexpr const char* kCredentialSalt = "$2a$10$7EqJtq98hPqEX7fNZaFWoO";
constexpr size_t kTokenBytes = 32;
constexpr size_t kTokensMax = 100'000;
constexpr uint8_t kInvalidRole = 70;
constexpr uint8_t kQueryEnd = 50;

constexpr RoleMask kReaders =
    mask_of(Role::read) | mask_of(Role::read_write) | mask_of(Role::read_write_udf);
constexpr RoleMask kWriters =
    mask_of(Role::write) | mask_of(Role::read_write) | mask_of(Role::read_write_udf);

/// The roles of which one is enough.
RoleMask roles_for(Action action) {
  switch (action) {
    case Action::login_only:
      break;
    case Action::read:
      return kReaders;
    case Action::write:
      return kWriters;
    case Action::truncate:
      return mask_of(Role::truncate) | mask_of(Role::data_admin);
    case Action::configure:
      return mask_of(Role::sys_admin);
    case Action::manage_users:
      return mask_of(Role::user_admin);
  }
  return 0;
}

std::string credential_of(const std::string& password) {
  crypt_data data{};
  const char* hashed = ::crypt_r(password.c_str(), kCredentialSalt, &data);
  return hashed == nullptr ? std::string{} : std::string(hashed);
}

bool equal_in_constant_time(std::string_view a, std::string_view b) {
  return a.size() == b.size() && CRYPTO_memcmp(a.data(), b.data(), a.size()) == 0;
}

}  // namespace

bool Quota::admit(TimePoint now) {
  const uint32_t limit = per_second_.load(std::memory_order_relaxed);
  if (limit == 0) return true;
  const int64_t second =
      std::chrono::duration_cast<std::chrono::seconds>(now.time_since_epoch()).count();
  if (second_.exchange(second, std::memory_order_relaxed) != second) used_ = 0;
  return used_.fetch_add(1, std::memory_order_relaxed) < limit;
}

Security::Security(std::vector<UserOptions> users, std::chrono::seconds session_ttl, bool has_tls)
    : enabled_(!users.empty()),
      disabled_code_(has_tls ? result::kSecurityNotEnabled : result::kSecurityNotSupported),
      session_ttl_(session_ttl) {
  for (UserOptions& user : users) put_user(std::move(user));
}

Security::User* Security::find_user(std::string_view name) {
  const auto it = std::find_if(users_.begin(), users_.end(),
                               [&](const User& user) { return user.account->name == name; });
  return it == users_.end() ? nullptr : &*it;
}

void Security::put_user(UserOptions options) {
  User* user = find_user(options.name);
  if (user == nullptr) {
    users_.push_back({});
    user = &users_.back();
    user->account = std::make_shared<Account>(std::move(options.name));
  }
  user->login = options.login;
  user->account->roles = options.roles;
  user->account->reads.set(options.read_quota);
  user->account->writes.set(options.write_quota);
  user->credential.clear();
  user->password.clear();
  if (options.login == Login::internal) user->credential = credential_of(options.password);
  if (options.login == Login::external) user->password = std::move(options.password);
}

bool Security::erase_user(std::string_view name) {
  User* user = find_user(name);
  if (user == nullptr) return false;
  user->account->dropped = true;
  std::erase_if(tokens_, [&](const auto& entry) { return entry.second.account == user->account; });
  users_.erase(users_.begin() + (user - users_.data()));
  return true;
}

Status Security::set_user(UserOptions user) {
  if (!enabled_) return {Code::invalid, "set user: the server was started without users"};
  if (user.name.empty() || user.name.size() > kUserBytesMax) {
    return {Code::invalid, "user name: 1 to 63 bytes"};
  }
  const std::scoped_lock lock(mutex_);
  put_user(std::move(user));
  return {};
}

Status Security::drop_user(std::string_view name) {
  const std::scoped_lock lock(mutex_);
  if (erase_user(name)) return {};
  return {Code::not_found, "drop user: no user " + std::string(name)};
}

void Security::expire_sessions() {
  ++epoch_;
}

void Security::handle(Bytes body, const std::string& certificate_name, Session& session,
                      Answer& out) {
  if (!enabled()) return answer_code(out, disabled_code_);
  const auto message = parse_security(body);
  if (!message) return answer_code(out, result::kInvalidField);
  if (message->command == SecurityCommand::login) {
    return answer_login(*message, certificate_name, session, out);
  }
  const std::scoped_lock lock(mutex_);
  if (message->command == SecurityCommand::authenticate) {
    return answer_code(out, authenticate(*message, certificate_name, session));
  }
  if (const uint8_t code = check(session, Action::login_only)) return answer_code(out, code);
  if (message->command == SecurityCommand::query_users) {
    const bool about_oneself = message->user == session.account->name;
    const uint8_t code = about_oneself ? result::kOk : check(session, Action::manage_users);
    return code == result::kOk ? query_users(*message, out) : answer_code(out, code);
  }
  answer_code(out, manage(*message, session));
}

// ---- logins and tokens

// Without fields it is a login by certificate. A directory gets the password itself.
uint8_t Security::log_in(const SecurityMessage& message, const std::string& certificate_name,
                         std::shared_ptr<Account>& account) {
  const bool by_certificate = !message.user;
  if (by_certificate && certificate_name.empty()) return result::kInvalidCredential;
  if (!by_certificate && !message.credential) return result::kInvalidField;
  User* user = find_user(by_certificate ? certificate_name : *message.user);
  if (user == nullptr) return result::kInvalidUser;
  bool good = false;
  switch (user->login) {
    case Login::pki:
      good = by_certificate;
      break;
    case Login::external:
      good = message.clear_password && !user->password.empty() &&
             equal_in_constant_time(user->password, *message.clear_password);
      break;
    case Login::internal:
      good = !by_certificate && !user->credential.empty() &&
             equal_in_constant_time(user->credential, *message.credential);
      break;
  }
  if (!good) return result::kInvalidCredential;
  account = user->account;
  return result::kOk;
}

void Security::answer_login(const SecurityMessage& message, const std::string& certificate_name,
                            Session& session, Answer& out) {
  std::string token(kTokenBytes, '\0');
  if (RAND_bytes(reinterpret_cast<unsigned char*>(token.data()), kTokenBytes) != 1) {
    return answer_code(out, result::kUnknown);
  }
  {
    const std::scoped_lock lock(mutex_);
    std::shared_ptr<Account> account;
    if (const uint8_t code = log_in(message, certificate_name, account)) {
      return answer_code(out, code);
    }
    const TimePoint now = SteadyClock::now();
    session = {std::move(account), now + session_ttl_, epoch_};
    if (tokens_.size() >= kTokensMax) {
      std::erase_if(tokens_, [now](const auto& entry) { return entry.second.expires <= now; });
    }
    if (tokens_.size() >= kTokensMax) tokens_.clear();
    tokens_[token] = {session.account, session.expires, session.epoch};
  }
  answer_session(out, token, static_cast<uint32_t>(session_ttl_.count()));
}

uint8_t Security::authenticate(const SecurityMessage& message, const std::string& certificate_name,
                               Session& session) {
  if (!message.token) return result::kInvalidField;
  if (!message.user && certificate_name.empty()) return result::kInvalidField;
  const std::string_view name = message.user ? *message.user : std::string_view(certificate_name);
  if (find_user(name) == nullptr) return result::kInvalidUser;
  const auto it = tokens_.find(std::string(as_text(*message.token)));
  if (it == tokens_.end() || it->second.account->name != name) return result::kInvalidCredential;
  const Token& token = it->second;
  if (token.expires <= SteadyClock::now() || token.epoch != epoch_) return result::kExpiredSession;
  session = {token.account, token.expires, token.epoch};
  return result::kOk;
}

uint8_t Security::check(const Session& session, Action action) const {
  if (!enabled()) return result::kOk;
  if (session.account == nullptr || session.account->dropped.load(std::memory_order_relaxed) ||
      session.epoch != epoch_.load(std::memory_order_relaxed) ||
      session.expires <= SteadyClock::now()) {
    return result::kNotAuthenticated;
  }
  if (action == Action::login_only) return result::kOk;
  const RoleMask roles = session.account->roles.load(std::memory_order_relaxed);
  return (roles & roles_for(action)) != 0 ? result::kOk : result::kRoleViolation;
}

uint8_t Security::admit(const Session& session, Action action) const {
  if (!enabled()) return result::kOk;
  if (const uint8_t code = check(session, action)) return code;
  Quota& quota = action == Action::write ? session.account->writes : session.account->reads;
  return quota.admit(SteadyClock::now()) ? result::kOk : result::kQuotaExceeded;
}

// ---- what administrators of users do

uint8_t Security::manage(const SecurityMessage& message, const Session& session) {
  if (message.command == SecurityCommand::change_password) {
    return change_password(message, session);
  }
  if (const uint8_t code = check(session, Action::manage_users)) return code;
  if (!message.user) return result::kInvalidField;
  switch (message.command) {
    case SecurityCommand::create_user:
      return create_user(message);
    case SecurityCommand::drop_user:
      return erase_user(*message.user) ? result::kOk : result::kInvalidUser;
    case SecurityCommand::set_password:
      if (!message.password) return result::kInvalidPassword;
      if (User* user = find_user(*message.user)) {
        user->credential = *message.password;
        return result::kOk;
      }
      return result::kInvalidUser;
    case SecurityCommand::grant_roles:
      return change_roles(message, true);
    case SecurityCommand::revoke_roles:
      return change_roles(message, false);
    default:
      return result::kInvalidCommand;
  }
}

uint8_t Security::create_user(const SecurityMessage& message) {
  if (message.user->empty() || message.user->size() > kUserBytesMax) return result::kInvalidUser;
  if (find_user(*message.user) != nullptr) return result::kUserExists;
  if (!message.password) return result::kInvalidPassword;
  const auto roles = message.roles ? parse_roles(*message.roles) : RoleMask{0};
  if (!roles) return kInvalidRole;
  UserOptions options;
  options.name = *message.user;
  options.roles = *roles;
  options.login = Login::pki;  // until it has its password, which comes hashed
  put_user(std::move(options));
  User* user = find_user(*message.user);
  user->login = Login::internal;
  user->credential = *message.password;
  return result::kOk;
}

// Users change their own password and have to know the old one.
uint8_t Security::change_password(const SecurityMessage& message, const Session& session) {
  if (!message.password || !message.old_password) return result::kInvalidPassword;
  if (message.user && *message.user != session.account->name) return result::kRoleViolation;
  User* user = find_user(session.account->name);
  if (user == nullptr) return result::kInvalidUser;
  if (!equal_in_constant_time(user->credential, *message.old_password)) {
    return result::kInvalidPassword;
  }
  user->credential = *message.password;
  return result::kOk;
}

uint8_t Security::change_roles(const SecurityMessage& message, bool grants) {
  User* user = find_user(*message.user);
  if (user == nullptr) return result::kInvalidUser;
  const auto roles = message.roles ? parse_roles(*message.roles) : std::nullopt;
  if (!roles) return kInvalidRole;
  const RoleMask now = user->account->roles;
  user->account->roles = static_cast<RoleMask>(grants ? now | *roles : now & ~*roles);
  return result::kOk;
}

void Security::query_users(const SecurityMessage& message, Answer& out) {
  if (message.user && find_user(*message.user) == nullptr) {
    return answer_code(out, result::kInvalidUser);
  }
  UserList list(out);
  for (const User& user : users_) {
    if (message.user && *message.user != user.account->name) continue;
    list.add(user.account->name, user.account->roles);
  }
  list.finish(kQueryEnd);
}

}  // namespace aerokv::devserver
