// SPDX-License-Identifier: Apache-2.0
#include "wire/reply_decoder.h"

#include <algorithm>
#include <cstring>

#include "wire/result.h"

namespace aerokv::wire {
namespace {

// While the header of a single answer is awaited only this much is received into the buffer, so
// that at most this much of a payload has to be copied out of it.
constexpr size_t kHeaderReadBytes = 2048;

constexpr size_t kFieldHeaderBytes = 5;
constexpr size_t kOpHeaderBytes = 8;
// Fields of answers are namespace, set, digest, key: a user key is the longest.
constexpr size_t kFieldBytesMax = 16 << 10;

}  // namespace

ReplyDecoder::ReplyDecoder() : buffer_(new std::byte[kBufferBytes]) {}

void ReplyDecoder::expect(ReplyKind kind, ReplySink& sink) {
  kind_ = kind;
  sink_ = &sink;
  state_ = State::frame;
  inside_ = false;
  last_ = false;
  frame_left_ = 0;
}

void ReplyDecoder::redirect(ReplySink& sink) {
  sink_ = &sink;
  if (state_ != State::value) return;
  action_ = ValueTarget::Action::skip;
  target_ = {};
  copied_.clear();
}

size_t ReplyDecoder::regions(std::array<MutableBytes, 2>& places) {
  size_t count = 0;
  size_t limit = kBufferBytes;
  if (state_ == State::value && action_ == ValueTarget::Action::receive_into) {
    places[count++] = target_;
    limit = kHeaderReadBytes;
  } else if (kind_ == ReplyKind::record && state_ != State::value) {
    limit = kHeaderReadBytes;
  }
  if (begin_ == end_) {
    begin_ = end_ = 0;
  } else if (begin_ > 0 && kBufferBytes - end_ < kHeaderReadBytes) {
    std::memmove(buffer_.get(), buffer_.get() + begin_, end_ - begin_);
    end_ -= begin_;
    begin_ = 0;
  }
  places[count++] = MutableBytes(buffer_.get() + end_, std::min(limit, kBufferBytes - end_));
  return count;
}

Result<ReplyDecoder::Progress> ReplyDecoder::received(size_t count) {
  if (state_ == State::value && action_ == ValueTarget::Action::receive_into) {
    const size_t direct = std::min(count, target_.size());
    target_ = target_.subspan(direct);
    value_left_ -= direct;
    frame_left_ -= direct;
    count -= direct;
  }
  end_ += count;
  return resume();
}

Result<ReplyDecoder::Progress> ReplyDecoder::resume() {
  if (sink_ == nullptr) {
    return Status(Code::protocol, "decode answer: bytes without a request");
  }
  return decode();
}

void ReplyDecoder::consume(size_t count) {
  begin_ += count;
  inside_ = true;
}

Status ReplyDecoder::require_in_frame(const char* what, uint64_t needed) const {
  if (needed <= frame_left_) return {};
  return {Code::protocol, std::string("decode answer: ") + what + ": " + std::to_string(needed) +
                              " bytes needed, " + std::to_string(frame_left_) +
                              " left in the frame"};
}

Result<ReplyDecoder::Progress> ReplyDecoder::decode() {
  while (true) {
    if (state_ == State::value) {
      AEROKV_TRY(take_value());
      if (value_left_ > 0) return Progress::needs_more;
      AEROKV_TRY(finish_value());
      continue;
    }
    if (state_ == State::unit_end) {
      Result<Progress> progress = finish_unit();
      if (!progress || *progress == Progress::complete) return progress;
      continue;
    }
    if (state_ == State::body) return take_body();
    Result<bool> stepped = step();
    if (!stepped) return stepped.error();
    if (!*stepped) return Progress::needs_more;
  }
}

Result<bool> ReplyDecoder::step() {
  const Bytes bytes = available();
  switch (state_) {
    case State::frame:
      if (bytes.size() < kFrameHeaderBytes) return false;
      AEROKV_TRY(begin_frame(bytes));
      return true;
    case State::unit:
      AEROKV_TRY(require_in_frame("unit header", kMessageHeaderBytes));
      if (bytes.size() < kMessageHeaderBytes) return false;
      AEROKV_TRY(begin_unit(bytes));
      return true;
    case State::field:
      AEROKV_TRY(require_in_frame("field header", kFieldHeaderBytes));
      if (bytes.size() < kFieldHeaderBytes) return false;
      return decode_field(bytes);
    default:
      AEROKV_TRY(require_in_frame("op header", kOpHeaderBytes));
      if (bytes.size() < kOpHeaderBytes) return false;
      return decode_op(bytes);
  }
}

Status ReplyDecoder::begin_frame(Bytes bytes) {
  Result<FrameHeader> header = decode_frame_header(bytes);
  if (!header) return header.error();
  const bool is_text = kind_ == ReplyKind::info || kind_ == ReplyKind::security;
  const MessageType expected = kind_ == ReplyKind::info       ? MessageType::info
                               : kind_ == ReplyKind::security ? MessageType::security
                                                              : MessageType::record;
  if (header->type != expected) {
    return {Code::protocol, "decode answer: frame type " +
                                std::to_string(static_cast<int>(header->type)) + ", expected " +
                                std::to_string(static_cast<int>(expected))};
  }
  consume(kFrameHeaderBytes);
  frame_left_ = header->body_bytes;
  if (is_text) {
    copied_.clear();
    state_ = State::body;
  } else if (frame_left_ > 0) {
    state_ = State::unit;
  } else if (kind_ == ReplyKind::record) {
    return {Code::protocol, "decode answer: empty frame for a single record"};
  }  // else: empty frames inside a multi-part answer are skipped
  return {};
}

Status ReplyDecoder::begin_unit(Bytes bytes) {
  const MessageHeader header = decode_message_header(bytes);
  consume(kMessageHeaderBytes);
  frame_left_ -= kMessageHeaderBytes;
  fields_left_ = header.field_count;
  ops_left_ = header.op_count;
  last_ = kind_ == ReplyKind::record || (header.info3 & info3::kLast) != 0 ||
          (kind_ == ReplyKind::query && header.result_code != result::kOk &&
           (header.info3 & info3::kPartitionDone) == 0);
  state_ = fields_left_ > 0 ? State::field : ops_left_ > 0 ? State::op : State::unit_end;
  return sink_->unit(header);
}

Result<bool> ReplyDecoder::decode_field(Bytes bytes) {
  const auto size = load_be<uint32_t>(bytes.data());
  AEROKV_TRY(require_in_frame("field", 4 + uint64_t{size}));
  if (size < 1 || size > 1 + kFieldBytesMax) {
    return Status(Code::protocol, "decode answer: field size " + std::to_string(size) +
                                      ", expected 1 to " + std::to_string(1 + kFieldBytesMax));
  }
  if (bytes.size() < 4 + size_t{size}) return false;
  AEROKV_TRY(sink_->field({std::to_integer<uint8_t>(bytes[4]), bytes.subspan(5, size - 1)}));
  consume(4 + size_t{size});
  frame_left_ -= 4 + uint64_t{size};
  if (--fields_left_ == 0) state_ = ops_left_ > 0 ? State::op : State::unit_end;
  return true;
}

Result<bool> ReplyDecoder::decode_op(Bytes bytes) {
  const auto size = load_be<uint32_t>(bytes.data());
  const auto name_bytes = std::to_integer<size_t>(bytes[7]);
  AEROKV_TRY(require_in_frame("op", 4 + uint64_t{size}));
  if (size < 4 + name_bytes) {
    return Status(Code::protocol, "decode answer: op size " + std::to_string(size) +
                                      " is below 4 + name length " + std::to_string(name_bytes));
  }
  if (bytes.size() < kOpHeaderBytes + name_bytes) return false;
  bin_.assign(as_text(bytes.subspan(kOpHeaderBytes, name_bytes)));
  particle_ = std::to_integer<uint8_t>(bytes[5]);
  consume(kOpHeaderBytes + name_bytes);
  frame_left_ -= kOpHeaderBytes + name_bytes;
  --ops_left_;
  AEROKV_TRY(begin_value(bin_, particle_, size - 4 - name_bytes));
  return true;
}

Status ReplyDecoder::begin_value(std::string_view bin, uint8_t particle, uint64_t value_bytes) {
  const ValueTarget target = sink_->value_target(bin, particle, value_bytes);
  action_ = target.action;
  value_left_ = value_bytes;
  state_ = State::value;
  copied_.clear();
  if (action_ == ValueTarget::Action::receive_into) {
    if (target.target.size() != value_bytes) {
      return {Code::internal, "decode answer: target of " + std::to_string(target.target.size()) +
                                  " bytes for a value of " + std::to_string(value_bytes)};
    }
    target_ = target.target;
  } else if (action_ == ValueTarget::Action::copy && value_bytes > kCopiedValueBytesMax) {
    return {Code::protocol, "decode answer: bin value of " + std::to_string(value_bytes) +
                                " bytes, limit " + std::to_string(kCopiedValueBytesMax)};
  }
  return {};
}

Status ReplyDecoder::take_value() {
  const size_t count = static_cast<size_t>(std::min<uint64_t>(value_left_, buffered()));
  if (count == 0) return {};
  const std::byte* from = buffer_.get() + begin_;
  if (action_ == ValueTarget::Action::receive_into) {
    std::memcpy(target_.data(), from, count);  // only what arrived together with the header
    target_ = target_.subspan(count);
  } else if (action_ == ValueTarget::Action::copy) {
    copied_.insert(copied_.end(), from, from + count);
  }
  consume(count);
  value_left_ -= count;
  frame_left_ -= count;
  return {};
}

Status ReplyDecoder::finish_value() {
  state_ = ops_left_ > 0 ? State::op : State::unit_end;
  if (action_ != ValueTarget::Action::copy) return {};
  return sink_->value(bin_, particle_, copied_);
}

Result<ReplyDecoder::Progress> ReplyDecoder::finish_unit() {
  const bool last = last_;
  if (last && frame_left_ > 0) {
    return Status(Code::protocol,
                  "decode answer: " + std::to_string(frame_left_) + " bytes behind the last unit");
  }
  state_ = frame_left_ > 0 ? State::unit : State::frame;
  AEROKV_TRY(sink_->unit_end());
  return last ? complete() : Progress::needs_more;
}

Result<ReplyDecoder::Progress> ReplyDecoder::take_body() {
  const size_t count = static_cast<size_t>(std::min<uint64_t>(frame_left_, buffered()));
  copied_.insert(copied_.end(), buffer_.get() + begin_, buffer_.get() + begin_ + count);
  consume(count);
  frame_left_ -= count;
  if (frame_left_ > 0) return Progress::needs_more;
  AEROKV_TRY(sink_->body(copied_));
  return complete();
}

Result<ReplyDecoder::Progress> ReplyDecoder::complete() {
  sink_ = nullptr;
  state_ = State::frame;
  inside_ = false;
  return Progress::complete;
}

}  // namespace aerokv::wire
