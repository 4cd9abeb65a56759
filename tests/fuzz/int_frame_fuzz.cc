// SPDX-License-Identifier: Apache-2.0
// int8 and int4 frames of strangers. The first byte chooses bits and layout, the second whether the
// sum is put right first, so that what lies behind it is reached too. Nothing may be written past
// the target; what is accepted must be the same at the second reading.
#include <algorithm>
#include <vector>

#include "aerokv/serde.h"
#include "codec/checksum_copy.h"
#include "fuzz.h"

using aerokv::Bytes;
using aerokv::DType;
using aerokv::Layout;
using aerokv::MutableBytes;
using aerokv::fuzz::require;

namespace {

const Layout kLayouts[] = {
    {{DType::bfloat16, {2, 1, 8, 4}}},
    {{DType::float16, {2, 2, 5, 3}}},
    {{DType::float32, {1, 3, 7}}},
    {{DType::bfloat16, {2, 6, 5}}, {DType::uint8, {9}}, {DType::float32, {4, 4}}},
};

constexpr size_t kGuard = 32;

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  Bytes input = aerokv::fuzz::input(data, size);
  const uint8_t choice = aerokv::fuzz::take(input);
  const bool is_mended = aerokv::fuzz::take(input) % 2 != 0;
  const Layout& layout = kLayouts[(choice >> 1) % 4];
  const auto serde = *aerokv::make_serde({choice % 2 == 0 ? "int8" : "int4", {}});
  std::vector<std::byte> frame(input.begin(), input.end());
  const size_t expected = *serde.serializer->estimate_serialized_size(layout);
  if (is_mended && frame.size() >= expected) {
    const Bytes summed = Bytes(frame).first(expected - 8);
    aerokv::store_le(&frame[expected - 8],
                     aerokv::codec::xxh3_64(summed, aerokv::codec::Kernel::scalar));
  }
  std::vector<std::byte> target(*aerokv::layout_bytes(layout) + kGuard, std::byte{0xA5});
  const MutableBytes inner = MutableBytes(target).first(target.size() - kGuard);
  const aerokv::Status status = serde.deserializer->deserialize(frame, {layout, inner});
  require(std::all_of(target.end() - kGuard, target.end(),
                      [](std::byte byte) { return byte == std::byte{0xA5}; }));
  if (!status) {
    require(status.code() == aerokv::Code::corruption || status.code() == aerokv::Code::invalid);
    return 0;
  }
  // What was read is finite, so it can be written again, and its frame can be read.
  std::vector<std::byte> again(expected);
  const auto written = serde.serializer->serialize({layout, inner}, again);
  require(written.has_value() && *written == expected);
  require(serde.deserializer->deserialize(again, {layout, inner}).ok());
  return 0;
}
