// SPDX-License-Identifier: Apache-2.0
#include "codec/lossless.h"

#include <algorithm>
#include <cstring>
#include <memory>
#include <string>
#include <vector>

#define ZSTD_STATIC_LINKING_ONLY  // ZSTD_c_literalCompressionMode
#include <zstd.h>
#include <zstd_errors.h>

#include "codec/checksum_copy.h"

namespace aerokv::codec {
namespace {

// Searches in steps of a thousand bytes and more: long runs (zeros of unused tokens) are found, and
// it takes hardly any time.
constexpr int kRunsLevel = -1000;

// Scratch memory that a thread keeps; what foreign frames need beyond it is given back.
constexpr size_t kKeptBytes = 1 << 20;

struct FreeContext {
  void operator()(ZSTD_CCtx* context) const { ZSTD_freeCCtx(context); }
  void operator()(ZSTD_DCtx* context) const { ZSTD_freeDCtx(context); }
};

// What a thread keeps from block to block: making it anew costs as much as a block.
struct Workspace {
  std::unique_ptr<ZSTD_CCtx, FreeContext> compression;
  std::unique_ptr<ZSTD_DCtx, FreeContext> decompression;
  std::vector<std::byte> planes;
  std::vector<std::byte> trial;

  void shrink() {
    if (planes.capacity() > kKeptBytes) std::vector<std::byte>().swap(planes);
    if (trial.capacity() > kKeptBytes) std::vector<std::byte>().swap(trial);
  }
};

Workspace& workspace() {
  static thread_local Workspace kept;
  return kept;
}

Status zstd_error(size_t code) {
  return {Code::internal, "lossless: zstd: " + std::string(ZSTD_getErrorName(code))};
}

// Compresses `plane` with the parameters of the context. Returns its size if it fits into
// `target`, else that of the plane.
Result<size_t> compress(ZSTD_CCtx* context, Bytes plane, MutableBytes target) {
  const size_t size =
      ZSTD_compress2(context, target.data(), target.size(), plane.data(), plane.size());
  if (ZSTD_isError(size) == 0) return size;
  if (ZSTD_getErrorCode(size) == ZSTD_error_dstSize_tooSmall) return plane.size();
  return zstd_error(size);
}

Status set(ZSTD_CCtx* context, ZSTD_cParameter parameter, int value) {
  const size_t code = ZSTD_CCtx_setParameter(context, parameter, value);
  return ZSTD_isError(code) != 0 ? zstd_error(code) : Status();
}

// zstd's fast levels do not shorten the codes of what they did not find, unless they are told to.
Status set_runs_and_codes(ZSTD_CCtx* context) {
  ZSTD_CCtx_reset(context, ZSTD_reset_session_and_parameters);
  AEROKV_TRY(set(context, ZSTD_c_compressionLevel, kRunsLevel));
  return set(context, ZSTD_c_literalCompressionMode, ZSTD_lcm_huffman);
}

Status set_search(ZSTD_CCtx* context, int level) {
  ZSTD_CCtx_reset(context, ZSTD_reset_session_and_parameters);
  return set(context, ZSTD_c_compressionLevel, level);
}

// Whether shorter codes alone can gain nothing, from 64 runs of 64 bytes spread over `plane`. How
// often two bytes of a sample are equal bounds the bits per byte from below: 1 in 2^7.75 = 215
// times is at least 7.75 bits. zstd would find out too, but takes as long as for copying the plane
// thrice.
bool looks_random(Bytes plane) {
  constexpr size_t kRuns = 64;
  constexpr size_t kRunBytes = 64;
  constexpr uint64_t kSampled = kRuns * kRunBytes;
  if (plane.size() < 4 * kSampled) return false;
  std::array<uint32_t, 256> counts{};
  const size_t stride = (plane.size() - kRunBytes) / (kRuns - 1);
  for (size_t run = 0; run < kRuns; ++run) {
    for (const std::byte value : plane.subspan(run * stride, kRunBytes)) {
      ++counts[std::to_integer<size_t>(value)];
    }
  }
  uint64_t equal_pairs = 0;
  for (const uint64_t count : counts) equal_pairs += count == 0 ? 0 : count * (count - 1);
  return equal_pairs * 215 < kSampled * (kSampled - 1);
}

// Stores `plane` at `target` in at most as many bytes.
Result<size_t> store_plane(Workspace& work, Bytes plane, int level, std::byte* target) {
  ZSTD_CCtx* context = work.compression.get();
  // What gains less than a thirty-second is not worth the time of its reader.
  const size_t limit = plane.size() - std::max<size_t>(1, plane.size() / 32);
  Result<size_t> size = plane.size();
  if (level > 1 || !looks_random(plane)) {
    AEROKV_TRY(set_runs_and_codes(context));
    size = compress(context, plane, {target, limit});
    if (!size) return size;
  }
  if (level > 1) {
    work.trial.resize(limit);
    AEROKV_TRY(set_search(context, level));
    const Result<size_t> other = compress(context, plane, work.trial);
    if (!other) return other;
    if (*other < *size) {
      std::memcpy(target, work.trial.data(), *other);
      size = *other;
    }
  }
  if (*size == plane.size()) std::memcpy(target, plane.data(), plane.size());
  return size;
}

PlanePointers pointers(std::byte* planes, PlaneShape shape, size_t plane_bytes) {
  PlanePointers made{};
  for (size_t i = 0; i < shape.planes; ++i) made[i] = planes + i * plane_bytes;
  return made;
}

bool expand(ZSTD_DCtx* context, Bytes stored, MutableBytes plane) {
  return ZSTD_decompressDCtx(context, plane.data(), plane.size(), stored.data(), stored.size()) ==
         plane.size();
}

}  // namespace

size_t LosslessBlock::bytes() const {
  size_t sum_of_sizes = 0;
  for (const uint32_t size : sizes) sum_of_sizes += size;
  return sum_of_sizes;
}

Result<LosslessBlock> encode_block(Bytes source, PlaneShape shape, int level, std::byte* target) {
  Workspace& work = workspace();
  if (!work.compression) work.compression.reset(ZSTD_createCCtx());
  if (!work.compression) return Status(Code::internal, "lossless: zstd: no memory");
  const size_t plane_bytes = source.size() / shape.planes;
  Bytes planes = source;
  if (shape.planes > 1) {
    work.planes.resize(source.size());
    split_planes(source, shape, pointers(work.planes.data(), shape, plane_bytes), active_kernel());
    planes = work.planes;
  }
  LosslessBlock block;
  size_t at = 0;
  for (size_t i = 0; i < shape.planes; ++i) {
    const Bytes plane = planes.subspan(i * plane_bytes, plane_bytes);
    const Result<size_t> size = store_plane(work, plane, level, target + at);
    if (!size) return size.error();
    block.sizes[i] = static_cast<uint32_t>(*size);
    at += *size;
  }
  block.sum = xxh3_64({target, at}, active_kernel());
  work.shrink();
  return block;
}

Status decode_block(Bytes source, const LosslessBlock& block, PlaneShape shape,
                    MutableBytes target) {
  if (xxh3_64(source, active_kernel()) != block.sum) {
    return {Code::corruption, "the sum of the block is not what the head says"};
  }
  Workspace& work = workspace();
  if (!work.decompression) work.decompression.reset(ZSTD_createDCtx());
  if (!work.decompression) return {Code::internal, "zstd: no memory"};
  const size_t plane_bytes = target.size() / shape.planes;
  std::byte* made = target.data();
  if (shape.planes > 1) {
    work.planes.resize(target.size());
    made = work.planes.data();
  }
  ConstPlanePointers planes{};
  size_t at = 0;
  for (size_t i = 0; i < shape.planes; ++i) {
    const Bytes stored = source.subspan(at, block.sizes[i]);
    at += stored.size();
    const MutableBytes plane(made + i * plane_bytes, plane_bytes);
    planes[i] = plane.data();
    if (stored.size() == plane_bytes) {
      planes[i] = stored.data();
    } else if (!expand(work.decompression.get(), stored, plane)) {
      return {Code::corruption, "plane " + std::to_string(i) + " is not a zstd frame of " +
                                    std::to_string(plane_bytes) + " bytes"};
    }
  }
  if (shape.planes > 1) {
    merge_planes(planes, shape, target, active_kernel());
  } else if (planes[0] != target.data()) {
    std::memcpy(target.data(), planes[0], target.size());
  }
  work.shrink();
  return {};
}

}  // namespace aerokv::codec
