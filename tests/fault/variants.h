// SPDX-License-Identifier: Apache-2.0
// Every way in which the fault plan can make one request fail.
#pragma once

#include <string>
#include <vector>

#include "devserver/faults.h"

namespace aerokv::testing {

/// One way to fail, and what may be expected of an operation that meets it.
struct Variant {
  std::string name;
  devserver::Fault fault;  ///< without kinds, digests, skip and count
  /// From the n-th request on everything fails, not only the n-th.
  bool persistent = false;
  /// A single failure of a request is cured by trying again.
  bool cured = false;
  /// The same, if the answer concerned carries bins.
  bool cured_with_bins = false;
  /// What the client gave up may still be executed later.
  bool executes_late = false;
  bool freezes = false;
  /// Only a hash of the payload can find it.
  bool needs_hash = false;
};

/// What the fault is applied to.
enum class Aim : uint8_t {
  record,   ///< single-record requests of one object, by their digests
  row,      ///< rows of batches of one object, by their digests
  message,  ///< batch messages
};

const char* aim_name(Aim aim);

/// All variants that make sense for `aim`.
std::vector<Variant> variants_for(Aim aim);

}  // namespace aerokv::testing
