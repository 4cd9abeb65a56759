// SPDX-License-Identifier: Apache-2.0
#include "codec/quantize.h"

#include <algorithm>
#include <cfenv>
#include <cmath>
#include <limits>
#include <memory>

#include "codec/quantize_loops.h"

namespace aerokv::codec {
namespace {

/// Rounding to nearest and subnormal numbers as they are, whatever the thread has set.
class PlainFloats {
 public:
  PlainFloats() {
    std::fegetenv(&before_);
    std::fesetenv(FE_DFL_ENV);
  }
  ~PlainFloats() { std::fesetenv(&before_); }
  PlainFloats(const PlainFloats&) = delete;
  PlainFloats& operator=(const PlainFloats&) = delete;

 private:
  std::fenv_t before_{};
};

const QuantizeLoops& loops_of(DType dtype, Kernel kernel) {
  const QuantizeTable* table = &quantize_table_scalar();
#if defined(__x86_64__)
  if (kernel == Kernel::avx2 || kernel == Kernel::avx512) table = &quantize_table_avx2();
#else
  static_cast<void>(kernel);
#endif
  return (*table)[dtype == DType::bfloat16 ? 0 : dtype == DType::float16 ? 1 : 2];
}

class Block {
 public:
  explicit Block(const QuantizeShape& shape)
      : scratch_(
            std::make_unique_for_overwrite<std::byte[]>(kQuantizeScratchPerColumn * shape.columns)),
        block_{shape.rows, shape.columns, shape.group, scratch_.get()} {}
  [[nodiscard]] const QuantizeBlock& get() const { return block_; }

 private:
  std::unique_ptr<std::byte[]> scratch_;
  QuantizeBlock block_;
};

double value_at(DType dtype, Bytes source, uint64_t index) {
  const std::byte* const at = source.data() + index * dtype_bytes(dtype);
  if (dtype == DType::float32) {
    float value = 0;
    std::memcpy(&value, at, sizeof value);
    return value;
  }
  uint16_t bits = 0;
  std::memcpy(&bits, at, sizeof bits);
  if (dtype == DType::bfloat16) return std::bit_cast<float>(static_cast<uint32_t>(bits) << 16);
  const int exponent = (bits >> 10) & 31;
  const int mantissa = bits & 0x3ff;
  if (exponent == 31) return std::numeric_limits<double>::quiet_NaN();
  return exponent == 0 ? std::ldexp(mantissa, -24) : std::ldexp(mantissa + 1024, exponent - 25);
}

/// Only after the loops have refused the matrix: one element by one, in order.
uint64_t first_unfit(const QuantizeShape& shape, Bytes source) {
  const uint64_t count = shape.rows * shape.columns;
  for (uint64_t i = 0; i < count; ++i) {
    if (!std::isfinite(value_at(shape.dtype, source, i))) return i;
  }
  struct Range {
    double low = std::numeric_limits<double>::infinity();
    double high = -std::numeric_limits<double>::infinity();
  };
  std::unique_ptr<Range[]> ranges = std::make_unique<Range[]>(shape.groups());
  for (uint64_t i = 0; i < count; ++i) {
    Range& range = ranges[shape.group == 0 ? i % shape.columns : i / shape.group];
    const double value = value_at(shape.dtype, source, i);
    range.low = std::min(range.low, value);
    range.high = std::max(range.high, value);
    if (range.high - range.low > std::numeric_limits<float>::max()) return i;
  }
  return 0;
}

}  // namespace

bool is_quantizable(DType dtype) {
  return dtype == DType::bfloat16 || dtype == DType::float16 || dtype == DType::float32;
}

std::optional<uint64_t> quantize(const QuantizeShape& shape, Bytes source, MutableBytes lows,
                                 MutableBytes highs, MutableBytes codes, Kernel kernel) {
  const PlainFloats plain;
  const QuantizeLoops& loops = loops_of(shape.dtype, kernel);
  const Quantize quantize = shape.bits == CodeBits::eight ? loops.quantize_8 : loops.quantize_4;
  const Block block(shape);
  if (quantize(block.get(), source.data(), lows.data(), highs.data(), codes.data())) return {};
  return first_unfit(shape, source);
}

bool dequantize(const QuantizeShape& shape, Bytes lows, Bytes highs, Bytes codes,
                MutableBytes target, Kernel kernel) {
  const PlainFloats plain;
  const QuantizeLoops& loops = loops_of(shape.dtype, kernel);
  const Dequantize dequantize =
      shape.bits == CodeBits::eight ? loops.dequantize_8 : loops.dequantize_4;
  const Block block(shape);
  return dequantize(block.get(), lows.data(), highs.data(), codes.data(), target.data());
}

}  // namespace aerokv::codec
