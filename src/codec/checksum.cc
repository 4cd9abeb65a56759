// SPDX-License-Identifier: Apache-2.0
#include "codec/checksum.h"

#include <algorithm>
#include <array>
#include <cstring>
#include <string>

#include "codec/checksum_copy.h"

namespace aerokv::codec {
namespace {

constexpr std::byte kVersion{1};
constexpr size_t kFingerprintAt = 1;
constexpr size_t kSumAt = 9;

using Fingerprint = std::array<std::byte, 8>;

Fingerprint fingerprint(Bytes chunk_hash) {
  Fingerprint made{};
  std::copy_n(chunk_hash.begin(), std::min(chunk_hash.size(), made.size()), made.begin());
  return made;
}

}  // namespace

void encode_checksum(Bytes payload, Bytes chunk_hash, MutableBytes frame) {
  const Fingerprint bound = fingerprint(chunk_hash);
  frame[0] = kVersion;
  std::copy(bound.begin(), bound.end(), frame.begin() + kFingerprintAt);
  const uint64_t sum = copy_and_hash(payload, frame.data() + kChecksumOverhead, active_kernel());
  store_be<uint64_t>(frame.data() + kSumAt, sum);
}

Status decode_checksum(Bytes source, Bytes chunk_hash, MutableBytes payload) {
  if (source.size() < kChecksumOverhead || source.size() - kChecksumOverhead < payload.size()) {
    return {Code::corruption, "checksum: " + std::to_string(source.size()) +
                                  " bytes, expected a frame of " +
                                  std::to_string(kChecksumOverhead + payload.size())};
  }
  if (source[0] != kVersion) {
    return {Code::invalid, "checksum: version " + std::to_string(std::to_integer<int>(source[0])) +
                               ", expected 1"};
  }
  const Fingerprint bound = fingerprint(chunk_hash);
  if (!std::equal(bound.begin(), bound.end(), source.begin() + kFingerprintAt)) {
    return {Code::corruption, "checksum: the frame belongs to another key"};
  }
  const uint64_t seen = copy_and_hash(source.subspan(kChecksumOverhead, payload.size()),
                                      payload.data(), active_kernel());
  if (seen == load_be<uint64_t>(source.data() + kSumAt)) return {};
  std::fill(payload.begin(), payload.end(), std::byte{0});
  return {Code::corruption, "checksum: the sum of " + std::to_string(payload.size()) +
                                " bytes is not what the frame says"};
}

}  // namespace aerokv::codec
