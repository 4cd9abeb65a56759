// SPDX-License-Identifier: Apache-2.0
// Compiled for the baseline.
#include "codec/planes_loops.inc"

namespace aerokv::codec {

const PlaneKernel kPlanesScalar = {split, merge};

}  // namespace aerokv::codec
