// SPDX-License-Identifier: Apache-2.0
// For tests and fuzz targets: a sink that keeps everything it is given, and a feeder that hands a
// byte stream to a decoder in pieces of any size, as a socket would.
#pragma once

#include <algorithm>
#include <array>
#include <cstring>
#include <deque>
#include <string>
#include <string_view>
#include <vector>

#include "wire/reply_decoder.h"

namespace aerokv::wire {

struct CollectedField {
  uint8_t type = 0;
  std::vector<std::byte> value;
  bool operator==(const CollectedField&) const = default;
};

struct CollectedBin {
  std::string name;
  uint8_t particle = 0;
  std::vector<std::byte> value;
  bool operator==(const CollectedBin&) const = default;
};

struct CollectedUnit {
  std::array<std::byte, kMessageHeaderBytes> header_bytes{};
  std::vector<CollectedField> fields;
  std::vector<CollectedBin> bins;
  bool ended = false;
  bool operator==(const CollectedUnit&) const = default;

  [[nodiscard]] MessageHeader header() const { return decode_message_header(header_bytes); }
};

class CollectingSink : public ReplySink {
 public:
  using Action = ValueTarget::Action;

  /// How values are taken. A value over `place_bytes_max` is skipped instead of received into
  /// place, so that a size in hostile bytes allocates nothing.
  explicit CollectingSink(Action action, uint64_t place_bytes_max = kCopiedValueBytesMax)
      : action_(action), place_bytes_max_(place_bytes_max) {}

  Status unit(const MessageHeader& header) override {
    CollectedUnit& unit = units.emplace_back();
    encode_message_header(header, unit.header_bytes.data());
    return {};
  }

  Status field(const Field& field) override {
    units.back().fields.push_back({field.type, {field.value.begin(), field.value.end()}});
    return {};
  }

  ValueTarget value_target(std::string_view bin, uint8_t particle, uint64_t value_bytes) override {
    CollectedBin& kept =
        units.back().bins.emplace_back(CollectedBin{std::string(bin), particle, {}});
    if (action_ == Action::receive_into && value_bytes <= place_bytes_max_) {
      kept.value.resize(value_bytes, std::byte{0xA5});
      // Bins move when their vector grows; the bytes of a value do not.
      return ValueTarget::receive_into(kept.value);
    }
    return action_ == Action::copy ? ValueTarget::copy() : ValueTarget::skip();
  }

  Status value(std::string_view bin, uint8_t particle, Bytes value) override {
    CollectedBin& kept = units.back().bins.back();
    if (kept.name != bin || kept.particle != particle) {
      return {Code::internal, "value of another bin"};
    }
    kept.value.assign(value.begin(), value.end());
    return {};
  }

  Status unit_end() override {
    units.back().ended = true;
    return {};
  }

  Status body(Bytes bytes) override {
    bodies.emplace_back(bytes.begin(), bytes.end());
    return {};
  }

  std::vector<CollectedUnit> units;
  std::vector<std::vector<std::byte>> bodies;

 private:
  Action action_;
  uint64_t place_bytes_max_;
};

/// Gives `stream` to `decoder`, at most next_count() bytes at a time, until the answer is
/// complete, an error comes, or the stream ends. What was given is removed from `stream`.
template <typename NextCount>
Result<ReplyDecoder::Progress> feed(ReplyDecoder& decoder, Bytes& stream, NextCount next_count) {
  Result<ReplyDecoder::Progress> progress = decoder.resume();
  while (progress && *progress == ReplyDecoder::Progress::needs_more && !stream.empty()) {
    std::array<MutableBytes, 2> places;
    const size_t place_count = decoder.regions(places);
    size_t left = std::min<size_t>(stream.size(), std::max<size_t>(1, next_count()));
    size_t given = 0;
    for (size_t i = 0; i < place_count; ++i) {
      const size_t count = std::min(left, places[i].size());
      if (count > 0) std::memcpy(places[i].data(), stream.data(), count);
      stream = stream.subspan(count);
      left -= count;
      given += count;
    }
    if (given == 0) return Status(Code::internal, "no place for the next bytes");
    progress = decoder.received(given);
  }
  return progress;
}

}  // namespace aerokv::wire
