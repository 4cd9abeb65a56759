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
    Retry retry;
  };
  using namespace result;
  for (const Row& row :
       {Row{kNotFound, Code::not_found, Retry::never},
        Row{kGeneration, Code::conflict, Retry::never},
        Row{kParameter, Code::invalid, Retry::never},
        Row{kRecordExists, Code::conflict, Retry::never},
        Row{kOutOfSpace, Code::overloaded, Retry::back_off},
        Row{kTimeout, Code::timeout, Retry::at_once},
        Row{kUnavailable, Code::unavailable, Retry::at_once},
        Row{kRecordTooBig, Code::too_big, Retry::never},
        Row{kKeyBusy, Code::overloaded, Retry::back_off},
        Row{kDeviceOverload, Code::overloaded, Retry::back_off},
        Row{kNamespace, Code::denied, Retry::never}, Row{kForbidden, Code::denied, Retry::never},
        Row{kSecurityNotSupported, Code::denied, Retry::never},
        Row{kExpiredSession, Code::denied, Retry::log_in},
        Row{kNotAuthenticated, Code::denied, Retry::log_in},
        Row{kInvalidPassword, Code::denied, Retry::never},
        Row{kBatchMaxRequests, Code::denied, Retry::never},
        Row{kBatchQueuesFull, Code::overloaded, Retry::back_off}}) {
    EXPECT_EQ(status_from_result(row.code, "x").code(), row.status) << int{row.code};
    EXPECT_EQ(result_retry(row.code), row.retry) << int{row.code};
  }
  EXPECT_EQ(result_retry(199), Retry::never);
}

}  // namespace
}  // namespace aerokv::wire
