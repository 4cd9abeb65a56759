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
  std::string_view name;
};

// Sorted by code. Source: server result code table (docs/formats/wire.md#result-codes).
constexpr std::array kRows = {
    Row{0, Code::ok, "ok"},
    Row{1, Code::unavailable, "generic server error"},
    Row{2, Code::not_found, "not found"},
    Row{3, Code::conflict, "generation mismatch"},
    Row{4, Code::invalid, "parameter error"},
    Row{5, Code::conflict, "record exists"},
    Row{6, Code::conflict, "bin exists"},
    Row{7, Code::unavailable, "cluster key mismatch"},
    Row{8, Code::overloaded, "out of space (stop-writes)"},
    Row{9, Code::timeout, "server-side timeout"},
    Row{10, Code::denied, "always forbidden"},
    Row{11, Code::unavailable, "partition unavailable"},
    Row{12, Code::invalid, "incompatible bin type"},
    Row{13, Code::too_big, "record too big"},
    Row{14, Code::overloaded, "key busy"},
    Row{15, Code::unavailable, "query aborted"},
    Row{16, Code::invalid, "unsupported feature"},
    Row{17, Code::invalid, "bin not found"},
    Row{18, Code::overloaded, "device overload"},
    Row{19, Code::conflict, "key mismatch"},
    Row{20, Code::denied, "unknown namespace"},
    Row{21, Code::invalid, "bin name invalid"},
    Row{22, Code::denied, "forbidden"},
    Row{25, Code::denied, "enterprise only"},
    Row{26, Code::invalid, "operation not applicable"},
    Row{27, Code::not_found, "filtered out"},
    Row{28, Code::conflict, "lost conflict"},
    Row{29, Code::invalid, "invalid encoding"},
    Row{32, Code::overloaded, "key busy (replication)"},
    Row{50, Code::ok, "end of list"},
    Row{51, Code::denied, "security not supported by this edition"},
    Row{52, Code::ok, "security not enabled"},
    Row{53, Code::invalid, "security scheme unknown"},
    Row{54, Code::invalid, "security command invalid"},
    Row{55, Code::invalid, "security field invalid"},
    Row{56, Code::invalid, "illegal state"},
    Row{60, Code::denied, "unknown user"},
    Row{61, Code::denied, "user exists"},
    Row{62, Code::denied, "invalid password"},
    Row{63, Code::denied, "expired password"},
    Row{64, Code::denied, "forbidden password"},
    Row{65, Code::denied, "invalid credential"},
    Row{66, Code::denied, "expired session"},
    Row{80, Code::denied, "not authenticated"},
    Row{81, Code::denied, "role violation"},
    Row{82, Code::denied, "not whitelisted"},
    Row{83, Code::overloaded, "quota exceeded"},
    Row{100, Code::invalid, "UDF execution error"},
    Row{150, Code::denied, "batch requests disabled"},
    Row{151, Code::denied, "too many batch rows"},
    Row{152, Code::overloaded, "batch queues full"},
    Row{210, Code::overloaded, "query aborted"},
    Row{211, Code::overloaded, "query queue full"},
    Row{212, Code::overloaded, "query timeout"},
    Row{213, Code::unavailable, "query error"},
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

Status status_from_result(uint8_t code, std::string_view what) {
  if (code == result::kOk) return {};
  const Row* row = find_row(code);
  return {row == nullptr ? Code::unavailable : row->status,
          std::string(what) + ": server answered code " + std::to_string(code) + " (" +
              std::string(result_name(code)) + ")",
          code};
}

}  // namespace aerokv::wire
