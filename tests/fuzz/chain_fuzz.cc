// SPDX-License-Identifier: Apache-2.0
// Frames of chains. The first byte chooses the chain. Nothing may be written past the target, and
// nothing allocated that the tensors do not explain (the memory limit of the run watches that).
#include <algorithm>
#include <vector>

#include "aerokv/serde.h"
#include "fuzz.h"

using aerokv::Bytes;
using aerokv::DType;
using aerokv::Layout;
using aerokv::MutableBytes;
using aerokv::SerdeConfig;
using aerokv::fuzz::require;

namespace {

const std::vector<SerdeConfig> kChains[] = {
    {{"checksum", {}}},
    {{"int8", {}}, {"checksum", {}}},
    {{"fp8", {}}, {"fp8", {}}},
    {{"int8", {}}, {"lossless", {}}},
};

constexpr size_t kGuard = 32;

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const Layout kLayout = {{DType::bfloat16, {2, 2, 24, 16}}};
  // The key of the golden vectors, from which the seeds come.
  static const aerokv::SerdeKey kKey{"\x01\x02\x03\x04\x05\x06\x07\x08\x09", ""};
  Bytes frame = aerokv::fuzz::input(data, size);
  const uint8_t choice = aerokv::fuzz::take(frame);
  const auto serde = *aerokv::make_serde({"chain", {{"stages", kChains[choice % 4]}}});
  std::vector<std::byte> target(*aerokv::layout_bytes(kLayout) + kGuard, std::byte{0xA5});
  const MutableBytes inner = MutableBytes(target).first(target.size() - kGuard);
  const aerokv::Status status = serde.deserializer->deserialize(frame, {kLayout, inner}, kKey);
  require(std::all_of(target.end() - kGuard, target.end(),
                      [](std::byte byte) { return byte == std::byte{0xA5}; }));
  require(status.ok() || status.code() == aerokv::Code::corruption ||
          status.code() == aerokv::Code::invalid);
  return 0;
}
