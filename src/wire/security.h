// SPDX-License-Identifier: Apache-2.0
// Login and authentication messages.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "wire/message.h"

namespace aerokv::wire {

/// The bcrypt text of `password` with the salt that all clients use; 60 characters.
/// Takes about 50 ms of CPU by design. Errors: invalid if the password is over its limit or holds
/// a NUL; internal if the system's libcrypt has no bcrypt.
Result<std::string> hash_password(std::string_view password);

/// First message on a node's tend connection. `credential` is the text of hash_password().
Status encode_login(std::string_view user, std::string_view credential,
                    std::vector<std::byte>& out);

/// The same where the server asks another system (LDAP) for `password`, which is sent as it is:
/// over TLS only.
Status encode_external_login(std::string_view user, std::string_view credential,
                             std::string_view password, std::vector<std::byte>& out);

/// The same where the certificate of the connection says who logs in.
void encode_certificate_login(std::vector<std::byte>& out);

/// First message on every other connection. `user` is empty after a login by certificate. `token`
/// comes from the login answer.
Status encode_authenticate(std::string_view user, Bytes token, std::vector<std::byte>& out);

struct SecurityAnswer {
  uint8_t result_code = 0;
  std::vector<std::byte> token;      ///< empty unless a login succeeded
  uint32_t session_ttl_seconds = 0;  ///< 0 = not given
};

/// The body of an answer to either message. Errors: protocol.
Result<SecurityAnswer> decode_security_answer(Bytes body);

}  // namespace aerokv::wire
