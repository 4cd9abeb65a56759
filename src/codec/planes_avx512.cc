// SPDX-License-Identifier: Apache-2.0
// Compiled with -mavx512bw and -mavx512vl; called only where the processor has them.
#if defined(__x86_64__)

#include "codec/planes_loops.inc"

namespace aerokv::codec {

const PlaneKernel kPlanesAvx512 = {split, merge};

}  // namespace aerokv::codec

#endif
