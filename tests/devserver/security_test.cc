// SPDX-License-Identifier: Apache-2.0
// Users: login, sessions, permissions. The form of the messages is that of the protocol; which code
// is given when is ours where the enterprise server could not be recorded.
#include <gtest/gtest.h>

#include "devserver/setup.h"
#include "server_fixture.h"
#include "wire/result.h"

namespace aerokv::devserver_test {
namespace {

namespace result = wire::result;

// bcrypt of "pw1" with the salt of the protocol.
constexpr std::string_view kCredential =
    "$2a$10$7EqJtq98hPqEX7fNZaFWoOdZ84ogg/FmYiH/vL4qjZ.UcZHP/hlmi";

ByteVector security_request(uint8_t command,
                            const std::vector<std::pair<uint8_t, std::string>>& fields) {
  ByteVector bytes;
  wire::UnitWriter writer(bytes);
  const size_t at = writer.begin_frame();
  writer.u16(0);
  writer.u8(command);
  writer.u8(static_cast<uint8_t>(fields.size()));
  writer.u64(0);
  writer.u32(0);
  for (const auto& [id, text] : fields) {
    writer.field(static_cast<wire::FieldType>(id), as_bytes(text));
  }
  writer.end_frame(at, wire::MessageType::security);
  return bytes;
}

class SecurityTest : public ServerTest {
 protected:
  void start_with_users(std::chrono::seconds ttl = std::chrono::seconds(1000)) {
    devserver::Options options;
    options.session_ttl = ttl;
    options.users = {
        {.name = "u1", .password = "pw1"},
        {.name = "reader", .password = "pw1", .roles = mask_of(devserver::Role::read)}};
    start(std::move(options));
  }

  /// The code of the answer; the token goes to token_.
  uint8_t login(RawClient& client, const std::string& user,
                std::string_view credential = kCredential) {
    const auto answer = client.ask(security_request(20, {{0, user}, {3, std::string(credential)}}));
    if (!answer || answer->size() < 24) return 255;
    if (answer->size() > 24) {
      wire::UnitReader reader(Bytes(*answer).subspan(24));
      const auto field = reader.field();
      token_ = field ? std::string(as_text(field->value)) : "";
      const auto ttl = reader.field();
      ttl_ = ttl ? load_be<uint32_t>(ttl->value.data()) : 0;
    }
    return std::to_integer<uint8_t>((*answer)[9]);
  }

  uint8_t authenticate(RawClient& client, const std::string& user, const std::string& token) {
    const auto answer = client.ask(security_request(0, {{0, user}, {5, token}}));
    return answer ? std::to_integer<uint8_t>((*answer)[9]) : uint8_t{255};
  }

  std::string token_;
  uint32_t ttl_ = 0;
};

TEST_F(SecurityTest, without_a_session_nothing_is_done) {
  start_with_users();
  RawClient client = connect();
  EXPECT_EQ(ask_code(client, put_of("k", pattern(5, 1))), result::kNotAuthenticated);
  EXPECT_EQ(ask_code(client, get_of("k")), result::kNotAuthenticated);
  const auto batch = client.ask(batch_exists_of({"a", "b"}));
  ASSERT_TRUE(batch);
  EXPECT_EQ(units_of(*batch).front().header.result_code, result::kNotAuthenticated);
  const auto info = client.ask(info_request("build\n"));
  ASSERT_TRUE(info);
  EXPECT_EQ(as_text(Bytes(*info).subspan(8)), "ERROR:80:not authenticated\n");
}

TEST_F(SecurityTest, a_login_opens_its_connection_and_its_token_others) {
  start_with_users();
  RawClient client = connect();
  ASSERT_EQ(login(client, "u1"), 0);
  EXPECT_EQ(ttl_, 1000U);
  EXPECT_FALSE(token_.empty());
  EXPECT_EQ(ask_code(client, put_of("k", pattern(5, 1))), 0);
  EXPECT_EQ(client.info("build"), "8.1.2.0");
  RawClient second = connect();
  EXPECT_EQ(authenticate(second, "u1", token_), 0);
  EXPECT_EQ(ask_code(second, get_of("k")), 0);
}

TEST_F(SecurityTest, wrong_users_passwords_and_tokens_are_refused) {
  start_with_users();
  RawClient client = connect();
  EXPECT_EQ(login(client, "nobody"), result::kInvalidUser);
  EXPECT_EQ(login(client, "u1", "$2a$10$wrong"), result::kInvalidCredential);
  EXPECT_EQ(ask_code(client, get_of("k")), result::kNotAuthenticated);
  ASSERT_EQ(login(client, "u1"), 0);
  RawClient second = connect();
  EXPECT_EQ(authenticate(second, "u1", "made up"), result::kInvalidCredential);
  EXPECT_EQ(authenticate(second, "reader", token_), result::kInvalidCredential);
  EXPECT_EQ(ask_code(second, get_of("k")), result::kNotAuthenticated);
  const auto answer = second.ask(security_request(20, {{0, "u1"}}));
  ASSERT_TRUE(answer);
  EXPECT_EQ(answer->at(9), std::byte{result::kInvalidField});
}

TEST_F(SecurityTest, sessions_end) {
  start_with_users(std::chrono::seconds(1));
  RawClient client = connect();
  ASSERT_EQ(login(client, "u1"), 0);
  EXPECT_EQ(ask_code(client, exists_of("k")), result::kNotFound);
  await([&] { return ask_code(client, exists_of("k")) == result::kNotAuthenticated; }, "the end");
  RawClient second = connect();
  EXPECT_EQ(authenticate(second, "u1", token_), result::kExpiredSession);
  EXPECT_EQ(login(client, "u1"), 0);
  EXPECT_EQ(ask_code(client, exists_of("k")), result::kNotFound);
}

TEST_F(SecurityTest, a_reader_may_not_write) {
  start_with_users();
  RawClient client = connect();
  ASSERT_EQ(login(client, "reader"), 0);
  EXPECT_EQ(ask_code(client, get_of("k")), result::kNotFound);
  EXPECT_EQ(ask_code(client, put_of("k", pattern(5, 1))), result::kRoleViolation);
  EXPECT_EQ(ask_code(client, remove_of("k")), result::kRoleViolation);
  EXPECT_EQ(client.info("truncate:namespace=lmcache;set=kv_chunks"), "ERROR:81:role violation");
}

TEST_F(SecurityTest, each_role_opens_what_it_is_for) {
  devserver::Options options;
  options.namespaces[0].nsup_period_s = 0;
  for (size_t i = 0; i < devserver::kRoles; ++i) {
    const auto role = static_cast<devserver::Role>(i);
    options.users.push_back({.name = std::string(devserver::role_name(role)),
                             .password = "pw1",
                             .roles = mask_of(role)});
  }
  start(std::move(options));
  const std::string denied = "ERROR:81:role violation";
  struct Rights {
    const char* role;
    bool reads, writes, truncates, configures;
  };
  for (const Rights& rights : {Rights{"read", true, false, false, false},
                               {"write", false, true, false, false},
                               {"read-write", true, true, false, false},
                               {"read-write-udf", true, true, false, false},
                               {"truncate", false, false, true, false},
                               {"data-admin", false, false, true, false},
                               {"sys-admin", false, false, false, true},
                               {"user-admin", false, false, false, false}}) {
    SCOPED_TRACE(rights.role);
    RawClient client = connect();
    ASSERT_EQ(login(client, rights.role), 0);
    const auto refused = [&](bool allowed) { return allowed ? 0 : int{result::kRoleViolation}; };
    EXPECT_EQ(ask_code(client, put_of("k", pattern(5, 1))), refused(rights.writes));
    EXPECT_EQ(ask_code(client, remove_of("none")),
              rights.writes ? int{result::kNotFound} : int{result::kRoleViolation});
    EXPECT_EQ(ask_code(client, exists_of("none")),
              rights.reads ? int{result::kNotFound} : int{result::kRoleViolation});
    EXPECT_EQ(client.info("truncate:namespace=lmcache;set=other"),
              rights.truncates ? "ok" : denied);
    EXPECT_EQ(client.info("set-config:context=namespace;namespace=lmcache;default-ttl=0"),
              rights.configures ? "ok" : denied);
    EXPECT_EQ(client.info("recluster:"), rights.configures ? "ok" : denied);
    EXPECT_EQ(client.info("node"), "A1");
    EXPECT_EQ(client.info("edition"), "Aerospike Enterprise Edition");
  }
}

TEST_F(SecurityTest, users_change_while_their_sessions_are_open) {
  start_with_users();
  RawClient client = connect();
  ASSERT_EQ(login(client, "u1"), 0);
  EXPECT_EQ(ask_code(client, put_of("k", pattern(5, 1))), 0);
  ASSERT_TRUE(server_->set_user(
      {.name = "u1", .password = "other", .roles = mask_of(devserver::Role::read)}));
  EXPECT_EQ(ask_code(client, put_of("k", pattern(5, 1))), result::kRoleViolation);
  EXPECT_EQ(ask_code(client, get_of("k")), 0);
  RawClient second = connect();
  EXPECT_EQ(login(second, "u1"), result::kInvalidCredential);  // the old password
  EXPECT_EQ(authenticate(second, "u1", token_), 0);            // its token goes on
  server_->expire_sessions();
  EXPECT_EQ(ask_code(second, get_of("k")), result::kNotAuthenticated);
  EXPECT_EQ(authenticate(second, "u1", token_), result::kExpiredSession);
  ASSERT_EQ(login(second, "reader"), 0);
  ASSERT_TRUE(server_->drop_user("reader"));
  EXPECT_EQ(ask_code(second, get_of("k")), result::kNotAuthenticated);
  EXPECT_EQ(authenticate(second, "reader", token_), result::kInvalidUser);
  EXPECT_EQ(login(second, "reader"), result::kInvalidUser);
  EXPECT_FALSE(server_->drop_user("reader"));
  ASSERT_TRUE(server_->set_user({.name = "reader", .password = "pw1"}));
  EXPECT_EQ(authenticate(second, "reader", token_), result::kInvalidCredential);
  EXPECT_EQ(login(second, "reader"), 0);
}

TEST_F(SecurityTest, quotas_count_each_kind_of_request_by_itself) {
  devserver::Options options;
  options.users = {{.name = "u1", .password = "pw1", .write_quota = 3}};
  start(std::move(options));
  RawClient client = connect();
  ASSERT_EQ(login(client, "u1"), 0);
  int refused = 0;
  for (int i = 0; i < 10; ++i) {  // within two seconds at most
    const uint8_t code = ask_code(client, put_of("k", pattern(5, 1)));
    refused += code == result::kQuotaExceeded ? 1 : 0;
    EXPECT_TRUE(code == 0 || code == result::kQuotaExceeded);
  }
  EXPECT_GE(refused, 4);
  EXPECT_EQ(ask_code(client, exists_of("k")), 0);
}

TEST_F(SecurityTest, directories_and_certificates_know_no_hashed_password) {
  devserver::Options options;
  options.users = {{.name = "ldap", .password = "pw1", .login = devserver::Login::external}};
  start(std::move(options));
  RawClient client = connect();
  EXPECT_EQ(login(client, "ldap"), result::kInvalidCredential);
  const auto external = [&](const std::string& password) {
    const auto answer = client.ask(
        security_request(20, {{0, "ldap"}, {3, std::string(kCredential)}, {4, password}}));
    return answer ? std::to_integer<uint8_t>((*answer)[9]) : uint8_t{255};
  };
  EXPECT_EQ(external("pw2"), result::kInvalidCredential);
  EXPECT_EQ(external("pw1"), 0);
  EXPECT_EQ(ask_code(client, put_of("k", pattern(5, 1))), 0);
  const auto answer = client.ask(security_request(20, {}));  // by a certificate that is not there
  ASSERT_TRUE(answer);
  EXPECT_EQ(answer->at(9), std::byte{result::kInvalidCredential});
  devserver::Options pki;
  pki.users = {{.name = "bob", .password = "", .login = devserver::Login::pki}};
  EXPECT_FALSE(devserver::DevServer::start(std::move(pki)));  // without TLS
}

TEST_F(SecurityTest, users_in_the_form_of_the_command_line) {
  using devserver::Role;
  const auto plain = devserver::parse_user("u:p");
  ASSERT_TRUE(plain);
  EXPECT_EQ(plain->roles, mask_of(Role::read_write));
  const auto full = devserver::parse_user("u:a:b:read+sys-admin:external");
  ASSERT_TRUE(full);
  EXPECT_EQ(full->password, "a:b");
  EXPECT_EQ(full->roles, mask_of(Role::read) | mask_of(Role::sys_admin));
  EXPECT_EQ(full->login, devserver::Login::external);
  const auto pki = devserver::parse_user("u::write:pki");
  ASSERT_TRUE(pki);
  EXPECT_EQ(pki->password, "");
  EXPECT_EQ(pki->roles, mask_of(Role::write));
  EXPECT_EQ(devserver::parse_user("u:read")->password, "read");
  EXPECT_FALSE(devserver::parse_user("u"));
  EXPECT_FALSE(devserver::parse_user(":p"));
}

TEST_F(SecurityTest, damaged_security_messages_are_refused) {
  start_with_users();
  for (uint8_t command = 0; command < 24; ++command) {
    RawClient client = connect();
    for (const auto& fields : std::vector<std::vector<std::pair<uint8_t, std::string>>>{
             {}, {{0, ""}}, {{0, "u1"}, {10, "\x05"}}, {{0, "u1"}, {1, "x"}, {10, "\x01\x20x"}}}) {
      const auto answer = client.ask(security_request(command, fields));
      ASSERT_TRUE(answer) << int{command};
      EXPECT_NE(answer->at(9), std::byte{0}) << int{command};
    }
    EXPECT_EQ(ask_code(client, get_of("k")), result::kNotAuthenticated);
  }
}

TEST_F(SecurityTest, without_users_logins_are_answered_as_by_the_community_edition) {
  start();
  RawClient client = connect();
  EXPECT_EQ(login(client, "u1"), result::kSecurityNotSupported);
  EXPECT_EQ(authenticate(client, "u1", "x"), result::kSecurityNotSupported);
  EXPECT_EQ(ask_code(client, put_of("k", pattern(5, 1))), 0);
}

}  // namespace
}  // namespace aerokv::devserver_test
