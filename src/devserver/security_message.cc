// SPDX-License-Identifier: Apache-2.0
#include "devserver/security_message.h"

#include <array>

#include "wire/message.h"

namespace aerokv::devserver {
namespace {

enum class FieldId : uint8_t {
  user = 0,
  password = 1,
  old_password = 2,
  credential = 3,
  clear_password = 4,
  session_token = 5,
  session_ttl = 6,
  roles = 10,
};

constexpr std::array<std::string_view, kRoles> kRoleNames{
    "read",     "write",      "read-write", "read-write-udf",
    "truncate", "data-admin", "sys-admin",  "user-admin"};

wire::FieldType field_type(FieldId id) {
  return static_cast<wire::FieldType>(id);
}

void write_header(Answer& out, uint8_t code, uint8_t fields) {
  const std::array<std::byte, wire::kSecurityHeaderBytes> header{std::byte{0}, std::byte{code},
                                                                 std::byte{0}, std::byte{fields}};
  out.writer().bytes(header);
}

}  // namespace

std::string_view role_name(Role role) {
  return kRoleNames[static_cast<size_t>(role)];
}

std::optional<Role> role_from_name(std::string_view name) {
  for (size_t i = 0; i < kRoles; ++i) {
    if (kRoleNames[i] == name) return static_cast<Role>(i);
  }
  return std::nullopt;
}

std::optional<SecurityMessage> parse_security(Bytes body) {
  if (body.size() < wire::kSecurityHeaderBytes) return std::nullopt;
  SecurityMessage message;
  message.command = static_cast<SecurityCommand>(body[2]);
  const auto fields = std::to_integer<uint8_t>(body[3]);
  wire::UnitReader reader(body.subspan(wire::kSecurityHeaderBytes));
  for (uint32_t i = 0; i < fields; ++i) {
    const auto field = reader.field();
    if (!field) return std::nullopt;
    switch (static_cast<FieldId>(field->type)) {
      case FieldId::user:
        message.user = as_text(field->value);
        break;
      case FieldId::password:
        message.password = as_text(field->value);
        break;
      case FieldId::old_password:
        message.old_password = as_text(field->value);
        break;
      case FieldId::credential:
        message.credential = as_text(field->value);
        break;
      case FieldId::clear_password:
        message.clear_password = as_text(field->value);
        break;
      case FieldId::session_token:
        message.token = field->value;
        break;
      case FieldId::roles:
        message.roles = field->value;
        break;
      default:
        break;
    }
  }
  return message;
}

// A count, then each name behind its length.
std::optional<RoleMask> parse_roles(Bytes field) {
  if (field.empty()) return std::nullopt;
  const auto count = std::to_integer<size_t>(field[0]);
  field = field.subspan(1);
  RoleMask roles = 0;
  for (size_t i = 0; i < count; ++i) {
    if (field.empty()) return std::nullopt;
    const auto size = std::to_integer<size_t>(field[0]);
    if (field.size() < 1 + size) return std::nullopt;
    const auto role = role_from_name(as_text(field.subspan(1, size)));
    if (!role) return std::nullopt;
    roles |= mask_of(*role);
    field = field.subspan(1 + size);
  }
  return roles;
}

void answer_code(Answer& out, uint8_t code) {
  const size_t at = out.begin_frame();
  write_header(out, code, 0);
  out.end_frame(at, wire::MessageType::security);
}

void answer_session(Answer& out, std::string_view token, uint32_t ttl_seconds) {
  const size_t at = out.begin_frame();
  write_header(out, 0, 2);
  wire::UnitWriter writer = out.writer();
  writer.field(field_type(FieldId::session_token), as_bytes(token));
  writer.field_header(field_type(FieldId::session_ttl), 4);
  writer.u32(ttl_seconds);
  out.end_frame(at, wire::MessageType::security);
}

void UserList::add(std::string_view name, RoleMask roles) {
  std::string list(1, '\0');
  for (size_t i = 0; i < kRoles; ++i) {
    if ((roles & mask_of(static_cast<Role>(i))) == 0) continue;
    ++list[0];
    list += static_cast<char>(kRoleNames[i].size());
    list += kRoleNames[i];
  }
  write_header(out_, 0, 2);
  wire::UnitWriter writer = out_.writer();
  writer.field(field_type(FieldId::user), as_bytes(name));
  writer.field(field_type(FieldId::roles), as_bytes(list));
}

void UserList::finish(uint8_t code) {
  write_header(out_, code, 0);
  out_.end_frame(at_, wire::MessageType::security);
}

}  // namespace aerokv::devserver
