// SPDX-License-Identifier: Apache-2.0
#include "aerokv/tensor.h"

#include <array>

namespace aerokv {
namespace {

constexpr std::array<std::string_view, kDTypes> kNames = {
    "bool",    "uint8",         "int8",        "int16",           "int32",
    "int64",   "float8_e4m3fn", "float8_e5m2", "float8_e4m3fnuz", "float8_e5m2fnuz",
    "float16", "bfloat16",      "float32",     "float64"};

// Far above every object, far below every overflow: eight bytes each still fit into 64 bits.
constexpr uint64_t kElementsMax = uint64_t{1} << 48;

Status too_many(const TensorLayout& tensor) {
  return {Code::invalid, "shape of " + layout_text({tensor}) + ": more than 2^48 elements"};
}

}  // namespace

std::string_view dtype_name(DType dtype) {
  return kNames[static_cast<size_t>(dtype)];
}

std::optional<DType> parse_dtype(std::string_view name) {
  constexpr std::string_view kPrefix = "torch.";
  if (name.substr(0, kPrefix.size()) == kPrefix) name.remove_prefix(kPrefix.size());
  for (size_t i = 0; i < kNames.size(); ++i) {
    if (kNames[i] == name) return static_cast<DType>(i);
  }
  return std::nullopt;
}

Result<uint64_t> element_count(const TensorLayout& tensor) {
  uint64_t count = 1;
  for (const int64_t dimension : tensor.shape) {
    if (dimension < 0) {
      return Status(Code::invalid, "shape of " + layout_text({tensor}) + ": negative dimension");
    }
    const auto size = static_cast<uint64_t>(dimension);
    if (size > kElementsMax || (count != 0 && size > kElementsMax / count)) return too_many(tensor);
    count *= size;
  }
  return count;
}

Result<uint64_t> element_count(const Layout& layout) {
  uint64_t total = 0;
  for (const TensorLayout& tensor : layout) {
    const Result<uint64_t> count = element_count(tensor);
    if (!count) return count.error();
    total += *count;
    if (total > kElementsMax) return too_many(tensor);
  }
  return total;
}

Result<uint64_t> layout_bytes(const Layout& layout) {
  const Result<uint64_t> elements = element_count(layout);
  if (!elements) return elements.error();
  uint64_t total = 0;
  for (const TensorLayout& tensor : layout) {
    total += *element_count(tensor) * dtype_bytes(tensor.dtype);
  }
  return total;
}

std::string layout_text(const Layout& layout) {
  std::string text;
  for (const TensorLayout& tensor : layout) {
    if (!text.empty()) text += " + ";
    text += dtype_name(tensor.dtype);
    text += '[';
    for (size_t i = 0; i < tensor.shape.size(); ++i) {
      if (i > 0) text += ", ";
      text += std::to_string(tensor.shape[i]);
    }
    text += ']';
  }
  return text.empty() ? "no tensors" : text;
}

}  // namespace aerokv
