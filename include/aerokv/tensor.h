// SPDX-License-Identifier: Apache-2.0
// What the bytes of an object mean: element types and shapes.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "aerokv/bytes.h"
#include "aerokv/status.h"

namespace aerokv {

/// Element types that a KV cache or a recurrent state can have. Names are torch's.
enum class DType : uint8_t {
  boolean,
  uint8,
  int8,
  int16,
  int32,
  int64,
  float8_e4m3fn,
  float8_e5m2,
  float8_e4m3fnuz,
  float8_e5m2fnuz,
  float16,
  bfloat16,
  float32,
  float64,
};
inline constexpr size_t kDTypes = 14;

/// Bytes of one element.
constexpr size_t dtype_bytes(DType dtype) {
  switch (dtype) {
    case DType::int16:
    case DType::float16:
    case DType::bfloat16:
      return 2;
    case DType::int32:
    case DType::float32:
      return 4;
    case DType::int64:
    case DType::float64:
      return 8;
    default:
      return 1;
  }
}

/// "bfloat16", as torch writes it without "torch.".
std::string_view dtype_name(DType dtype);

/// The type called `name`, with or without "torch."; nothing for other names.
std::optional<DType> parse_dtype(std::string_view name);

/// One dense tensor in row-major order.
struct TensorLayout {
  DType dtype = DType::uint8;
  std::vector<int64_t> shape;  ///< empty = a scalar
  bool operator==(const TensorLayout&) const = default;
};

/// The tensors of one object, stored one behind the other without padding, as LMCache lays out the
/// groups of a memory object.
using Layout = std::vector<TensorLayout>;

/// The product of the dimensions. Errors: invalid (a negative dimension, or more than 2^48
/// elements).
Result<uint64_t> element_count(const TensorLayout& tensor);
Result<uint64_t> element_count(const Layout& layout);

/// Bytes of all tensors together. Errors: as element_count().
Result<uint64_t> layout_bytes(const Layout& layout);

/// "bfloat16[2, 32, 256, 1024] + float16[8]", for messages.
std::string layout_text(const Layout& layout);

}  // namespace aerokv
