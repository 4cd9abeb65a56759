// SPDX-License-Identifier: Apache-2.0
#include "codec/lossless_head.h"

#include <algorithm>
#include <string>

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace aerokv::codec {
namespace {

constexpr char kMagic[] = {'A', 'K', 'V', 'L'};
constexpr uint8_t kVersion = 1;

constexpr size_t kVersionAt = 4;
constexpr size_t kFlagsAt = 5;
constexpr size_t kTensorsAt = 6;
constexpr size_t kHeadBytesAt = 8;
constexpr size_t kObjectBytesAt = 16;
constexpr size_t kBlockBytesAt = 24;
constexpr size_t kReservedAt = 28;
constexpr size_t kFixedBytes = 32;

constexpr size_t kTensorEntryBytes = 16;
constexpr size_t kSumBytes = 8;

// The numbers of the format, by DType.
constexpr uint8_t kDTypeNumbers[kDTypes] = {1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14};
static_assert(static_cast<size_t>(DType::boolean) == 0 &&
                  static_cast<size_t>(DType::float8_e4m3fn) == 6 &&
                  static_cast<size_t>(DType::bfloat16) == 11 &&
                  static_cast<size_t>(DType::float64) == 13,
              "the numbers stand in frames: new types go behind, others keep theirs");

uint8_t dtype_number(DType dtype) {
  return kDTypeNumbers[static_cast<size_t>(dtype)];
}

size_t entry_bytes(PlaneShape shape) {
  return kSumBytes + 4 * size_t{shape.planes};
}

Status damaged(const std::string& what) {
  return {Code::corruption, "lossless: " + what};
}

Status unfit(const std::string& what) {
  return {Code::invalid, "lossless: " + what};
}

uint64_t head_sum(Bytes head) {
  return XXH3_64bits(head.data(), head.size() - kSumBytes);
}

// Bytes of one tensor of a layout that was checked.
uint64_t tensor_bytes(const TensorLayout& tensor) {
  uint64_t bytes = dtype_bytes(tensor.dtype);
  for (const int64_t dimension : tensor.shape) bytes *= static_cast<uint64_t>(dimension);
  return bytes;
}

Status check_layout(const Layout& layout) {
  const Result<uint64_t> bytes = layout_bytes(layout);
  if (!bytes) return bytes.error().with_context("lossless");
  if (layout.size() > kLosslessTensorsMax) {
    return unfit(std::to_string(layout.size()) + " tensors, expected at most " +
                 std::to_string(kLosslessTensorsMax));
  }
  if (*bytes > kLosslessBytesMax) {
    return unfit(std::to_string(*bytes) + " bytes, expected at most " +
                 std::to_string(kLosslessBytesMax));
  }
  return {};
}

// The parts of the head that a reader must know before it can check the sum.
Status check_start(Bytes source) {
  if (source.size() < kFixedBytes + kSumBytes) {
    return damaged(std::to_string(source.size()) + " bytes, expected a head of at least " +
                   std::to_string(kFixedBytes + kSumBytes));
  }
  if (!std::equal(std::begin(kMagic), std::end(kMagic), as_text(source).begin())) {
    return unfit("the bytes do not begin as a frame does");
  }
  const auto version = std::to_integer<uint8_t>(source[kVersionAt]);
  if (version != kVersion) return unfit("version " + std::to_string(version) + ", expected 1");
  const auto head_bytes = load_le<uint64_t>(source.data() + kHeadBytesAt);
  if (head_bytes < kFixedBytes + kSumBytes || head_bytes > source.size()) {
    return damaged("head of " + std::to_string(head_bytes) + " bytes in " +
                   std::to_string(source.size()));
  }
  const Bytes head = source.first(head_bytes);
  if (load_le<uint64_t>(head.last(kSumBytes).data()) != head_sum(head)) {
    return damaged("the sum of the head is not what it says");
  }
  return {};
}

// The rest of what is not about blocks, of a head whose sum is right.
Status check_tensors(Bytes head, const Layout& layout) {
  const auto flags = std::to_integer<uint8_t>(head[kFlagsAt]);
  if (flags != 0 || load_le<uint32_t>(head.data() + kReservedAt) != 0) {
    return unfit("flags that version 1 does not have");
  }
  const auto tensors = load_le<uint16_t>(head.data() + kTensorsAt);
  if (tensors != layout.size()) {
    return unfit(std::to_string(tensors) + " tensors, expected " + layout_text(layout));
  }
  if (head.size() < kFixedBytes + kTensorEntryBytes * size_t{tensors} + kSumBytes) {
    return damaged("the head is too short for its tensors");
  }
  for (size_t i = 0; i < layout.size(); ++i) {
    const std::byte* entry = head.data() + kFixedBytes + kTensorEntryBytes * i;
    const auto number = load_le<uint64_t>(entry);
    const auto bytes = load_le<uint64_t>(entry + 8);
    if (number != dtype_number(layout[i].dtype) || bytes != tensor_bytes(layout[i])) {
      return unfit("tensor " + std::to_string(i) + ": type " + std::to_string(number) + ", " +
                   std::to_string(bytes) + " bytes, expected " + layout_text({layout[i]}));
    }
  }
  return {};
}

Result<LosslessBlock> read_entry(const std::byte* entry, const LosslessSlice& slice) {
  LosslessBlock block;
  block.sum = load_le<uint64_t>(entry);
  const uint32_t plane_bytes = slice.bytes / slice.shape.planes;
  for (size_t i = 0; i < slice.shape.planes; ++i) {
    block.sizes[i] = load_le<uint32_t>(entry + kSumBytes + 4 * i);
    if (block.sizes[i] == 0 || block.sizes[i] > plane_bytes) {
      return damaged("a plane of " + std::to_string(plane_bytes) + " bytes stored in " +
                     std::to_string(block.sizes[i]));
    }
  }
  return block;
}

}  // namespace

Result<uint64_t> LosslessPlan::head_bytes(const Layout& layout, size_t block_bytes) {
  AEROKV_TRY(check_layout(layout));
  uint64_t bytes = kFixedBytes + kTensorEntryBytes * layout.size() + kSumBytes;
  for (const TensorLayout& tensor : layout) {
    const uint64_t blocks = (tensor_bytes(tensor) + block_bytes - 1) / block_bytes;
    bytes += blocks * entry_bytes(plane_shape(tensor.dtype));
  }
  return bytes;
}

Result<LosslessPlan> LosslessPlan::make(const Layout& layout, size_t block_bytes) {
  const Result<uint64_t> head = head_bytes(layout, block_bytes);
  if (!head) return head.error();
  LosslessPlan plan;
  plan.block_bytes_ = block_bytes;
  plan.head_bytes_ = *head;
  uint64_t entry = kFixedBytes + kTensorEntryBytes * layout.size();
  for (const TensorLayout& tensor : layout) {
    const PlaneShape shape = plane_shape(tensor.dtype);
    const uint64_t bytes = tensor_bytes(tensor);
    for (uint64_t at = 0; at < bytes; at += block_bytes) {
      const uint64_t size = std::min<uint64_t>(block_bytes, bytes - at);
      plan.slices_.push_back({plan.object_bytes_ + at, static_cast<uint32_t>(size), shape, entry});
      entry += entry_bytes(shape);
    }
    plan.object_bytes_ += bytes;
  }
  return plan;
}

void LosslessPlan::write_head(const Layout& layout, MutableBytes head) const {
  std::fill(head.begin(), head.begin() + static_cast<ptrdiff_t>(head_bytes_), std::byte{0});
  std::byte* at = head.data();
  std::copy_n(as_bytes({kMagic, sizeof(kMagic)}).begin(), sizeof(kMagic), at);
  at[kVersionAt] = std::byte{kVersion};
  store_le(at + kTensorsAt, static_cast<uint16_t>(layout.size()));
  store_le<uint64_t>(at + kHeadBytesAt, head_bytes_);
  store_le(at + kObjectBytesAt, object_bytes_);
  store_le(at + kBlockBytesAt, static_cast<uint32_t>(block_bytes_));
  for (size_t i = 0; i < layout.size(); ++i) {
    std::byte* entry = at + kFixedBytes + kTensorEntryBytes * i;
    store_le<uint64_t>(entry, dtype_number(layout[i].dtype));
    store_le(entry + 8, tensor_bytes(layout[i]));
  }
}

void LosslessPlan::write_entry(size_t index, const LosslessBlock& block, MutableBytes head) const {
  const LosslessSlice& slice = slices_[index];
  std::byte* entry = head.data() + slice.entry;
  store_le(entry, block.sum);
  for (size_t i = 0; i < slice.shape.planes; ++i) {
    store_le(entry + kSumBytes + 4 * i, block.sizes[i]);
  }
}

void LosslessPlan::seal(MutableBytes head) const {
  const MutableBytes whole = head.first(head_bytes_);
  store_le(whole.last(kSumBytes).data(), head_sum(whole));
}

Result<LosslessFrame> read_lossless_head(Bytes source, const Layout& layout) {
  AEROKV_TRY(check_start(source));
  const Bytes head = source.first(load_le<uint64_t>(source.data() + kHeadBytesAt));
  AEROKV_TRY(check_tensors(head, layout));
  const auto block_bytes = load_le<uint32_t>(head.data() + kBlockBytesAt);
  if (block_bytes < kLosslessBlockBytesMin || block_bytes > kLosslessBlockBytesMax ||
      block_bytes % 8 != 0) {
    return unfit("blocks of " + std::to_string(block_bytes) + " bytes");
  }
  // The layout is the caller's, and so is every number of the plan but the blocks' size: it takes
  // a hundredth of the memory of the object.
  Result<LosslessPlan> plan = LosslessPlan::make(layout, block_bytes);
  if (!plan) return plan.error();
  if (plan->head_bytes() != head.size() ||
      plan->object_bytes() != load_le<uint64_t>(head.data() + kObjectBytesAt)) {
    return damaged("the head contradicts itself");
  }
  LosslessFrame frame;
  frame.bytes = head.size();
  for (const LosslessSlice& slice : plan->slices()) {
    const Result<LosslessBlock> block = read_entry(head.data() + slice.entry, slice);
    if (!block) return block.error();
    frame.offsets.push_back(frame.bytes);
    frame.blocks.push_back(*block);
    frame.bytes += block->bytes();
  }
  if (frame.bytes > source.size()) {
    return damaged(std::to_string(source.size()) + " bytes, expected a frame of " +
                   std::to_string(frame.bytes));
  }
  frame.plan = std::move(*plan);
  return frame;
}

}  // namespace aerokv::codec
