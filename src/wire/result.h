// SPDX-License-Identifier: Apache-2.0
// Result codes of the Aerospike server, and what each means for a caller.
#pragma once

#include <cstdint>
#include <string_view>

#include "aerokv/status.h"

namespace aerokv::wire {

/// The codes that this project names; any other byte is legal on the wire and handled as unknown.
namespace result {
inline constexpr uint8_t kOk = 0, kUnknown = 1, kNotFound = 2, kGeneration = 3, kParameter = 4,
                         kRecordExists = 5, kClusterKeyMismatch = 7, kOutOfSpace = 8, kTimeout = 9,
                         kUnavailable = 11, kIncompatibleType = 12, kRecordTooBig = 13,
                         kKeyBusy = 14, kScanAbort = 15, kUnsupported = 16, kDeviceOverload = 18,
                         kKeyMismatch = 19, kNamespace = 20, kBinName = 21, kForbidden = 22,
                         kEnterpriseOnly = 25, kOpNotApplicable = 26, kFilteredOut = 27,
                         kSecurityNotSupported = 51, kSecurityNotEnabled = 52, kInvalidCommand = 54,
                         kInvalidField = 55, kIllegalState = 56, kInvalidUser = 60,
                         kUserExists = 61, kInvalidPassword = 62, kExpiredPassword = 63,
                         kInvalidCredential = 65, kExpiredSession = 66, kNotAuthenticated = 80,
                         kRoleViolation = 81, kNotWhitelisted = 82, kQuotaExceeded = 83,
                         kBatchDisabled = 150, kBatchMaxRequests = 151, kBatchQueuesFull = 152;
}  // namespace result

/// A short name ("record too big"), "code N" for codes without one.
std::string_view result_name(uint8_t code);

/// The Status for `code`; ok for kOk. `what` names the operation and its object.
Status status_from_result(uint8_t code, std::string_view what);

}  // namespace aerokv::wire
