// SPDX-License-Identifier: Apache-2.0
#include "codec/chain_frame.h"

#include <algorithm>
#include <array>
#include <string>

namespace aerokv::codec {
namespace {

constexpr std::array<std::byte, 4> kMagic = {std::byte{'A'}, std::byte{'K'}, std::byte{'C'},
                                             std::byte{'H'}};
constexpr uint8_t kVersion = 1;

Status truncated(size_t size, uint64_t expected) {
  return {Code::corruption, "frame of " + std::to_string(size) + " bytes, expected at least " +
                                std::to_string(expected)};
}

}  // namespace

void write_chain_header(const std::vector<uint64_t>& output_bytes, MutableBytes dst) {
  std::copy(kMagic.begin(), kMagic.end(), dst.begin());
  dst[4] = std::byte{kVersion};
  dst[5] = static_cast<std::byte>(output_bytes.size());
  store_le<uint16_t>(&dst[6], 0);
  for (size_t i = 0; i < output_bytes.size(); ++i) store_le(&dst[8 + 8 * i], output_bytes[i]);
}

Result<std::vector<uint64_t>> read_chain_header(Bytes frame, const std::vector<uint64_t>& bounds) {
  const size_t header = chain_header_bytes(bounds.size());
  if (frame.size() < 8) return truncated(frame.size(), header);
  if (!std::equal(kMagic.begin(), kMagic.end(), frame.begin())) {
    return Status(Code::invalid, "no frame of a chain");
  }
  if (const auto version = std::to_integer<unsigned>(frame[4]); version != kVersion) {
    return Status(Code::invalid, "frame of version " + std::to_string(version) + ", expected 1");
  }
  if (const auto stages = std::to_integer<size_t>(frame[5]); stages != bounds.size()) {
    return Status(Code::invalid, "frame of " + std::to_string(stages) + " stages, expected " +
                                     std::to_string(bounds.size()));
  }
  if (load_le<uint16_t>(&frame[6]) != 0) {
    return Status(Code::invalid, "frame with unknown flags");
  }
  if (frame.size() < header) return truncated(frame.size(), header);
  std::vector<uint64_t> output_bytes(bounds.size());
  for (size_t i = 0; i < bounds.size(); ++i) {
    output_bytes[i] = load_le<uint64_t>(&frame[8 + 8 * i]);
    if (output_bytes[i] > bounds[i]) {
      return Status(Code::corruption, "stage " + std::to_string(i + 1) + " of " +
                                          std::to_string(output_bytes[i]) +
                                          " bytes, expected at most " + std::to_string(bounds[i]));
    }
  }
  if (frame.size() - header < output_bytes.back()) {
    return truncated(frame.size(), header + output_bytes.back());
  }
  return output_bytes;
}

}  // namespace aerokv::codec
