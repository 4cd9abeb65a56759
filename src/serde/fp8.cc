// SPDX-License-Identifier: Apache-2.0
// One byte per element and nothing else. docs/formats/fp8.md
#include "codec/fp8.h"

#include <algorithm>
#include <cstring>
#include <string>
#include <utility>
#include <vector>

#include "serde/builtin.h"
#include "serde/params.h"

namespace aerokv::serde {
namespace {

using codec::Fp8Format;
using codec::Overflow;

// Long enough that handing out a slice costs nothing beside it, short enough that two workers end
// at about the same time.
constexpr uint64_t kSliceElements = uint64_t{512} << 10;

/// A run of elements of one tensor. Offsets are bytes of the object, and elements before it.
struct Slice {
  DType dtype;
  size_t object_at;
  size_t coded_at;
  size_t count;
};

bool is_copied(DType dtype) {
  return dtype_bytes(dtype) == 1;
}

/// Errors: invalid (a dtype that the format does not take; a shape).
Result<size_t> count_elements(const Layout& layout) {
  for (const TensorLayout& tensor : layout) {
    if (is_copied(tensor.dtype) || codec::is_fp8_source(tensor.dtype)) continue;
    return Status(Code::invalid, "fp8: " + std::string(dtype_name(tensor.dtype)) +
                                     ", expected bfloat16, float16, float32 or a type of 8 bits");
  }
  const Result<uint64_t> count = element_count(layout);
  if (!count) return count.error();
  return static_cast<size_t>(*count);
}

std::vector<Slice> cut(const Layout& layout) {
  std::vector<Slice> slices;
  size_t object_at = 0;
  size_t coded_at = 0;
  for (const TensorLayout& tensor : layout) {
    uint64_t rest = *element_count(tensor);
    while (rest > 0) {
      const auto count = static_cast<size_t>(std::min(rest, kSliceElements));
      slices.push_back({tensor.dtype, object_at, coded_at, count});
      object_at += count * dtype_bytes(tensor.dtype);
      coded_at += count;
      rest -= count;
    }
  }
  return slices;
}

class Fp8Serializer final : public Serializer {
 public:
  Fp8Serializer(Fp8Format format, Overflow overflow, double size_margin)
      : format_(format), overflow_(overflow), size_margin_(size_margin) {}

  [[nodiscard]] Result<size_t> estimate_serialized_size(const Layout& layout) const override {
    const Result<size_t> count = count_elements(layout);
    if (!count) return count.error();
    return static_cast<size_t>(static_cast<double>(*count) * size_margin_);
  }

  [[nodiscard]] bool is_exact_size() const override { return size_margin_ == 1.0; }

 private:
  Result<size_t> encode(const ObjectView& src, MutableBytes dst, const SerdeKey& /*key*/,
                        Parallel& parallel) const override {
    const Result<size_t> count = count_elements(src.layout);
    if (!count) return count.error();
    if (dst.size() < *count) {
      return Status(Code::invalid, "fp8: target of " + std::to_string(dst.size()) +
                                       " bytes, expected " + std::to_string(*count));
    }
    const codec::Stores stores = codec::stores_for(*count);
    const std::vector<Slice> slices = cut(src.layout);
    parallel.run(slices.size(), [&](size_t i) {
      const Slice& slice = slices[i];
      const Bytes from = src.bytes.subspan(slice.object_at, slice.count * dtype_bytes(slice.dtype));
      const MutableBytes to = dst.subspan(slice.coded_at, slice.count);
      if (is_copied(slice.dtype)) {
        std::memcpy(to.data(), from.data(), from.size());
      } else {
        codec::fp8_encode(slice.dtype, format_, overflow_, from, to, stores,
                          codec::active_kernel());
      }
    });
    return *count;
  }

  Fp8Format format_;
  Overflow overflow_;
  double size_margin_;
};

class Fp8Deserializer final : public Deserializer {
 public:
  explicit Fp8Deserializer(Fp8Format format) : format_(format) {}

 private:
  Status decode(Bytes src, const MutableObjectView& dst, const SerdeKey& /*key*/,
                Parallel& parallel) const override {
    const Result<size_t> count = count_elements(dst.layout);
    if (!count) return count.error();
    if (src.size() < *count) {
      return {Code::corruption,
              "fp8: " + std::to_string(src.size()) + " bytes, expected " + std::to_string(*count)};
    }
    const codec::Stores stores = codec::stores_for(dst.bytes.size());
    const std::vector<Slice> slices = cut(dst.layout);
    parallel.run(slices.size(), [&](size_t i) {
      const Slice& slice = slices[i];
      const Bytes from = src.subspan(slice.coded_at, slice.count);
      const MutableBytes to =
          dst.bytes.subspan(slice.object_at, slice.count * dtype_bytes(slice.dtype));
      if (is_copied(slice.dtype)) {
        std::memcpy(to.data(), from.data(), from.size());
      } else {
        codec::fp8_decode(format_, slice.dtype, from, to, stores, codec::active_kernel());
      }
    });
    return {};
  }

  Fp8Format format_;
};

}  // namespace

Result<Serde> make_fp8(const SerdeParams& params) {
  ParamReader reader("fp8", params);
  const size_t format = reader.choice("fp8_dtype", {"float8_e4m3fn", "float8_e5m2"}, 0);
  const size_t overflow = reader.choice("overflow", {"saturate", "nan"}, 0);
  const double size_margin = reader.number("size_margin", 1.0, 1.0, 4.0);
  AEROKV_TRY(reader.finish());
  const auto chosen = static_cast<Fp8Format>(format);
  return Serde{
      std::make_shared<Fp8Serializer>(chosen, static_cast<Overflow>(overflow), size_margin),
      std::make_shared<Fp8Deserializer>(chosen),
      chosen == Fp8Format::e4m3fn ? "fp8:float8_e4m3fn" : "fp8:float8_e5m2"};
}

}  // namespace aerokv::serde
