// SPDX-License-Identifier: Apache-2.0
// The loops of planes.h, compiled once for each instruction set.
#pragma once

#include "codec/planes.h"

namespace aerokv::codec {

struct PlaneKernel {
  void (*split)(Bytes source, PlaneShape shape, const PlanePointers& planes);
  void (*merge)(const ConstPlanePointers& planes, PlaneShape shape, MutableBytes target);
};

extern const PlaneKernel kPlanesScalar;
#if defined(__x86_64__)
extern const PlaneKernel kPlanesAvx2;
extern const PlaneKernel kPlanesAvx512;
#endif

}  // namespace aerokv::codec
