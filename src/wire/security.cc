// SPDX-License-Identifier: Apache-2.0
#include "wire/security.h"

#include <crypt.h>
#include <string.h>  // explicit_bzero

#include <array>
#include <memory>
#include <span>

namespace aerokv::wire {
namespace {

// Every client hashes with this salt; the result, not the password, is the shared secret.
constexpr const char* kSalt = "$2a$10$7EqJtq98hPqEX7fNZaFWoO";
constexpr size_t kCredentialBytes = 60;

constexpr uint8_t kCommandAuthenticate = 0;
constexpr uint8_t kCommandLogin = 20;
constexpr uint8_t kFieldUser = 0, kFieldCredential = 3, kFieldClearPassword = 4, kFieldToken = 5,
                  kFieldSessionTtl = 6;
constexpr size_t kTokenBytesMax = 32 << 10;

struct SecretField {
  uint8_t type = 0;
  Bytes value;
};

void encode_command(uint8_t command, std::span<const SecretField> fields,
                    std::vector<std::byte>& out) {
  // Room for all of it at once: secrets must not stay behind in memory that was outgrown.
  size_t size = 64;
  for (const SecretField& field : fields) size += field.value.size() + 5;
  out.reserve(out.size() + size);
  UnitWriter writer(out);
  const size_t frame_at = writer.begin_frame();
  writer.u8(0);
  writer.u8(0);
  writer.u8(command);
  writer.u8(static_cast<uint8_t>(fields.size()));
  for (int i = 0; i < 3; ++i) writer.u32(0);
  for (const SecretField& field : fields) {
    writer.u32(static_cast<uint32_t>(field.value.size() + 1));
    writer.u8(field.type);
    writer.bytes(field.value);
  }
  writer.end_frame(frame_at, MessageType::security);
}

Status check_user(std::string_view user) {
  if (!user.empty() && user.size() <= kUserBytesMax) return {};
  return {Code::invalid, "encode security message: user name of " + std::to_string(user.size()) +
                             " bytes, expected 1 to " + std::to_string(kUserBytesMax)};
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
  AEROKV_TRY(check_user(user));
  encode_command(kCommandLogin,
                 std::array{SecretField{kFieldUser, as_bytes(user)},
                            SecretField{kFieldCredential, as_bytes(credential)}},
                 out);
  return {};
}

Status encode_external_login(std::string_view user, std::string_view credential,
                             std::string_view password, std::vector<std::byte>& out) {
  AEROKV_TRY(check_user(user));
  encode_command(kCommandLogin,
                 std::array{SecretField{kFieldUser, as_bytes(user)},
                            SecretField{kFieldCredential, as_bytes(credential)},
                            SecretField{kFieldClearPassword, as_bytes(password)}},
                 out);
  return {};
}

void encode_certificate_login(std::vector<std::byte>& out) {
  encode_command(kCommandLogin, {}, out);
}

Status encode_authenticate(std::string_view user, Bytes token, std::vector<std::byte>& out) {
  const SecretField secret{kFieldToken, token};
  if (user.empty()) {
    encode_command(kCommandAuthenticate, {&secret, 1}, out);
    return {};
  }
  AEROKV_TRY(check_user(user));
  encode_command(kCommandAuthenticate, std::array{SecretField{kFieldUser, as_bytes(user)}, secret},
                 out);
  return {};
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
