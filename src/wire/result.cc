// SPDX-License-Identifier: Apache-2.0
#include "wire/result.h"

#include <algorithm>
#include <array>
#include <string>

namespace aerokv::wire {
namespace {

struct Row {
  uint8_t code;
  Code status;
  Retry retry;
  std::string_view name;
};

using enum Retry;

// Sorted by code. Source: server result code table (docs/formats/wire.md#result-codes).
constexpr std::array kRows = {
    Row{0, Code::ok, never, "ok"},
    Row{1, Code::unavailable, never, "generic server error"},
    Row{2, Code::not_found, never, "not found"},
    Row{3, Code::conflict, never, "generation mismatch"},
    Row{4, Code::invalid, never, "parameter error"},
    Row{5, Code::conflict, never, "record exists"},
    Row{6, Code::conflict, never, "bin exists"},
    Row{7, Code::unavailable, at_once, "cluster key mismatch"},
    Row{8, Code::overloaded, back_off, "out of space (stop-writes)"},
    Row{9, Code::timeout, at_once, "server-side timeout"},
    Row{10, Code::denied, never, "always forbidden"},
    Row{11, Code::unavailable, at_once, "partition unavailable"},
    Row{12, Code::invalid, never, "incompatible bin type"},
    Row{13, Code::too_big, never, "record too big"},
    Row{14, Code::overloaded, back_off, "key busy"},
    Row{15, Code::unavailable, never, "query aborted"},
    Row{16, Code::invalid, never, "unsupported feature"},
    Row{17, Code::invalid, never, "bin not found"},
    Row{18, Code::overloaded, back_off, "device overload"},
    Row{19, Code::conflict, never, "key mismatch"},
    Row{20, Code::denied, never, "unknown namespace"},
    Row{21, Code::invalid, never, "bin name invalid"},
    Row{22, Code::denied, never, "forbidden"},
    Row{25, Code::denied, never, "enterprise only"},
    Row{26, Code::invalid, never, "operation not applicable"},
    Row{27, Code::not_found, never, "filtered out"},
    Row{28, Code::conflict, never, "lost conflict"},
    Row{29, Code::invalid, never, "invalid encoding"},
    Row{32, Code::overloaded, back_off, "key busy (replication)"},
    Row{50, Code::ok, never, "end of list"},
    Row{51, Code::denied, never, "security not supported by this edition"},
    Row{52, Code::ok, never, "security not enabled"},
    Row{53, Code::invalid, never, "security scheme unknown"},
    Row{54, Code::invalid, never, "security command invalid"},
    Row{55, Code::invalid, never, "security field invalid"},
    Row{56, Code::invalid, never, "illegal state"},
    Row{60, Code::denied, never, "unknown user"},
    Row{61, Code::denied, never, "user exists"},
    Row{62, Code::denied, never, "invalid password"},
    Row{63, Code::denied, never, "expired password"},
    Row{64, Code::denied, never, "forbidden password"},
    Row{65, Code::denied, log_in, "invalid credential"},
    Row{66, Code::denied, log_in, "expired session"},
    Row{80, Code::denied, log_in, "not authenticated"},
    Row{81, Code::denied, never, "role violation"},
    Row{82, Code::denied, never, "not whitelisted"},
    Row{83, Code::overloaded, back_off, "quota exceeded"},
    Row{100, Code::invalid, never, "UDF execution error"},
    Row{150, Code::denied, never, "batch requests disabled"},
    Row{151, Code::denied, never, "too many batch rows"},
    Row{152, Code::overloaded, back_off, "batch queues full"},
    Row{210, Code::overloaded, back_off, "query aborted"},
    Row{211, Code::overloaded, back_off, "query queue full"},
    Row{212, Code::overloaded, back_off, "query timeout"},
    Row{213, Code::unavailable, back_off, "query error"},
};

const Row* find_row(uint8_t code) {
  const auto it = std::lower_bound(kRows.begin(), kRows.end(), code,
                                   [](const Row& row, uint8_t c) { return row.code < c; });
  return it != kRows.end() && it->code == code ? &*it : nullptr;
}

}  // namespace

std::string_view result_name(uint8_t code) {
  const Row* row = find_row(code);
  return row == nullptr ? "unnamed code" : row->name;
}

Retry result_retry(uint8_t code) {
  const Row* row = find_row(code);
  return row == nullptr ? never : row->retry;
}

Status status_from_result(uint8_t code, std::string_view what) {
  if (code == result::kOk) return {};
  const Row* row = find_row(code);
  return {row == nullptr ? Code::unavailable : row->status,
          std::string(what) + ": server answered code " + std::to_string(code) + " (" +
              std::string(result_name(code)) + ")",
          code};
}

}  // namespace aerokv::wire
