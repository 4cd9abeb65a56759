// SPDX-License-Identifier: Apache-2.0
#include "codec/planes.h"

#include "codec/planes_kernels.h"

namespace aerokv::codec {
namespace {

const PlaneKernel& loops(Kernel kernel) {
#if defined(__x86_64__)
  if (kernel == Kernel::avx2) return kPlanesAvx2;
  if (kernel == Kernel::avx512) return kPlanesAvx512;
#endif
  static_cast<void>(kernel);
  return kPlanesScalar;
}

}  // namespace

PlaneShape plane_shape(DType dtype) {
  switch (dtype) {
    case DType::float16:
    case DType::bfloat16:
      return {2, true};
    case DType::int16:
      return {2, false};
    case DType::float32:
      return {4, true};
    case DType::int32:
      return {4, false};
    default:
      return {1, false};
  }
}

void split_planes(Bytes source, PlaneShape shape, const PlanePointers& planes, Kernel kernel) {
  loops(kernel).split(source, shape, planes);
}

void merge_planes(const ConstPlanePointers& planes, PlaneShape shape, MutableBytes target,
                  Kernel kernel) {
  loops(kernel).merge(planes, shape, target);
}

}  // namespace aerokv::codec
