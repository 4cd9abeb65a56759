// SPDX-License-Identifier: Apache-2.0
#include "devserver/security.h"

#include <crypt.h>
#include <openssl/crypto.h>
#include <openssl/rand.h>

#include <optional>

#include "base/limits.h"
#include "wire/message.h"
#include "wire/result.h"

namespace aerokv::devserver {
namespace {

namespace result = wire::result;

// Clients hash passwords with this salt before they send them; it is part of the protocol.
constexpr const char* kCredentialSalt = "$2a$10$7EqJtq98hPqEX7fNZaFWoO";
constexpr size_t kTokenBytes = 32;
constexpr size_t kTokensMax = 100'000;

enum class Command : uint8_t { authenticate = 0, login = 20 };
enum class FieldId : uint8_t { user = 0, credential = 3, session_token = 5, session_ttl = 6 };

struct Message {
  uint8_t command = 0;
  std::optional<Bytes> user;
  std::optional<Bytes> credential;
  std::optional<Bytes> token;
};

std::optional<Message> parse(Bytes body) {
  if (body.size() < wire::kSecurityHeaderBytes) return std::nullopt;
  Message message;
  message.command = std::to_integer<uint8_t>(body[2]);
  const auto fields = std::to_integer<uint8_t>(body[3]);
  wire::UnitReader reader(body.subspan(wire::kSecurityHeaderBytes));
  for (uint32_t i = 0; i < fields; ++i) {
    const auto field = reader.field();
    if (!field) return std::nullopt;
    switch (static_cast<FieldId>(field->type)) {
      case FieldId::user:
        message.user = field->value;
        break;
      case FieldId::credential:
        message.credential = field->value;
        break;
      case FieldId::session_token:
        message.token = field->value;
        break;
      default:
        break;
    }
  }
  return message;
}

size_t begin(Answer& out, uint8_t code, uint8_t fields) {
  const size_t at = out.begin_frame();
  wire::UnitWriter writer = out.writer();
  const std::array<std::byte, wire::kSecurityHeaderBytes> header{std::byte{0}, std::byte{code},
                                                                 std::byte{0}, std::byte{fields}};
  writer.bytes(header);
  return at;
}

void answer_code(Answer& out, uint8_t code) {
  out.end_frame(begin(out, code, 0), wire::MessageType::security);
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

Security::Security(std::vector<UserOptions> users, std::chrono::seconds session_ttl)
    : session_ttl_(session_ttl) {
  for (UserOptions& user : users) {
    std::string credential = credential_of(user.password);
    user.password.clear();
    users_.push_back({std::move(user), std::move(credential)});
  }
}

const Security::User* Security::find_user(std::string_view name) const {
  for (const User& user : users_) {
    if (user.options.name == name) return &user;
  }
  return nullptr;
}

void Security::open_session(const User& user, TimePoint expires, Session& session) {
  session = {true, user.options.can_read, user.options.can_write, expires};
}

void Security::handle(Bytes body, Session& session, Answer& out) {
  if (!enabled()) return answer_code(out, result::kSecurityNotSupported);
  const auto message = parse(body);
  if (!message) return answer_code(out, result::kInvalidField);
  const auto text = [](const std::optional<Bytes>& field) {
    return field ? as_text(*field) : std::string_view{};
  };
  switch (static_cast<Command>(message->command)) {
    case Command::login:
      if (!message->user || !message->credential) return answer_code(out, result::kInvalidField);
      return login(text(message->user), text(message->credential), session, out);
    case Command::authenticate:
      if (!message->user || !message->token) return answer_code(out, result::kInvalidField);
      return authenticate(text(message->user), *message->token, session, out);
  }
  answer_code(out, session.logged_in ? result::kInvalidCommand : result::kNotAuthenticated);
}

void Security::login(std::string_view name, std::string_view credential, Session& session,
                     Answer& out) {
  const User* user = find_user(name);
  if (user == nullptr) return answer_code(out, result::kInvalidUser);
  if (user->credential.empty() || !equal_in_constant_time(user->credential, credential)) {
    return answer_code(out, result::kInvalidCredential);
  }
  std::string token(kTokenBytes, '\0');
  if (RAND_bytes(reinterpret_cast<unsigned char*>(token.data()), kTokenBytes) != 1) {
    return answer_code(out, result::kUnknown);
  }
  const TimePoint now = SteadyClock::now();
  const TimePoint expires = now + session_ttl_;
  {
    const std::scoped_lock lock(mutex_);
    if (tokens_.size() >= kTokensMax) {
      std::erase_if(tokens_, [now](const auto& entry) { return entry.second.expires <= now; });
    }
    if (tokens_.size() >= kTokensMax) tokens_.clear();
    tokens_[token] = {std::string(name), expires};
  }
  open_session(*user, expires, session);
  const size_t at = begin(out, result::kOk, 2);
  wire::UnitWriter writer = out.writer();
  writer.field(static_cast<wire::FieldType>(FieldId::session_token), as_bytes(token));
  writer.field_header(static_cast<wire::FieldType>(FieldId::session_ttl), 4);
  writer.u32(static_cast<uint32_t>(session_ttl_.count()));
  out.end_frame(at, wire::MessageType::security);
}

void Security::authenticate(std::string_view name, Bytes token, Session& session, Answer& out) {
  const User* user = find_user(name);
  if (user == nullptr) return answer_code(out, result::kInvalidUser);
  TimePoint expires;
  {
    const std::scoped_lock lock(mutex_);
    const auto it = tokens_.find(std::string(as_text(token)));
    if (it == tokens_.end() || it->second.user != name) {
      return answer_code(out, result::kInvalidCredential);
    }
    expires = it->second.expires;
  }
  if (expires <= SteadyClock::now()) return answer_code(out, result::kExpiredSession);
  open_session(*user, expires, session);
  answer_code(out, result::kOk);
}

uint8_t Security::check(const Session& session, bool writes) const {
  if (!enabled()) return result::kOk;
  if (!session.logged_in || session.expires <= SteadyClock::now()) {
    return result::kNotAuthenticated;
  }
  const bool allowed = writes ? session.can_write : session.can_read;
  return allowed ? result::kOk : result::kRoleViolation;
}

}  // namespace aerokv::devserver
