// SPDX-License-Identifier: Apache-2.0
#include "wire/security.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace aerokv::wire {
namespace {

// Source: the official client logging in as u1 with password pw1.
constexpr std::string_view kCredential =
    "$2a$10$7EqJtq98hPqEX7fNZaFWoOdZ84ogg/FmYiH/vL4qjZ.UcZHP/hlmi";

TEST(Security, PasswordHash) {
  const auto hash = hash_password("pw1");
  ASSERT_TRUE(hash) << hash.error().message();
  EXPECT_EQ(*hash, kCredential);
}

TEST(Security, PasswordLimits) {
  EXPECT_TRUE(hash_password(std::string(63, 'p')));
  EXPECT_EQ(hash_password(std::string(64, 'p')).error().code(), Code::invalid);
  EXPECT_EQ(hash_password(std::string("a\0b", 3)).error().code(), Code::invalid);
  // A hash of the secret must not show in an error.
  EXPECT_EQ(hash_password(std::string(64, 'p')).error().message().find("ppp"), std::string::npos);
}

TEST(Security, LoginBytes) {
  std::vector<std::byte> out;
  ASSERT_TRUE(encode_login("u1", kCredential, out));
  std::string expected("\2\2\0\0\0\0\0\x58\0\0\x14\2", 12);
  expected += std::string(12, '\0');
  expected += std::string("\0\0\0\3\0u1\0\0\0\x3d\3", 12);
  expected += kCredential;
  EXPECT_EQ(as_text(out), expected);
}

TEST(Security, AuthenticateBytes) {
  std::vector<std::byte> out;
  ASSERT_TRUE(encode_authenticate("u1", as_bytes("TOKEN123"), out));
  std::string expected("\2\2\0\0\0\0\0\x24\0\0\0\2", 12);
  expected += std::string(12, '\0');
  expected += std::string("\0\0\0\3\0u1\0\0\0\x9\5TOKEN123", 20);
  EXPECT_EQ(as_text(out), expected);
}

TEST(Security, UserLimits) {
  std::vector<std::byte> out;
  EXPECT_TRUE(encode_login(std::string(63, 'u'), kCredential, out));
  EXPECT_EQ(encode_login(std::string(64, 'u'), kCredential, out).code(), Code::invalid);
  EXPECT_EQ(encode_login("", kCredential, out).code(), Code::invalid);
  EXPECT_EQ(encode_authenticate(std::string(64, 'u'), {}, out).code(), Code::invalid);
  EXPECT_EQ(encode_external_login("", kCredential, "pw1", out).code(), Code::invalid);
}

TEST(Security, ExternalLoginBytes) {
  std::vector<std::byte> out;
  ASSERT_TRUE(encode_external_login("u1", kCredential, "pw1", out));
  std::string expected("\2\2\0\0\0\0\0\x60\0\0\x14\3", 12);
  expected += std::string(12, '\0');
  expected += std::string("\0\0\0\3\0u1\0\0\0\x3d\3", 12);
  expected += kCredential;
  expected += std::string("\0\0\0\4\4pw1", 8);
  EXPECT_EQ(as_text(out), expected);
}

TEST(Security, CertificateLoginBytes) {
  std::vector<std::byte> out;
  encode_certificate_login(out);
  std::string expected("\2\2\0\0\0\0\0\x10\0\0\x14\0", 12);
  expected += std::string(12, '\0');
  EXPECT_EQ(as_text(out), expected);
  out.clear();
  ASSERT_TRUE(encode_authenticate("", as_bytes("TOKEN123"), out));
  expected = std::string("\2\2\0\0\0\0\0\x1d\0\0\0\1", 12);
  expected += std::string(12, '\0');
  expected += std::string("\0\0\0\x9\5TOKEN123", 13);
  EXPECT_EQ(as_text(out), expected);
}

std::string answer(uint8_t result, uint8_t field_count, std::string_view fields) {
  std::string body(16, '\0');
  body[1] = static_cast<char>(result);
  body[3] = static_cast<char>(field_count);
  return body.append(fields);
}

TEST(Security, LoginAnswer) {
  const std::string body =
      answer(0, 2, std::string_view("\0\0\0\x9\5TOKEN123\0\0\0\5\6\0\1\x51\x80", 22));
  const auto parsed = decode_security_answer(as_bytes(body));
  ASSERT_TRUE(parsed) << parsed.error().message();
  EXPECT_EQ(parsed->result_code, 0);
  EXPECT_EQ(as_text(parsed->token), "TOKEN123");
  EXPECT_EQ(parsed->session_ttl_seconds, 86400U);
}

TEST(Security, RefusalAndUnknownFields) {
  const auto refused = decode_security_answer(as_bytes(answer(51, 0, "")));
  ASSERT_TRUE(refused);
  EXPECT_EQ(refused->result_code, 51);
  EXPECT_TRUE(refused->token.empty());
  const std::string body = answer(0, 2, std::string_view("\0\0\0\2\x63x\0\0\0\3\6\0\1", 13));
  const auto other = decode_security_answer(as_bytes(body));
  ASSERT_TRUE(other);
  EXPECT_EQ(other->session_ttl_seconds, 0U);
}

TEST(Security, TruncatedAndHostileAnswers) {
  const std::string body =
      answer(0, 2, std::string_view("\0\0\0\x9\5TOKEN123\0\0\0\5\6\0\1\x51\x80", 22));
  for (size_t n = 0; n < body.size(); ++n) {
    const std::string cut = body.substr(0, n);
    const auto parsed = decode_security_answer(as_bytes(cut));
    ASSERT_FALSE(parsed) << n;
    EXPECT_EQ(parsed.error().code(), Code::protocol);
  }
  EXPECT_FALSE(decode_security_answer(as_bytes(answer(0, 255, ""))));
  EXPECT_FALSE(decode_security_answer(as_bytes(answer(0, 1, "\xff\xff\xff\xff\x05tok"))));
  std::string large("\0\0\x80\x02\5", 5);
  large += std::string(0x8001, 't');
  EXPECT_FALSE(decode_security_answer(as_bytes(answer(0, 1, large))));
}

}  // namespace
}  // namespace aerokv::wire
