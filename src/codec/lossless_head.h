// SPDX-License-Identifier: Apache-2.0
// The head of the lossless frame: what the object was, and where its blocks are.
#pragma once

#include <span>
#include <vector>

#include "aerokv/bytes.h"
#include "aerokv/status.h"
#include "aerokv/tensor.h"
#include "codec/lossless.h"

namespace aerokv::codec {

inline constexpr size_t kLosslessTensorsMax = 65535;
inline constexpr uint64_t kLosslessBytesMax = 1ULL << 40;

/// Block sizes that a reader takes; multiples of 8, so that no element is cut.
inline constexpr size_t kLosslessBlockBytesMin = 4 << 10;
inline constexpr size_t kLosslessBlockBytesMax = 16 << 20;

/// One block of an object.
struct LosslessSlice {
  uint64_t offset = 0;  ///< of its first byte in the object
  uint32_t bytes = 0;
  PlaneShape shape;
  uint64_t entry = 0;  ///< of its entry in the head
};

/// Where everything of a frame is, as far as the object's layout tells: no number of a frame is in
/// it but the size of the blocks.
class LosslessPlan {
 public:
  /// Errors: invalid (more tensors or bytes than the format takes).
  static Result<LosslessPlan> make(const Layout& layout, size_t block_bytes);

  /// The head's size alone, without memory for the slices.
  static Result<uint64_t> head_bytes(const Layout& layout, size_t block_bytes);

  [[nodiscard]] size_t head_bytes() const { return head_bytes_; }
  [[nodiscard]] uint64_t object_bytes() const { return object_bytes_; }
  [[nodiscard]] const std::vector<LosslessSlice>& slices() const { return slices_; }

  /// Writes all but the entries and the sum.
  void write_head(const Layout& layout, MutableBytes head) const;
  /// Writes the entry of one block; different ones may be written at the same time.
  void write_entry(size_t index, const LosslessBlock& block, MutableBytes head) const;
  /// Writes the sum, last.
  void seal(MutableBytes head) const;

 private:
  size_t block_bytes_ = 0;
  size_t head_bytes_ = 0;
  uint64_t object_bytes_ = 0;
  std::vector<LosslessSlice> slices_;
};

/// A frame whose head was checked: every block lies within it.
struct LosslessFrame {
  LosslessPlan plan;
  std::vector<LosslessBlock> blocks;
  std::vector<uint64_t> offsets;  ///< of the blocks in the frame
  uint64_t bytes = 0;             ///< of the frame
};

/// Reads the head at the front of `source` for an object of `layout`.
/// Errors: corruption (too short, the sum, a size that cannot be), invalid (not this format,
/// another version, other tensors than the layout's).
Result<LosslessFrame> read_lossless_head(Bytes source, const Layout& layout);

}  // namespace aerokv::codec
