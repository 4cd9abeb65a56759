// SPDX-License-Identifier: Apache-2.0
#include "wire/result.h"

#include <gtest/gtest.h>

#include <string>

namespace aerokv::wire {
namespace {

TEST(ResultCodes, EveryByteIsHandled) {
  int named = 0;
  for (unsigned code = 0; code < 256; ++code) {
    const auto byte = static_cast<uint8_t>(code);
    EXPECT_FALSE(result_name(byte).empty());
    const Status status = status_from_result(byte, "get abc");
    if (code == result::kOk) {
      EXPECT_TRUE(status.ok());
      continue;
    }
    // Codes that a caller may treat as success still say which code it was.
    EXPECT_EQ(status.server_result(), code);
    EXPECT_NE(status.message().find("get abc: server answered code " + std::to_string(code)),
              std::string::npos)
        << status.message();
    if (result_name(byte) != result_name(199)) ++named;
  }
  EXPECT_GT(named, 50);
  EXPECT_EQ(result_name(199), result_name(198));
  EXPECT_EQ(status_from_result(199, "x").code(), Code::unavailable);
}

TEST(ResultCodes, WhatACallerMustDo) {
  struct Row {
    uint8_t code;
    Code status;
  };
  using namespace result;
  for (const Row& row :
       {Row{kNotFound, Code::not_found}, Row{kGeneration, Code::conflict},
        Row{kParameter, Code::invalid}, Row{kRecordExists, Code::conflict},
        Row{kOutOfSpace, Code::overloaded}, Row{kTimeout, Code::timeout},
        Row{kUnavailable, Code::unavailable}, Row{kRecordTooBig, Code::too_big},
        Row{kKeyBusy, Code::overloaded}, Row{kDeviceOverload, Code::overloaded},
        Row{kNamespace, Code::denied}, Row{kForbidden, Code::denied},
        Row{kSecurityNotSupported, Code::denied}, Row{kExpiredSession, Code::denied},
        Row{kNotAuthenticated, Code::denied}, Row{kInvalidPassword, Code::denied},
        Row{kBatchMaxRequests, Code::denied}, Row{kBatchQueuesFull, Code::overloaded}}) {
    EXPECT_EQ(status_from_result(row.code, "x").code(), row.status) << int{row.code};
  }
}

}  // namespace
}  // namespace aerokv::wire
