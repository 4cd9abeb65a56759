// SPDX-License-Identifier: Apache-2.0
#include "wire/digest_lanes.h"
//
#include "wire/digest_lanes.inc"

namespace aerokv::wire {

void ripemd160_lanes_baseline(const LaneMessages& messages, LaneDigests& digests) {
  lanes(messages, digests);
}

}  // namespace aerokv::wire
