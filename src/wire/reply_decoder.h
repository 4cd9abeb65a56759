// SPDX-License-Identifier: Apache-2.0
// Incremental decoder of the answers on one connection. It never touches a socket: it says where
// the next bytes should be received, which lets a payload land in its final buffer.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "wire/message.h"

namespace aerokv::wire {

/// How the end of an answer is known.
enum class ReplyKind : uint8_t {
  record,    ///< one frame with one unit
  batch,     ///< units in any number of frames until the one with the last flag
  query,     ///< the same; an error at the start comes without the last flag
  info,      ///< one frame of text
  security,  ///< one frame
};

/// Where the value of a bin shall go.
struct ValueTarget {
  enum class Action : uint8_t { copy, receive_into, skip };
  Action action = Action::copy;
  MutableBytes target;  ///< receive_into only: exactly as many bytes as the value has

  static ValueTarget copy() { return {Action::copy, {}}; }
  static ValueTarget skip() { return {Action::skip, {}}; }
  static ValueTarget receive_into(MutableBytes target) { return {Action::receive_into, target}; }
};

/// Receives the parts of one answer in order: for each unit unit(), then its fields and bins, then
/// unit_end(). A returned error makes the decoder fail with it; the connection must be dropped.
/// All views are valid during the call only.
class ReplySink {
 public:
  virtual ~ReplySink() = default;

  virtual Status unit(const MessageHeader& header) = 0;
  virtual Status field(const Field& field) {
    static_cast<void>(field);
    return {};
  }
  /// Decides about the value of a bin before any of its bytes is taken. Values to be copied are
  /// limited to kCopiedValueBytesMax; longer ones fail the decoder.
  virtual ValueTarget value_target(std::string_view bin, uint8_t particle, uint64_t value_bytes) {
    static_cast<void>(bin);
    static_cast<void>(particle);
    static_cast<void>(value_bytes);
    return ValueTarget::skip();
  }
  /// A value to be copied, complete. Not called for the other actions.
  virtual Status value(std::string_view bin, uint8_t particle, Bytes value) {
    static_cast<void>(bin);
    static_cast<void>(particle);
    static_cast<void>(value);
    return {};
  }
  virtual Status unit_end() { return {}; }

  /// The whole body of an info or security answer.
  virtual Status body(Bytes body) {
    static_cast<void>(body);
    return {};
  }
};

/// Takes everything and keeps nothing.
class DiscardSink final : public ReplySink {
 public:
  Status unit(const MessageHeader& header) override {
    static_cast<void>(header);
    return {};
  }
};

/// Longest value that is copied instead of received into place.
inline constexpr uint64_t kCopiedValueBytesMax = 1ULL << 20;

/// Decodes the answers of one connection, one after the other, from any split of the byte stream.
///
/// Use: expect() an answer; then repeat { regions(); receive into them; received(n) } until it
/// returns complete. Bytes behind the answer stay in the decoder for the next one: after expect()
/// call resume() first. After an error the decoder and its connection cannot be used further.
/// Thread-compatible. Holds one buffer of kBufferBytes.
class ReplyDecoder {
 public:
  static constexpr size_t kBufferBytes = 64 << 10;

  enum class Progress : uint8_t { needs_more, complete };

  ReplyDecoder();

  /// Starts the next answer. `sink` must live until it is complete or abandoned.
  void expect(ReplyKind kind, ReplySink& sink);

  /// The rest of the current answer goes to `sink`. A value that was received into place is skipped
  /// from now on: nothing that belongs to the old sink is touched again.
  void redirect(ReplySink& sink);

  [[nodiscard]] bool is_expecting() const { return sink_ != nullptr; }
  /// Bytes received but not yet taken by an answer.
  [[nodiscard]] size_t buffered() const { return end_ - begin_; }
  /// True once any byte of the current answer was taken.
  [[nodiscard]] bool is_inside() const { return inside_; }

  /// One or two places for the next bytes, in order: the rest of a payload (if any), then the
  /// decoder's own buffer. Returns their count. Valid until the next call of the decoder.
  size_t regions(std::array<MutableBytes, 2>& places);

  /// `count` bytes were received into the places of regions(), filled in order.
  Result<Progress> received(size_t count);

  /// Decodes what is buffered already.
  Result<Progress> resume();

 private:
  enum class State : uint8_t { frame, unit, field, op, value, unit_end, body };

  Result<Progress> decode();
  Status begin_frame(Bytes bytes);
  Status begin_unit(Bytes bytes);
  Result<bool> decode_field(Bytes bytes);
  Result<bool> decode_op(Bytes bytes);
  Status begin_value(std::string_view bin, uint8_t particle, uint64_t value_bytes);
  Status take_value();
  Status finish_value();
  Result<Progress> finish_unit();
  Result<Progress> take_body();
  Result<Progress> complete();

  /// Takes one header, field or op; false if more bytes are needed for it.
  Result<bool> step();
  [[nodiscard]] Bytes available() const { return Bytes(buffer_.get() + begin_, end_ - begin_); }
  void consume(size_t count);
  Status require_in_frame(const char* what, uint64_t needed) const;

  std::unique_ptr<std::byte[]> buffer_;
  size_t begin_ = 0;
  size_t end_ = 0;

  ReplyKind kind_ = ReplyKind::record;
  ReplySink* sink_ = nullptr;
  State state_ = State::frame;
  bool inside_ = false;
  bool last_ = false;        // the current unit ends the answer
  uint64_t frame_left_ = 0;  // bytes of the current frame not yet taken
  uint32_t fields_left_ = 0;
  uint32_t ops_left_ = 0;

  std::string bin_;
  uint8_t particle_ = 0;
  ValueTarget::Action action_ = ValueTarget::Action::skip;
  MutableBytes target_;  // rest of a value that is received into place
  uint64_t value_left_ = 0;
  std::vector<std::byte> copied_;  // value or body that is collected
};

}  // namespace aerokv::wire
