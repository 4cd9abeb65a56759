// SPDX-License-Identifier: Apache-2.0
// Stores with a defect, to see that it is found.
#pragma once

#include <memory>

#include "aerokv/store.h"
#include "tests/chaos/traffic.h"

namespace aerokv::chaos {

enum class Defect : uint8_t {
  flipped_byte,       ///< a load has one wrong byte
  stale_half,         ///< a load ends with a part of an older version
  foreign_object,     ///< a load has another key's object
  old_version,        ///< a load has an older version, whole: unlawful in calm weather alone
  lost_store,         ///< a store is called good, but nothing was stored: in calm weather alone
  ghost,              ///< a removal is called good, but nothing was removed: in calm weather alone
  overrun,            ///< a load writes behind its buffer
  lost_completion,    ///< a batch never ends
  late_completion,    ///< a batch ends long after its deadline
  leaked_descriptor,  ///< each store that is opened leaves one behind
};

/// The defect shows from the first death or freeze of a node on, or always if `at_once`.
Wrap plant(Defect defect, bool at_once);

}  // namespace aerokv::chaos
