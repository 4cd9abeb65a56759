// SPDX-License-Identifier: Apache-2.0
// Differential: one byte stream, decoded whole and in random pieces, must give the same messages
// and the same end.
#include "fuzz.h"
#include "wire/collecting_sink.h"
#include "wire/reply_decoder.h"

using aerokv::Bytes;
namespace wire = aerokv::wire;

namespace {

constexpr uint64_t kPlaceBytesMax = 64 << 10;

struct Decoded {
  explicit Decoded(wire::ValueTarget::Action action) : sink(action, kPlaceBytesMax) {}
  bool has_failed = false;
  bool is_complete = false;
  size_t taken = 0;
  wire::CollectingSink sink;
};

template <typename NextCount>
Decoded decode(wire::ReplyKind kind, wire::ValueTarget::Action action, Bytes stream,
               NextCount next) {
  Decoded decoded(action);
  wire::ReplyDecoder decoder;
  decoder.expect(kind, decoded.sink);
  const size_t size = stream.size();
  const auto progress = feed(decoder, stream, next);
  decoded.has_failed = !progress;
  decoded.is_complete = progress && *progress == wire::ReplyDecoder::Progress::complete;
  decoded.taken = size - stream.size() - decoder.buffered();
  // Without an end the decoder has room for more: it can never be stuck.
  if (progress && !decoded.is_complete) aerokv::fuzz::require(stream.empty());
  if (!progress) aerokv::fuzz::require(progress.error().code() == aerokv::Code::protocol);
  return decoded;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using Action = wire::ValueTarget::Action;
  Bytes stream = aerokv::fuzz::input(data, size);
  const auto kind = static_cast<wire::ReplyKind>(aerokv::fuzz::take(stream) % 5);
  uint32_t state = aerokv::fuzz::take(stream) + 1U;
  const Action actions[] = {Action::copy, Action::receive_into, Action::skip};
  const Action action = actions[state % 3];
  const uint32_t piece_bytes_max = 1U << (state % 16);
  const Decoded whole = decode(kind, action, stream, [] { return SIZE_MAX; });
  const Decoded pieces = decode(kind, action, stream, [&]() -> size_t {
    state = state * 1664525U + 1013904223U;
    return 1 + (state >> 8) % piece_bytes_max;
  });
  aerokv::fuzz::require(whole.has_failed == pieces.has_failed);
  aerokv::fuzz::require(whole.is_complete == pieces.is_complete);
  aerokv::fuzz::require(whole.sink.units == pieces.sink.units);
  aerokv::fuzz::require(whole.sink.bodies == pieces.sink.bodies);
  if (whole.is_complete) aerokv::fuzz::require(whole.taken == pieces.taken);
  return 0;
}
