// SPDX-License-Identifier: Apache-2.0
// Checksum frames of strangers. The first byte tells how long the object is, and whether the input
// is the frame or the object; what is accepted must be what the writer writes.
#include <algorithm>
#include <vector>

#include "codec/checksum.h"
#include "fuzz.h"

using aerokv::Bytes;
using aerokv::Code;
using aerokv::Status;
using aerokv::fuzz::require;
namespace codec = aerokv::codec;

namespace {

const Bytes kHash = aerokv::as_bytes("fuzzing");

std::vector<std::byte> frame_of(Bytes object) {
  std::vector<std::byte> frame(object.size() + codec::kChecksumOverhead);
  codec::encode_checksum(object, kHash, frame);
  return frame;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  Bytes input = aerokv::fuzz::input(data, size);
  const uint8_t choice = aerokv::fuzz::take(input);
  std::vector<std::byte> frame(input.begin(), input.end());
  if ((choice & 1) != 0) frame = frame_of(input);
  const size_t overhead = codec::kChecksumOverhead;
  const size_t longest = frame.size() > overhead ? frame.size() - overhead : 0;
  std::vector<std::byte> object(longest + 2 - std::min<size_t>(longest + 2, choice >> 1));
  const Status status = codec::decode_checksum(frame, kHash, object);
  if (status) {
    const std::vector<std::byte> again = frame_of(object);
    require(std::equal(again.begin(), again.end(), frame.begin()));
  } else {
    require(status.code() == Code::corruption || status.code() == Code::invalid);
  }
  return 0;
}
