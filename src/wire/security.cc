// SPDX-License-Identifier: Apache-2.0
#include "wire/security.h"

#include <crypt.h>
#include <string.h>  // explicit_bzero

#include <memory>

namespace aerokv::wire {
namespace {

// Every client hashes with this salt; the result, not the password, is the shared secret.
constexpr const char* kSalt = "$2a$10$7EqJtq98hPqEX7fNZaFWoO";
constexpr size_t kCredentialBytes = 60;

constexpr uint8_t kCommandAuthenticate = 0;
constexpr uint8_t kCommandLogin = 20;
constexpr uint8_t kFieldUser = 0, kFieldCredential = 3, kFieldToken = 5, kFieldSessionTtl = 6;
constexpr size_t kTokenBytesMax = 32 << 10;

Status encode_command(uint8_t command, std::string_view user, uint8_t secret_field, Bytes secret,
                      std::vector<std::byte>& out) {
  if (user.empty() || user.size() > kUserBytesMax) {
    return {Code::invalid, "encode security message: user name of " + std::to_string(user.size()) +
                               " bytes, expected 1 to " + std::to_string(kUserBytesMax)};
  }
  UnitWriter writer(out);
  const size_t frame_at = writer.begin_frame();
  writer.u8(0);
  writer.u8(0);
  writer.u8(command);
  writer.u8(2);
  for (int i = 0; i < 3; ++i) writer.u32(0);
  writer.u32(static_cast<uint32_t>(user.size() + 1));
  writer.u8(kFieldUser);
  writer.bytes(as_bytes(user));
  writer.u32(static_cast<uint32_t>(secret.size() + 1));
  writer.u8(secret_field);
  writer.bytes(secret);
  writer.end_frame(frame_at, MessageType::security);
  return {};
}

}  // namespace

Result<std::string> hash_password(std::string_view password) {
  if (password.size() > kPasswordBytesMax || password.find('\0') != std::string_view::npos) {
    return Status(Code::invalid, "password: longer than " + std::to_string(kPasswordBytesMax) +
                                     " bytes, or with a NUL character");
  }
  const auto data = std::make_unique<crypt_data>();
  std::string text(password);
  const char* hashed = ::crypt_rn(text.c_str(), kSalt, data.get(), sizeof *data);
  explicit_bzero(text.data(), text.size());
  std::string credential = hashed == nullptr ? "" : hashed;
  explicit_bzero(data.get(), sizeof *data);
  if (credential.size() != kCredentialBytes) {
    return Status(Code::internal, "password: the system's libcrypt does not offer bcrypt ($2a$)");
  }
  return credential;
}

Status encode_login(std::string_view user, std::string_view credential,
                    std::vector<std::byte>& out) {
  return encode_command(kCommandLogin, user, kFieldCredential, as_bytes(credential), out);
}

Status encode_authenticate(std::string_view user, Bytes token, std::vector<std::byte>& out) {
  return encode_command(kCommandAuthenticate, user, kFieldToken, token, out);
}

Result<SecurityAnswer> decode_security_answer(Bytes body) {
  if (body.size() < kSecurityHeaderBytes) {
    return Status(Code::protocol, "decode security answer: " + std::to_string(body.size()) +
                                      " bytes, expected at least " +
                                      std::to_string(kSecurityHeaderBytes));
  }
  SecurityAnswer answer;
  answer.result_code = std::to_integer<uint8_t>(body[1]);
  const auto field_count = std::to_integer<uint32_t>(body[3]);
  UnitReader reader(body.subspan(kSecurityHeaderBytes));
  for (uint32_t i = 0; i < field_count; ++i) {
    Result<Field> field = reader.field();
    if (!field) return field.error();
    if (field->type == kFieldToken) {
      if (field->value.size() > kTokenBytesMax) {
        return Status(Code::protocol, "decode security answer: session token of " +
                                          std::to_string(field->value.size()) + " bytes");
      }
      answer.token.assign(field->value.begin(), field->value.end());
    } else if (field->type == kFieldSessionTtl && field->value.size() == 4) {
      answer.session_ttl_seconds = load_be<uint32_t>(field->value.data());
    }
  }
  return answer;
}

}  // namespace aerokv::wire
