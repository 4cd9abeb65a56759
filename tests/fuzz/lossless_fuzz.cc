// SPDX-License-Identifier: Apache-2.0
// Lossless frames of strangers. The first byte chooses the expected layout and what the rest is: a
// frame as it is, a frame whose sums are made right before (as an attacker would, so that what lies
// behind them is reached), or an object that must come back.
#include <algorithm>
#include <vector>

#include "codec/checksum_copy.h"
#include "codec/lossless_head.h"
#include "fuzz.h"
#include "serde/builtin.h"

using aerokv::Bytes;
using aerokv::Code;
using aerokv::DType;
using aerokv::Layout;
using aerokv::Status;
using aerokv::fuzz::require;
namespace codec = aerokv::codec;

namespace {

using Buffer = std::vector<std::byte>;

const aerokv::Serde& lossless(int64_t level) {
  static const aerokv::Serde plain = *aerokv::serde::make_lossless({});
  static const aerokv::Serde search = *aerokv::serde::make_lossless({{"level", int64_t{3}}});
  return level == 1 ? plain : search;
}

const std::vector<Layout>& layouts() {
  static const std::vector<Layout> made = {
      {{DType::bfloat16, {2, 2}}, {DType::uint8, {3}}},
      {{DType::bfloat16, {3000}}},
      {{DType::float32, {100}}, {DType::int8, {0}}, {DType::int16, {20}}},
      {{DType::bfloat16, {2, 3, 40, 16}}},
      {{DType::uint8, {600}}, {DType::int8, {500}}, {DType::boolean, {40}}},
      {{DType::float64, {80}}, {DType::bfloat16, {0}}, {DType::bfloat16, {}}},
      {},
  };
  return made;
}

uint64_t sum(Bytes bytes) {
  return codec::xxh3_64(bytes, codec::Kernel::scalar);
}

void seal_head(Buffer& frame) {
  if (frame.size() < 40) return;
  const auto bytes = aerokv::load_le<uint64_t>(frame.data() + 8);
  if (bytes < 40 || bytes > frame.size()) return;
  aerokv::store_le(frame.data() + bytes - 8, sum(Bytes(frame).first(bytes - 8)));
}

void seal(Buffer& frame, const Layout& layout) {
  seal_head(frame);
  auto head = codec::read_lossless_head(frame, layout);
  if (!head) return;
  for (size_t i = 0; i < head->blocks.size(); ++i) {
    codec::LosslessBlock& block = head->blocks[i];
    block.sum = sum(Bytes(frame).subspan(head->offsets[i], block.bytes()));
    head->plan.write_entry(i, block, frame);
  }
  head->plan.seal(frame);
}

void require_return(Bytes object, int64_t level) {
  const Layout layout = {{DType::bfloat16, {static_cast<int64_t>(object.size() / 2)}},
                         {DType::uint8, {static_cast<int64_t>(object.size() % 2)}}};
  const aerokv::Serde& serde = lossless(level);
  Buffer frame(*serde.serializer->estimate_serialized_size(layout));
  const auto size = serde.serializer->serialize({layout, object}, frame);
  require(size.has_value());
  frame.resize(*size);
  Buffer target(object.size());
  require(bool{serde.deserializer->deserialize(frame, {layout, target})});
  require(std::equal(target.begin(), target.end(), object.begin(), object.end()));
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  Bytes input = aerokv::fuzz::input(data, size);
  const uint8_t choice = aerokv::fuzz::take(input);
  if ((choice & 3) == 3) {
    require_return(input, (choice & 4) != 0 ? 3 : 1);
    return 0;
  }
  const Layout& layout = layouts()[(choice >> 2) % layouts().size()];
  Buffer frame(input.begin(), input.end());
  if ((choice & 1) != 0) seal(frame, layout);
  Buffer target(*aerokv::layout_bytes(layout));
  const Status status = lossless(1).deserializer->deserialize(frame, {layout, target});
  require(status || status.code() == Code::corruption || status.code() == Code::invalid);
  return 0;
}
