// SPDX-License-Identifier: Apache-2.0
// The frame around tensors that are stored as codes of 8 or 4 bits: docs/formats/int.md.
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "aerokv/bytes.h"
#include "aerokv/status.h"
#include "aerokv/tensor.h"
#include "codec/quantize.h"

namespace aerokv::codec {

inline constexpr size_t kIntTensorsMax = 65535;

struct IntFormat {
  CodeBits bits = CodeBits::eight;
  uint32_t head_dim = 0;  ///< columns of a token that share extremes; 0 = all
};

/// How one tensor is stored: matrices with extremes per column (keys), then one with extremes per
/// run of a row (values, and everything else), or the bytes as they are.
struct IntTensor {
  DType dtype = DType::uint8;
  bool is_raw = false;
  uint64_t channel_matrices = 0;
  uint64_t rows = 0;        ///< of each channel matrix
  uint64_t token_rows = 0;  ///< of the other matrix
  uint64_t columns = 0;     ///< bytes of a raw tensor
  uint64_t group = 0;       ///< columns of a run
};

/// What one thread does at a time. Offsets of the source are from the front of the object, others
/// from the front of the frame.
struct IntPart {
  bool is_raw = false;
  QuantizeShape shape;  ///< unless is_raw
  uint64_t source_at = 0;
  uint64_t source_bytes = 0;
  uint64_t lows_at = 0;  ///< 4 bits only
  uint64_t highs_at = 0;
  uint64_t codes_at = 0;
  size_t tensor = 0;           ///< index in the object
  uint64_t first_element = 0;  ///< index in the tensor
};

/// Everything about a frame that follows from the format and the layout.
struct IntPlan {
  IntFormat format;
  std::vector<IntTensor> tensors;
  uint64_t body_bytes = 0;

  [[nodiscard]] uint64_t header_bytes() const;
  /// Of the whole frame.
  [[nodiscard]] uint64_t frame_bytes() const;
  [[nodiscard]] std::vector<IntPart> parts() const;
};

/// Errors: invalid (a shape; `head_dim` does not divide the columns of a tensor; too many tensors).
Result<IntPlan> plan_int_frame(const IntFormat& format, const Layout& layout);

/// Writes everything in front of the body, header_bytes() of it.
void write_int_header(const IntPlan& plan, MutableBytes frame);

/// Writes the sum behind the body. `frame` has frame_bytes().
void seal_int_frame(const IntPlan& plan, MutableBytes frame);

/// Reads the header and verifies the sum; `head_dim` is the frame's own. Bytes may follow the
/// frame. Errors: corruption (truncated, damaged), invalid (no such frame; another version, number
/// of bits or tensors than `layout` has).
Result<IntPlan> open_int_frame(CodeBits bits, const Layout& layout, Bytes frame);

}  // namespace aerokv::codec
