// SPDX-License-Identifier: Apache-2.0
// Users: login, sessions, permissions. The form of the messages is that of the protocol; which code
// is given when is ours where the enterprise server could not be recorded.
#include <gtest/gtest.h>

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

TEST_F(SecurityTest, without_users_logins_are_answered_as_by_the_community_edition) {
  start();
  RawClient client = connect();
  EXPECT_EQ(login(client, "u1"), result::kSecurityNotSupported);
  EXPECT_EQ(authenticate(client, "u1", "x"), result::kSecurityNotSupported);
  EXPECT_EQ(ask_code(client, put_of("k", pattern(5, 1))), 0);
}

}  // namespace
}  // namespace aerokv::devserver_test
