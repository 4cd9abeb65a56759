// SPDX-License-Identifier: Apache-2.0
// Compiled with -mavx2; called only where the processor has it.
#if defined(__x86_64__)

#include "codec/planes_loops.inc"

namespace aerokv::codec {

const PlaneKernel kPlanesAvx2 = {split, merge};

}  // namespace aerokv::codec

#endif
