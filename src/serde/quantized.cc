// SPDX-License-Identifier: Apache-2.0
// int8 and int4: tensors as codes with extremes beside them. docs/formats/int.md
#include <algorithm>
#include <atomic>
#include <limits>
#include <mutex>
#include <string>
#include <tuple>
#include <utility>

#include "codec/int_frame.h"
#include "serde/builtin.h"
#include "serde/params.h"

namespace aerokv::serde {
namespace {

using codec::CodeBits;
using codec::IntFormat;
using codec::IntPart;
using codec::IntPlan;

std::string name_of(CodeBits bits) {
  return bits == CodeBits::eight ? "int8" : "int4";
}

/// The places of one part in a frame.
template <typename Frame>
struct Sections {
  Frame lows;
  Frame highs;
  Frame codes;

  Sections(const IntPart& part, Frame frame)
      : lows(frame.subspan(part.lows_at,
                           part.shape.bits == CodeBits::four ? part.shape.extreme_bytes() : 0)),
        highs(frame.subspan(part.highs_at, part.shape.extreme_bytes())),
        codes(frame.subspan(part.codes_at, part.shape.code_bytes())) {}
};

/// The first element that could not be quantized, whichever thread finds which first.
class FirstUnfit {
 public:
  void note(size_t tensor, uint64_t element) {
    const std::scoped_lock lock(mutex_);
    first_ = std::min(first_, {tensor, element});
  }
  [[nodiscard]] Status status() const {
    if (first_.first == kNone) return {};
    return {Code::invalid, "tensor " + std::to_string(first_.first) + ", element " +
                               std::to_string(first_.second) +
                               ": NaN, infinite or too far from the others of its group"};
  }

 private:
  static constexpr size_t kNone = std::numeric_limits<size_t>::max();
  std::mutex mutex_;
  std::pair<size_t, uint64_t> first_ = {kNone, 0};  // guarded by mutex_ while parts run
};

class QuantizedSerializer final : public Serializer {
 public:
  explicit QuantizedSerializer(const IntFormat& format)
      : format_(format), name_(name_of(format.bits)) {}

  [[nodiscard]] Result<size_t> estimate_serialized_size(const Layout& layout) const override {
    const Result<IntPlan> plan = codec::plan_int_frame(format_, layout);
    if (!plan) return plan.error().with_context(name_);
    return plan->frame_bytes();
  }

  [[nodiscard]] bool is_exact_size() const override { return true; }

 private:
  Result<size_t> encode(const ObjectView& src, MutableBytes dst, const SerdeKey& /*key*/,
                        Parallel& parallel) const override {
    const Result<IntPlan> plan = codec::plan_int_frame(format_, src.layout);
    if (!plan) return plan.error().with_context(name_);
    if (dst.size() < plan->frame_bytes()) {
      return Status(Code::invalid, name_ + ": target of " + std::to_string(dst.size()) +
                                       " bytes, expected at least " +
                                       std::to_string(plan->frame_bytes()));
    }
    const MutableBytes frame = dst.first(plan->frame_bytes());
    codec::write_int_header(*plan, frame);
    const std::vector<IntPart> parts = plan->parts();
    FirstUnfit unfit;
    parallel.run(parts.size(), [&](size_t i) {
      const IntPart& part = parts[i];
      const Bytes source = src.bytes.subspan(part.source_at, part.source_bytes);
      if (part.is_raw) {
        std::ranges::copy(source, frame.begin() + static_cast<ptrdiff_t>(part.codes_at));
        return;
      }
      const Sections<MutableBytes> sections(part, frame);
      const auto bad = quantize(part.shape, source, sections.lows, sections.highs, sections.codes);
      if (bad) unfit.note(part.tensor, part.first_element + *bad);
    });
    AEROKV_TRY(unfit.status().with_context(name_));
    codec::seal_int_frame(*plan, frame);
    return plan->frame_bytes();
  }

  const IntFormat format_;
  const std::string name_;
};

class QuantizedDeserializer final : public Deserializer {
 public:
  explicit QuantizedDeserializer(CodeBits bits) : bits_(bits), name_(name_of(bits)) {}

 private:
  Status decode(Bytes src, const MutableObjectView& dst, const SerdeKey& /*key*/,
                Parallel& parallel) const override {
    const Result<IntPlan> plan = codec::open_int_frame(bits_, dst.layout, src);
    if (!plan) return plan.error().with_context(name_);
    const std::vector<IntPart> parts = plan->parts();
    std::atomic<bool> is_good{true};
    parallel.run(parts.size(), [&](size_t i) {
      const IntPart& part = parts[i];
      const MutableBytes target = dst.bytes.subspan(part.source_at, part.source_bytes);
      if (part.is_raw) {
        std::ranges::copy(src.subspan(part.codes_at, part.source_bytes), target.begin());
        return;
      }
      const Sections<Bytes> sections(part, src);
      if (!dequantize(part.shape, sections.lows, sections.highs, sections.codes, target)) {
        is_good.store(false);
      }
    });
    if (is_good.load()) return {};
    return {Code::corruption, name_ + ": frame with an extreme that is no finite number"};
  }

  const CodeBits bits_;
  const std::string name_;
};

Result<Serde> make(CodeBits bits, const SerdeParams& params) {
  const std::string name = name_of(bits);
  ParamReader reader(name, params);
  const int64_t head_dim = reader.integer("head_dim", 0, 0, 65536);
  AEROKV_TRY(reader.finish());
  const IntFormat format{bits, static_cast<uint32_t>(head_dim)};
  const std::string tag = head_dim == 0 ? name : name + ":" + std::to_string(head_dim);
  return Serde{std::make_shared<QuantizedSerializer>(format),
               std::make_shared<QuantizedDeserializer>(bits), tag};
}

}  // namespace

Result<Serde> make_int8(const SerdeParams& params) {
  return make(CodeBits::eight, params);
}

Result<Serde> make_int4(const SerdeParams& params) {
  return make(CodeBits::four, params);
}

}  // namespace aerokv::serde
