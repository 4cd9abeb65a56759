// SPDX-License-Identifier: Apache-2.0
#include "fuzz.h"
#include "wire/security.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const auto answer = aerokv::wire::decode_security_answer(aerokv::fuzz::input(data, size));
  if (answer) aerokv::fuzz::require(answer->token.size() <= size);
  return 0;
}
