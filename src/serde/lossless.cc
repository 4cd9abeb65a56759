// SPDX-License-Identifier: Apache-2.0
#include "codec/lossless.h"

#include <cstring>
#include <mutex>
#include <vector>

#include "codec/kernels.h"
#include "codec/lossless_head.h"
#include "serde/builtin.h"
#include "serde/params.h"

namespace aerokv::serde {
namespace {

// The failure of the lowest part, so that what is reported does not depend on threads.
class FirstFailure {
 public:
  void add(size_t index, const Status& status) {
    const std::lock_guard lock(mutex_);
    if (!status_ && index_ <= index) return;
    index_ = index;
    status_ = status.with_context("lossless: block " + std::to_string(index));
  }

  /// After all parts.
  [[nodiscard]] const Status& status() const { return status_; }

 private:
  std::mutex mutex_;
  size_t index_ = 0;
  Status status_;
};

// Lays stored blocks one behind the other although nobody knows their sizes before. A block whose
// predecessors are all in place is written where it belongs (with one thread that is each); any
// other is written where it would be if nothing was compressed, and moved as soon as they are.
class Placement {
 public:
  Placement(const std::vector<codec::LosslessSlice>& slices, std::byte* start)
      : slices_(slices), start_(start), sizes_(slices.size()) {}

  /// Where to write block `index`; room for its source bytes is there.
  std::byte* begin(size_t index) {
    const std::lock_guard lock(mutex_);
    return start_ + (index == next_ ? end_ : slices_[index].offset);
  }

  /// Block `index` was written to `at`.
  void finish(size_t index, const std::byte* at, size_t size) {
    const std::lock_guard lock(mutex_);
    sizes_[index] = size;
    for (; next_ < sizes_.size() && sizes_[next_] != 0; ++next_) {
      const std::byte* from = next_ == index ? at : start_ + slices_[next_].offset;
      if (from != start_ + end_) std::memmove(start_ + end_, from, sizes_[next_]);
      end_ += sizes_[next_];
    }
  }

  /// After all parts: the bytes of all blocks.
  [[nodiscard]] size_t bytes() const { return end_; }

 private:
  const std::vector<codec::LosslessSlice>& slices_;
  std::byte* const start_;

  std::mutex mutex_;
  // Guarded by mutex_.
  std::vector<size_t> sizes_;  // 0 = not yet written
  size_t next_ = 0;            // all before are in place
  size_t end_ = 0;
};

class LosslessSerializer final : public Serializer {
 public:
  explicit LosslessSerializer(int level) : level_(level) {}

  [[nodiscard]] Result<size_t> estimate_serialized_size(const Layout& layout) const override {
    const Result<uint64_t> head =
        codec::LosslessPlan::head_bytes(layout, codec::kLosslessBlockBytes);
    if (!head) return head.error();
    return *head + *layout_bytes(layout);
  }

 private:
  Result<size_t> encode(const ObjectView& src, MutableBytes dst, const SerdeKey& /*key*/,
                        Parallel& parallel) const override {
    const Result<codec::LosslessPlan> plan =
        codec::LosslessPlan::make(src.layout, codec::kLosslessBlockBytes);
    if (!plan) return plan.error();
    const size_t needed = plan->head_bytes() + src.bytes.size();
    if (dst.size() < needed) {
      return Status(Code::invalid, "lossless: target of " + std::to_string(dst.size()) +
                                       " bytes, expected " + std::to_string(needed));
    }
    plan->write_head(src.layout, dst);
    Placement placement(plan->slices(), dst.data() + plan->head_bytes());
    FirstFailure failure;
    parallel.run(plan->slices().size(), [&](size_t index) {
      const codec::LosslessSlice& slice = plan->slices()[index];
      std::byte* at = placement.begin(index);
      const Result<codec::LosslessBlock> block = codec::encode_block(
          src.bytes.subspan(slice.offset, slice.bytes), slice.shape, level_, at);
      if (!block) return failure.add(index, block.error());
      plan->write_entry(index, *block, dst);
      placement.finish(index, at, block->bytes());
    });
    AEROKV_TRY(failure.status());
    plan->seal(dst);
    return plan->head_bytes() + placement.bytes();
  }

  const int level_;
};

class LosslessDeserializer final : public Deserializer {
 private:
  Status decode(Bytes src, const MutableObjectView& dst, const SerdeKey& /*key*/,
                Parallel& parallel) const override {
    const Result<codec::LosslessFrame> frame = codec::read_lossless_head(src, dst.layout);
    if (!frame) return frame.error();
    FirstFailure failure;
    parallel.run(frame->blocks.size(), [&](size_t index) {
      const codec::LosslessSlice& slice = frame->plan.slices()[index];
      const codec::LosslessBlock& block = frame->blocks[index];
      const Status status =
          codec::decode_block(src.subspan(frame->offsets[index], block.bytes()), block, slice.shape,
                              dst.bytes.subspan(slice.offset, slice.bytes));
      if (!status) failure.add(index, status);
    });
    return failure.status();
  }
};

}  // namespace

Result<Serde> make_lossless(const SerdeParams& params) {
  ParamReader reader("lossless", params);
  const int64_t level =
      reader.integer("level", 1, codec::kLosslessLevelMin, codec::kLosslessLevelMax);
  AEROKV_TRY(reader.finish());
  return Serde{std::make_shared<LosslessSerializer>(static_cast<int>(level)),
               std::make_shared<LosslessDeserializer>(), "lossless"};
}

}  // namespace aerokv::serde
