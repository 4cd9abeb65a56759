// SPDX-License-Identifier: Apache-2.0
// Elements taken apart into their bytes: all lowest bytes first, all highest last. What is alike in
// neighbouring elements (the exponents) then lies together.
#pragma once

#include <array>

#include "aerokv/bytes.h"
#include "aerokv/tensor.h"
#include "codec/kernels.h"

namespace aerokv::codec {

inline constexpr size_t kPlanesMax = 4;

struct PlaneShape {
  uint8_t planes = 1;  ///< bytes of an element: 1 (nothing to take apart), 2 or 4
  /// Elements are rotated left by one bit first: the sign leaves the exponent's byte, and the
  /// exponents of bfloat16 and float32 have a byte of their own.
  bool is_rotated = false;
};

/// How elements of `dtype` are taken apart: floats of 16 and 32 bits rotated, integers of 16 and 32
/// bits as they are, all others not at all.
PlaneShape plane_shape(DType dtype);

/// Where each plane begins; as many are used as the shape has planes.
using PlanePointers = std::array<std::byte*, kPlanesMax>;
using ConstPlanePointers = std::array<const std::byte*, kPlanesMax>;

/// Takes `source`, a whole number of elements, apart. Each plane has room for a byte of each
/// element; nothing overlaps. No alignment is asked. Requires 2 or 4 planes.
void split_planes(Bytes source, PlaneShape shape, const PlanePointers& planes, Kernel kernel);

/// Puts together what split_planes() took apart.
void merge_planes(const ConstPlanePointers& planes, PlaneShape shape, MutableBytes target,
                  Kernel kernel);

}  // namespace aerokv::codec
