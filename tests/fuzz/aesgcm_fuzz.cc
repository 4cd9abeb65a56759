// SPDX-License-Identifier: Apache-2.0
// Encrypted frames of strangers. The first byte tells how long the object is, and whether the input
// is the frame, the object, or the object with a bit of its frame flipped. Only the frame as it was
// written may be accepted.
#include <algorithm>
#include <vector>

#include "codec/aesgcm.h"
#include "fuzz.h"

using aerokv::Bytes;
using aerokv::Code;
using aerokv::Status;
using aerokv::fuzz::require;
namespace codec = aerokv::codec;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  static const std::vector<std::byte> key(16, std::byte{'k'});
  Bytes input = aerokv::fuzz::input(data, size);
  const uint8_t choice = aerokv::fuzz::take(input);
  const bool is_object = (choice & 1) != 0;
  const bool is_flipped = (choice & 2) != 0;
  std::vector<std::byte> frame(input.begin(), input.end());
  if (is_object) {
    frame.resize(input.size() + codec::kAesGcmOverhead);
    require(bool{codec::encrypt_aesgcm(key, input, frame)});
    if (is_flipped) frame[(size_t{choice} << 3) % frame.size()] ^= std::byte{0x10};
  }
  const size_t overhead = codec::kAesGcmOverhead;
  const size_t longest = frame.size() > overhead ? frame.size() - overhead : 0;
  std::vector<std::byte> object(longest + 2 - std::min<size_t>(longest + 2, choice >> 2));
  const Status status = codec::decrypt_aesgcm(key, frame, object);
  if (status) {
    require(is_object && !is_flipped);
    require(std::equal(object.begin(), object.end(), input.begin(), input.end()));
    return 0;
  }
  require(status.code() == Code::corruption || status.code() == Code::invalid ||
          status.code() == Code::denied);
  if (status.code() != Code::denied) return 0;
  require(std::all_of(object.begin(), object.end(), [](std::byte b) { return b == std::byte{0}; }));
  return 0;
}
