// SPDX-License-Identifier: Apache-2.0
// Floats to codes of 8 or 4 bits and back, with extremes per column or per run of a row. The rules
// are those of docs/formats/int.md; every kernel gives the same bytes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <optional>

#include "aerokv/bytes.h"
#include "aerokv/status.h"
#include "aerokv/tensor.h"
#include "codec/kernels.h"

namespace aerokv::codec {

enum class CodeBits : uint8_t { four = 4, eight = 8 };

/// Whether values of this type are quantized: float16, bfloat16, float32.
bool is_quantizable(DType dtype);

/// A matrix in row-major order.
struct QuantizeShape {
  DType dtype = DType::bfloat16;  ///< is_quantizable()
  CodeBits bits = CodeBits::eight;
  uint64_t rows = 0;
  uint64_t columns = 0;
  uint64_t group =
      0;  ///< columns of a row that share extremes; 0 = all rows of a column share them

  /// Groups of values with extremes of their own.
  [[nodiscard]] uint64_t groups() const { return group == 0 ? columns : rows * (columns / group); }
  /// Bytes of one extreme of each group.
  [[nodiscard]] uint64_t extreme_bytes() const { return groups() * dtype_bytes(dtype); }
  [[nodiscard]] uint64_t row_bytes() const {
    return bits == CodeBits::eight ? columns : (columns + 1) / 2;
  }
  [[nodiscard]] uint64_t code_bytes() const { return rows * row_bytes(); }
  [[nodiscard]] uint64_t source_bytes() const { return rows * columns * dtype_bytes(dtype); }
};

/// Quantizes a matrix. `group` divides the columns; `codes` has code_bytes(). With 8 bits `highs`
/// takes the largest absolute value of each group and `lows` is not used; with 4 bits they take the
/// least and the greatest. Each has groups() values of the source's type.
/// Returns the index of the first element that is NaN, infinite, or (4 bits) further than the
/// largest float32 from another of its group; nothing if all is well.
std::optional<uint64_t> quantize(const QuantizeShape& shape, Bytes source, MutableBytes lows,
                                 MutableBytes highs, MutableBytes codes,
                                 Kernel kernel = active_kernel());

/// The way back. False if an extreme is no finite number, or a low is above its high.
bool dequantize(const QuantizeShape& shape, Bytes lows, Bytes highs, Bytes codes,
                MutableBytes target, Kernel kernel = active_kernel());

}  // namespace aerokv::codec
