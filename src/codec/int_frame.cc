// SPDX-License-Identifier: Apache-2.0
#include "codec/int_frame.h"

#include <algorithm>
#include <limits>
#include <string>
#include <string_view>

#include "codec/checksum_copy.h"

namespace aerokv::codec {
namespace {

constexpr std::string_view kMagic = "AKIN";
constexpr uint8_t kVersion = 1;
constexpr size_t kFixedBytes = 24;
constexpr size_t kDescriptorBytes = 40;
constexpr size_t kSumBytes = 8;

// Long enough that handing out a part costs nothing beside it.
constexpr uint64_t kPartBytes = 512 << 10;

// Codes of the format, not only ours: types are never renumbered.
static_assert(static_cast<int>(DType::uint8) == 1 && static_cast<int>(DType::float8_e5m2) == 7 &&
              static_cast<int>(DType::bfloat16) == 11 && static_cast<int>(DType::float64) == 13);

QuantizeShape channel_shape(const IntTensor& tensor, CodeBits bits) {
  return {tensor.dtype, bits, tensor.rows, tensor.columns, 0};
}

QuantizeShape token_shape(const IntTensor& tensor, CodeBits bits) {
  return {tensor.dtype, bits, tensor.token_rows, tensor.columns, tensor.group};
}

uint64_t extremes_per_group(CodeBits bits) {
  return bits == CodeBits::four ? 2 : 1;
}

uint64_t stored_bytes(const QuantizeShape& shape) {
  return shape.extreme_bytes() * extremes_per_group(shape.bits) + shape.code_bytes();
}

uint64_t stored_bytes(const IntTensor& tensor, CodeBits bits) {
  if (tensor.is_raw) return tensor.columns;
  return tensor.channel_matrices * stored_bytes(channel_shape(tensor, bits)) +
         stored_bytes(token_shape(tensor, bits));
}

/// Keys and values of one object: [2, layers, tokens, columns] or [2, tokens, columns].
bool has_keys(const std::vector<int64_t>& shape) {
  return (shape.size() == 3 || shape.size() == 4) && shape[0] == 2;
}

Result<IntTensor> plan_tensor(const IntFormat& format, const TensorLayout& layout) {
  const Result<uint64_t> elements = element_count(layout);
  if (!elements) return elements.error();
  const uint64_t bytes = *elements * dtype_bytes(layout.dtype);
  IntTensor raw;
  raw.dtype = layout.dtype;
  raw.is_raw = true;
  raw.columns = bytes;
  if (!is_quantizable(layout.dtype) || *elements == 0) return raw;

  IntTensor tensor;
  tensor.dtype = layout.dtype;
  tensor.columns = layout.shape.empty() ? 1 : static_cast<uint64_t>(layout.shape.back());
  tensor.group = format.head_dim == 0 ? tensor.columns : format.head_dim;
  if (tensor.columns % tensor.group != 0) {
    return Status(Code::invalid, "head_dim " + std::to_string(format.head_dim) +
                                     " does not divide the last dimension of " +
                                     layout_text({layout}));
  }
  const uint64_t all_rows = *elements / tensor.columns;
  if (has_keys(layout.shape)) {
    tensor.rows = static_cast<uint64_t>(layout.shape[layout.shape.size() - 2]);
    tensor.channel_matrices = all_rows / tensor.rows / 2;
  }
  tensor.token_rows = all_rows - tensor.channel_matrices * tensor.rows;
  if (stored_bytes(tensor, format.bits) >= bytes) return raw;
  return tensor;
}

void add_raw(const IntTensor& tensor, IntPart part, std::vector<IntPart>& parts) {
  part.is_raw = true;
  const uint64_t source_end = part.source_at + tensor.columns;
  while (part.source_at < source_end) {
    part.source_bytes = std::min(kPartBytes, source_end - part.source_at);
    parts.push_back(part);
    part.source_at += part.source_bytes;
    part.codes_at += part.source_bytes;
  }
}

void add_channels(const IntTensor& tensor, CodeBits bits, IntPart& part,
                  std::vector<IntPart>& parts) {
  part.shape = channel_shape(tensor, bits);
  part.source_bytes = part.shape.source_bytes();
  for (uint64_t i = 0; i < tensor.channel_matrices; ++i) {
    part.highs_at = part.lows_at + part.shape.extreme_bytes() * (extremes_per_group(bits) - 1);
    part.codes_at = part.highs_at + part.shape.extreme_bytes();
    parts.push_back(part);
    part.source_at += part.source_bytes;
    part.first_element += tensor.rows * tensor.columns;
    part.lows_at = part.codes_at + part.shape.code_bytes();
  }
}

void add_tokens(const IntTensor& tensor, CodeBits bits, IntPart part, std::vector<IntPart>& parts) {
  const QuantizeShape all = token_shape(tensor, bits);
  part.highs_at = part.lows_at + all.extreme_bytes() * (extremes_per_group(bits) - 1);
  part.codes_at = part.highs_at + all.extreme_bytes();
  const uint64_t row_bytes = tensor.columns * dtype_bytes(tensor.dtype);
  const uint64_t rows_max = std::max<uint64_t>(1, kPartBytes / row_bytes);
  part.shape = all;
  for (uint64_t row = 0; row < tensor.token_rows; row += part.shape.rows) {
    part.shape.rows = std::min(rows_max, tensor.token_rows - row);
    part.source_bytes = part.shape.source_bytes();
    parts.push_back(part);
    part.source_at += part.source_bytes;
    part.first_element += part.shape.rows * tensor.columns;
    part.lows_at += part.shape.extreme_bytes();
    part.highs_at += part.shape.extreme_bytes();
    part.codes_at += part.shape.code_bytes();
  }
}

void write_descriptor(const IntTensor& tensor, std::byte* at) {
  at[0] = static_cast<std::byte>(tensor.dtype);
  at[1] = std::byte{tensor.is_raw ? uint8_t{0} : uint8_t{1}};
  store_le<uint16_t>(at + 2, 0);
  store_le(at + 4, static_cast<uint32_t>(tensor.channel_matrices));
  store_le(at + 8, tensor.rows);
  store_le(at + 16, tensor.token_rows);
  store_le(at + 24, tensor.columns);
  store_le(at + 32, tensor.group);
}

Status check_fixed_part(CodeBits bits, size_t tensors, Bytes frame) {
  if (frame.size() < kFixedBytes) {
    return {Code::corruption, "frame of " + std::to_string(frame.size()) +
                                  " bytes, expected at least " + std::to_string(kFixedBytes)};
  }
  if (as_text(frame.first(kMagic.size())) != kMagic) return {Code::invalid, "no such frame"};
  const auto version = std::to_integer<unsigned>(frame[4]);
  if (version != kVersion) {
    return {Code::invalid, "frame of version " + std::to_string(version) + ", expected 1"};
  }
  const auto seen_bits = std::to_integer<unsigned>(frame[5]);
  if (seen_bits != static_cast<unsigned>(bits)) {
    return {Code::invalid, "frame with codes of " + std::to_string(seen_bits) + " bits, expected " +
                               std::to_string(static_cast<unsigned>(bits))};
  }
  const auto seen_tensors = load_le<uint16_t>(&frame[6]);
  if (seen_tensors != tensors) {
    return {Code::invalid, "frame of " + std::to_string(seen_tensors) + " tensors, expected " +
                               std::to_string(tensors)};
  }
  return {};
}

}  // namespace

uint64_t IntPlan::header_bytes() const {
  return kFixedBytes + kDescriptorBytes * tensors.size();
}

uint64_t IntPlan::frame_bytes() const {
  return header_bytes() + body_bytes + kSumBytes;
}

std::vector<IntPart> IntPlan::parts() const {
  std::vector<IntPart> parts;
  uint64_t source_at = 0;
  uint64_t frame_at = header_bytes();
  for (size_t i = 0; i < tensors.size(); ++i) {
    const IntTensor& tensor = tensors[i];
    IntPart part;
    part.tensor = i;
    part.source_at = source_at;
    part.lows_at = part.codes_at = frame_at;
    if (tensor.is_raw) {
      add_raw(tensor, part, parts);
      source_at += tensor.columns;
    } else {
      add_channels(tensor, format.bits, part, parts);
      add_tokens(tensor, format.bits, part, parts);
      source_at += (tensor.channel_matrices * tensor.rows + tensor.token_rows) * tensor.columns *
                   dtype_bytes(tensor.dtype);
    }
    frame_at += stored_bytes(tensor, format.bits);
  }
  return parts;
}

Result<IntPlan> plan_int_frame(const IntFormat& format, const Layout& layout) {
  if (layout.size() > kIntTensorsMax) {
    return Status(Code::invalid, std::to_string(layout.size()) + " tensors, expected at most " +
                                     std::to_string(kIntTensorsMax));
  }
  if (const Result<uint64_t> bytes = layout_bytes(layout); !bytes) return bytes.error();
  IntPlan plan{format, {}, 0};
  plan.tensors.reserve(layout.size());
  for (const TensorLayout& one : layout) {
    Result<IntTensor> tensor = plan_tensor(format, one);
    if (!tensor) return tensor.error();
    if (tensor->channel_matrices > std::numeric_limits<uint32_t>::max()) {
      return Status(Code::invalid, "too many layers in " + layout_text({one}));
    }
    plan.body_bytes += stored_bytes(*tensor, format.bits);
    plan.tensors.push_back(*tensor);
  }
  return plan;
}

void write_int_header(const IntPlan& plan, MutableBytes frame) {
  std::ranges::copy(as_bytes(kMagic), frame.begin());
  frame[4] = std::byte{kVersion};
  frame[5] = static_cast<std::byte>(plan.format.bits);
  store_le(&frame[6], static_cast<uint16_t>(plan.tensors.size()));
  store_le(&frame[8], plan.format.head_dim);
  store_le<uint32_t>(&frame[12], 0);
  store_le(&frame[16], plan.body_bytes);
  for (size_t i = 0; i < plan.tensors.size(); ++i) {
    write_descriptor(plan.tensors[i], frame.data() + kFixedBytes + i * kDescriptorBytes);
  }
}

void seal_int_frame(const IntPlan& plan, MutableBytes frame) {
  const uint64_t summed = plan.frame_bytes() - kSumBytes;
  store_le(frame.data() + summed, xxh3_64(frame.first(summed), active_kernel()));
}

Result<IntPlan> open_int_frame(CodeBits bits, const Layout& layout, Bytes frame) {
  AEROKV_TRY(check_fixed_part(bits, layout.size(), frame));
  Result<IntPlan> plan = plan_int_frame({bits, load_le<uint32_t>(&frame[8])}, layout);
  if (!plan) return plan.error();
  std::vector<std::byte> expected(plan->header_bytes());
  write_int_header(*plan, expected);
  if (frame.size() >= expected.size() &&
      !std::ranges::equal(expected, frame.first(expected.size()))) {
    return Status(Code::invalid, "frame of other tensors than " + layout_text(layout));
  }
  if (frame.size() < plan->frame_bytes()) {
    return Status(Code::corruption, "frame of " + std::to_string(frame.size()) +
                                        " bytes, expected at least " +
                                        std::to_string(plan->frame_bytes()));
  }
  const uint64_t summed = plan->frame_bytes() - kSumBytes;
  if (load_le<uint64_t>(frame.data() + summed) != xxh3_64(frame.first(summed), active_kernel())) {
    return Status(Code::corruption, "frame with a wrong sum");
  }
  return plan;
}

}  // namespace aerokv::codec
