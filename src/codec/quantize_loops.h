// SPDX-License-Identifier: Apache-2.0
// The loops behind quantize.h, compiled once for each instruction set.
#pragma once

#include <cstddef>
#include <cstdint>

namespace aerokv::codec {

inline constexpr size_t kQuantizeScratchPerColumn = 17;

/// One matrix as quantize.h describes it. Nothing is aligned but the scratch.
struct QuantizeBlock {
  size_t rows;
  size_t columns;
  size_t group;
  /// Four arrays of one value of 4 bytes per column, then one of bytes.
  std::byte* scratch;
};

/// False if a value, or an extreme, is not fit. Then the output is unspecified.
using Quantize = bool (*)(const QuantizeBlock& block, const std::byte* source, std::byte* lows,
                          std::byte* highs, std::byte* codes);
using Dequantize = bool (*)(const QuantizeBlock& block, const std::byte* lows,
                            const std::byte* highs, const std::byte* codes, std::byte* target);

/// For one type of elements.
struct QuantizeLoops {
  Quantize quantize_8;
  Quantize quantize_4;
  Dequantize dequantize_8;
  Dequantize dequantize_4;
};

/// By type: bfloat16, float16, float32.
using QuantizeTable = QuantizeLoops[3];

const QuantizeTable& quantize_table_scalar();
#if defined(__x86_64__)
const QuantizeTable& quantize_table_avx2();
#endif

}  // namespace aerokv::codec
