// SPDX-License-Identifier: Apache-2.0
// Compiled with -mavx2; called only where the processor has it.
#include "wire/digest_lanes.h"
//
#include "wire/digest_lanes.inc"

namespace aerokv::wire {

#if defined(__x86_64__)
void ripemd160_lanes_avx2(const LaneMessages& messages, LaneDigests& digests) {
  lanes(messages, digests);
}
#endif

}  // namespace aerokv::wire
