// SPDX-License-Identifier: Apache-2.0
#include "wire/reply_decoder.h"

#include <gtest/gtest.h>

#include <random>
#include <string>
#include <vector>

#include "wire/collecting_sink.h"

namespace aerokv::wire {
namespace {

using Action = ValueTarget::Action;
using Progress = ReplyDecoder::Progress;
using ByteVector = std::vector<std::byte>;

// Builds the frames of an answer.
class Answer {
 public:
  Answer() : writer_(out_) {}
  Answer& begin() {
    at_ = writer_.begin_frame();
    return *this;
  }
  Answer& unit(uint8_t result, uint8_t info3, uint32_t index, uint16_t fields, uint16_t ops) {
    MessageHeader header;
    header.result_code = result;
    header.info3 = info3;
    header.transaction_ttl = index;
    header.field_count = fields;
    header.op_count = ops;
    writer_.header(header);
    return *this;
  }
  Answer& field(FieldType type, std::string_view value) {
    writer_.field(type, as_bytes(value));
    return *this;
  }
  Answer& bin(std::string_view name, std::string_view value) {
    writer_.op(OpType::read, Particle::blob, name, as_bytes(value));
    return *this;
  }
  Answer& end(MessageType type = MessageType::record) {
    writer_.end_frame(at_, type);
    return *this;
  }
  Answer& text(std::string_view text, MessageType type) {
    begin();
    writer_.bytes(as_bytes(text));
    return end(type);
  }
  [[nodiscard]] ByteVector bytes() const { return out_; }

 private:
  ByteVector out_;
  UnitWriter writer_;
  size_t at_ = 0;
};

struct Decoded {
  Result<Progress> progress = Progress::needs_more;
  size_t left = 0;      // bytes not taken from the stream
  size_t buffered = 0;  // bytes taken, but not by this answer
  CollectingSink sink{Action::copy};
};

template <typename NextCount>
Decoded decode(ReplyKind kind, Bytes stream, Action action, NextCount next) {
  Decoded decoded;
  decoded.sink = CollectingSink(action);
  ReplyDecoder decoder;
  decoder.expect(kind, decoded.sink);
  decoded.progress = feed(decoder, stream, next);
  decoded.left = stream.size();
  decoded.buffered = decoder.buffered();
  return decoded;
}

Decoded decode(ReplyKind kind, const ByteVector& stream, Action action = Action::copy) {
  return decode(kind, Bytes(stream), action, [] { return SIZE_MAX; });
}

void expect_protocol_error(ReplyKind kind, const ByteVector& stream) {
  for (const Action action : {Action::copy, Action::receive_into, Action::skip}) {
    for (const size_t step : {size_t{1}, size_t{7}, SIZE_MAX}) {
      const Decoded decoded = decode(kind, Bytes(stream), action, [&] { return step; });
      ASSERT_FALSE(decoded.progress)
          << "step " << step << ": progress " << static_cast<int>(*decoded.progress);
      EXPECT_EQ(decoded.progress.error().code(), Code::protocol);
    }
  }
}

ByteVector record_answer(std::string_view payload) {
  return Answer().begin().unit(0, 0, 0, 0, 2).bin("n", "12345678").bin("b", payload).end().bytes();
}

TEST(ReplyDecoder, RecordWithEveryWayToTakeAValue) {
  const std::string payload(200000, 'p');
  const ByteVector bytes = record_answer(payload);
  for (const Action action : {Action::copy, Action::receive_into, Action::skip}) {
    const Decoded decoded = decode(ReplyKind::record, bytes, action);
    ASSERT_TRUE(decoded.progress) << decoded.progress.error().message();
    EXPECT_EQ(*decoded.progress, Progress::complete);
    ASSERT_EQ(decoded.sink.units.size(), 1U);
    const CollectedUnit& unit = decoded.sink.units[0];
    EXPECT_TRUE(unit.ended);
    ASSERT_EQ(unit.bins.size(), 2U);
    EXPECT_EQ(unit.bins[1].name, "b");
    EXPECT_EQ(unit.bins[1].particle, 4);
    EXPECT_EQ(as_text(unit.bins[1].value), action == Action::skip ? "" : payload);
    EXPECT_EQ(decoded.left, 0U);
  }
}

// Not more than a header's worth of a payload may pass through the decoder's buffer.
TEST(ReplyDecoder, PayloadIsReceivedInPlace) {
  const std::string payload(1 << 20, 'p');
  const ByteVector bytes = record_answer(payload);
  CollectingSink sink(Action::receive_into);
  ReplyDecoder decoder;
  decoder.expect(ReplyKind::record, sink);
  Bytes stream(bytes);
  size_t through_buffer = 0;
  Result<Progress> progress = Progress::needs_more;
  while (progress && *progress == Progress::needs_more) {
    std::array<MutableBytes, 2> places;
    const size_t count = decoder.regions(places);
    const Bytes target = sink.units.empty() || sink.units[0].bins.size() < 2
                             ? Bytes()
                             : Bytes(sink.units[0].bins[1].value);
    size_t given = 0;
    for (size_t i = 0; i < count; ++i) {
      const size_t bytes_now = std::min(stream.size(), places[i].size());
      if (bytes_now == 0) continue;
      const bool in_place = !target.empty() && places[i].data() >= target.data() &&
                            places[i].data() < target.data() + target.size();
      if (!in_place) through_buffer += bytes_now;
      std::memcpy(places[i].data(), stream.data(), bytes_now);
      stream = stream.subspan(bytes_now);
      given += bytes_now;
    }
    progress = decoder.received(given);
  }
  ASSERT_TRUE(progress);
  EXPECT_EQ(as_text(sink.units[0].bins[1].value), payload);
  EXPECT_LE(through_buffer, 4096U);
}

TEST(ReplyDecoder, EmptyValues) {
  const ByteVector bytes =
      Answer().begin().unit(0, 0, 0, 0, 2).bin("b", "").bin("", "").end().bytes();
  for (const Action action : {Action::copy, Action::receive_into, Action::skip}) {
    const Decoded decoded = decode(ReplyKind::record, bytes, action);
    ASSERT_TRUE(decoded.progress);
    EXPECT_EQ(*decoded.progress, Progress::complete);
    EXPECT_EQ(decoded.sink.units[0].bins.size(), 2U);
  }
}

TEST(ReplyDecoder, BatchOverSeveralFrames) {
  const ByteVector bytes = Answer()
                               .begin()
                               .unit(0, 0, 1, 0, 1)
                               .bin("b", "one")
                               .unit(2, 0, 0, 0, 0)
                               .end()
                               .begin()
                               .end()
                               .begin()
                               .unit(0, 0, 2, 0, 0)
                               .end()
                               .begin()
                               .unit(0, info3::kLast, 0, 0, 0)
                               .end()
                               .bytes();
  const Decoded decoded = decode(ReplyKind::batch, bytes);
  ASSERT_TRUE(decoded.progress) << decoded.progress.error().message();
  EXPECT_EQ(*decoded.progress, Progress::complete);
  ASSERT_EQ(decoded.sink.units.size(), 4U);
  EXPECT_EQ(decoded.sink.units[0].header().transaction_ttl, 1U);
  EXPECT_EQ(decoded.sink.units[1].header().result_code, 2);
  // An error of one row does not end a batch.
  const ByteVector unfinished = Answer().begin().unit(4, 0, 0, 0, 0).end().bytes();
  EXPECT_EQ(*decode(ReplyKind::batch, unfinished).progress, Progress::needs_more);
}

TEST(ReplyDecoder, QueryEnds) {
  // An error at the start ends a query, with or without the last flag.
  for (const uint8_t flag : {uint8_t{0}, info3::kLast}) {
    const ByteVector error = Answer().begin().unit(20, flag, 0, 0, 0).end().bytes();
    EXPECT_EQ(*decode(ReplyKind::query, error).progress, Progress::complete);
  }
  // A partition that is done does not, whatever its code.
  const ByteVector done = Answer().begin().unit(11, info3::kPartitionDone, 0, 0, 0).end().bytes();
  EXPECT_EQ(*decode(ReplyKind::query, done).progress, Progress::needs_more);
  const ByteVector record =
      Answer().begin().unit(0, 0, 0, 1, 0).field(FieldType::ns, "n").end().bytes();
  const Decoded decoded = decode(ReplyKind::query, record);
  EXPECT_EQ(*decoded.progress, Progress::needs_more);
  ASSERT_EQ(decoded.sink.units.size(), 1U);
  ASSERT_EQ(decoded.sink.units[0].fields.size(), 1U);
  EXPECT_EQ(as_text(decoded.sink.units[0].fields[0].value), "n");
}

TEST(ReplyDecoder, TextAnswers) {
  const std::string text(100000, 't');
  const Decoded info = decode(ReplyKind::info, Answer().text(text, MessageType::info).bytes());
  ASSERT_TRUE(info.progress);
  EXPECT_EQ(*info.progress, Progress::complete);
  ASSERT_EQ(info.sink.bodies.size(), 1U);
  EXPECT_EQ(as_text(info.sink.bodies[0]), text);
  const Decoded empty = decode(ReplyKind::info, Answer().text("", MessageType::info).bytes());
  EXPECT_EQ(*empty.progress, Progress::complete);
  EXPECT_EQ(empty.sink.bodies.size(), 1U);
  const Decoded security =
      decode(ReplyKind::security, Answer().text("0123456789abcdef", MessageType::security).bytes());
  EXPECT_EQ(*security.progress, Progress::complete);
}

TEST(ReplyDecoder, AnswersOneAfterTheOther) {
  ByteVector stream;
  for (const std::string_view payload : {"first", "second", "third"}) {
    const ByteVector bytes = record_answer(payload);
    stream.insert(stream.end(), bytes.begin(), bytes.end());
  }
  ReplyDecoder decoder;
  Bytes rest(stream);
  for (const std::string_view payload : {"first", "second", "third"}) {
    CollectingSink sink(Action::receive_into);
    EXPECT_FALSE(decoder.is_expecting());
    decoder.expect(ReplyKind::record, sink);
    EXPECT_TRUE(decoder.is_expecting());
    const auto progress = feed(decoder, rest, [] { return SIZE_MAX; });
    ASSERT_TRUE(progress);
    ASSERT_EQ(*progress, Progress::complete);
    EXPECT_EQ(as_text(sink.units[0].bins[1].value), payload);
  }
  EXPECT_EQ(decoder.buffered(), 0U);
  EXPECT_TRUE(rest.empty());
}

TEST(ReplyDecoder, BytesWithoutARequest) {
  ReplyDecoder decoder;
  std::array<MutableBytes, 2> places;
  ASSERT_GT(decoder.regions(places), 0U);
  places[0][0] = std::byte{2};
  EXPECT_EQ(decoder.received(1).error().code(), Code::protocol);
}

TEST(ReplyDecoder, WrongFrameTypes) {
  const ByteVector info = Answer().text("x\n", MessageType::info).bytes();
  const ByteVector record = record_answer("p");
  const ByteVector security = Answer().text("0123456789abcdef", MessageType::security).bytes();
  expect_protocol_error(ReplyKind::record, info);
  expect_protocol_error(ReplyKind::batch, info);
  expect_protocol_error(ReplyKind::query, security);
  expect_protocol_error(ReplyKind::info, record);
  expect_protocol_error(ReplyKind::security, info);
  ByteVector compressed = record;
  compressed[1] = std::byte{4};
  expect_protocol_error(ReplyKind::record, compressed);
}

// A frame that ends inside a unit is an error at once: nothing more will come to complete it.
TEST(ReplyDecoder, FramesTooShortForTheirUnits) {
  const ByteVector full = Answer()
                              .begin()
                              .unit(0, 0, 0, 1, 2)
                              .field(FieldType::ns, "lmcache")
                              .bin("n", "12345678")
                              .bin("b", "payload")
                              .end()
                              .bytes();
  for (size_t body = 0; body + kFrameHeaderBytes < full.size(); ++body) {
    SCOPED_TRACE("body of " + std::to_string(body));
    ByteVector cut(full.begin(), full.begin() + static_cast<ptrdiff_t>(kFrameHeaderBytes + body));
    encode_frame_header({MessageType::record, body}, cut.data());
    expect_protocol_error(ReplyKind::record, cut);
    if (body > 0) expect_protocol_error(ReplyKind::batch, cut);
    if (HasFatalFailure()) return;
  }
}

TEST(ReplyDecoder, FramesTooLongForTheirUnits) {
  ByteVector bytes = record_answer("payload");
  bytes.push_back(std::byte{0});
  encode_frame_header({MessageType::record, bytes.size() - kFrameHeaderBytes}, bytes.data());
  expect_protocol_error(ReplyKind::record, bytes);
}

TEST(ReplyDecoder, HostileSizes) {
  const ByteVector good =
      Answer().begin().unit(0, 0, 0, 1, 1).field(FieldType::ns, "n").bin("b", "p").end().bytes();
  constexpr size_t kFieldAt = kFrameHeaderBytes + kMessageHeaderBytes, kOpAt = kFieldAt + 6;
  for (const uint32_t size : {0U, 0x7FFFFFFFU, 0x80000000U, 0xFFFFFFFFU}) {
    ByteVector bytes = good;
    store_be<uint32_t>(bytes.data() + kFieldAt, size);
    expect_protocol_error(ReplyKind::record, bytes);
    bytes = good;
    store_be<uint32_t>(bytes.data() + kOpAt, size);
    expect_protocol_error(ReplyKind::record, bytes);
  }
  ByteVector bytes = good;
  bytes[kOpAt + 7] = std::byte{255};  // the name is longer than the op
  expect_protocol_error(ReplyKind::record, bytes);
  bytes = good;
  store_be<uint16_t>(bytes.data() + kFrameHeaderBytes + 20, 0xFFFF);  // op count
  expect_protocol_error(ReplyKind::record, bytes);
  bytes = good;
  store_be<uint16_t>(bytes.data() + kFrameHeaderBytes + 18, 0xFFFF);  // field count
  expect_protocol_error(ReplyKind::record, bytes);
}

TEST(ReplyDecoder, FieldAtAndOverItsLimit) {
  constexpr size_t kLimit = 16 << 10;
  const auto with_field = [](size_t bytes) {
    const std::string value(bytes, 'k');
    return Answer()
        .begin()
        .unit(0, info3::kLast, 0, 1, 0)
        .field(FieldType::user_key, value)
        .end()
        .bytes();
  };
  const Decoded at_limit = decode(ReplyKind::query, with_field(kLimit));
  ASSERT_TRUE(at_limit.progress) << at_limit.progress.error().message();
  EXPECT_EQ(at_limit.sink.units[0].fields[0].value.size(), kLimit);
  expect_protocol_error(ReplyKind::query, with_field(kLimit + 1));
}

TEST(ReplyDecoder, CopiedValueAtAndOverItsLimit) {
  const std::string limit(kCopiedValueBytesMax, 'v');
  const Decoded at_limit = decode(ReplyKind::record, record_answer(limit));
  ASSERT_TRUE(at_limit.progress) << at_limit.progress.error().message();
  const Decoded over = decode(ReplyKind::record, record_answer(limit + "v"));
  ASSERT_FALSE(over.progress);
  EXPECT_EQ(over.progress.error().code(), Code::protocol);
  EXPECT_TRUE(decode(ReplyKind::record, record_answer(limit + "v"), Action::receive_into).progress);
}

TEST(ReplyDecoder, ErrorsOfTheSinkEndTheDecoder) {
  class Refusing : public CollectingSink {
   public:
    using CollectingSink::CollectingSink;
    Status unit_end() override { return {Code::corruption, "refused"}; }
  };
  Refusing sink(Action::copy);
  ReplyDecoder decoder;
  decoder.expect(ReplyKind::record, sink);
  const ByteVector bytes = record_answer("p");
  Bytes stream(bytes);
  EXPECT_EQ(feed(decoder, stream, [] { return SIZE_MAX; }).error().code(), Code::corruption);
}

TEST(ReplyDecoder, TargetOfAnotherSizeIsOurBug) {
  class Narrow : public CollectingSink {
   public:
    using CollectingSink::CollectingSink;
    ValueTarget value_target(std::string_view, uint8_t, uint64_t) override {
      return ValueTarget::receive_into(MutableBytes(&byte_, 1));
    }

   private:
    std::byte byte_{};
  };
  Narrow sink(Action::copy);
  ReplyDecoder decoder;
  decoder.expect(ReplyKind::record, sink);
  const ByteVector bytes = record_answer("payload");
  Bytes stream(bytes);
  EXPECT_EQ(feed(decoder, stream, [] { return SIZE_MAX; }).error().code(), Code::internal);
}

// Random answers, every split of the byte stream, every way to take values: the same messages.
TEST(ReplyDecoder, AnySplitGivesTheSameMessages) {
  const uint32_t seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  const auto below = [&](uint32_t n) { return static_cast<uint32_t>(random() % n); };
  for (int round = 0; round < 300; ++round) {
    Answer answer;
    const uint32_t frame_count = 1 + below(3);
    for (uint32_t f = 0; f < frame_count; ++f) {
      answer.begin();
      const bool last_frame = f + 1 == frame_count;
      const uint32_t unit_count = 1 + below(4);
      for (uint32_t u = 0; u < unit_count; ++u) {
        const auto fields = static_cast<uint16_t>(below(4)), ops = static_cast<uint16_t>(below(4));
        answer.unit(static_cast<uint8_t>(below(3)),
                    last_frame && u + 1 == unit_count ? info3::kLast : uint8_t{0}, u, fields, ops);
        for (int i = 0; i < fields; ++i) {
          answer.field(FieldType::user_key, std::string(below(3000), 'f'));
        }
        for (int i = 0; i < ops; ++i) {
          const size_t bytes = below(4) == 0 ? below(150000) : below(40);
          answer.bin(std::string(below(16), 'n'),
                     std::string(bytes, static_cast<char>('a' + below(26))));
        }
      }
      answer.end();
    }
    ByteVector bytes = answer.bytes();
    const Decoded whole = decode(ReplyKind::batch, bytes);
    ASSERT_TRUE(whole.progress) << whole.progress.error().message();
    ASSERT_EQ(*whole.progress, Progress::complete);
    const ByteVector behind = record_answer("behind");
    bytes.insert(bytes.end(), behind.begin(), behind.end());
    const uint32_t piece_bytes_max = 1U << below(18);
    for (const Action action : {Action::copy, Action::receive_into}) {
      const Decoded pieces = decode(ReplyKind::batch, Bytes(bytes), action,
                                    [&] { return 1 + below(piece_bytes_max); });
      ASSERT_TRUE(pieces.progress) << pieces.progress.error().message();
      ASSERT_EQ(*pieces.progress, Progress::complete);
      ASSERT_TRUE(pieces.sink.units == whole.sink.units) << "pieces up to " << piece_bytes_max;
      ASSERT_EQ(pieces.left + pieces.buffered, behind.size());
    }
  }
}

TEST(ReplyDecoder, EveryByteAlone) {
  const ByteVector bytes = Answer()
                               .begin()
                               .unit(0, 0, 0, 2, 2)
                               .field(FieldType::ns, "lmcache")
                               .field(FieldType::digest, std::string(20, 'd'))
                               .bin("n", "12345678")
                               .bin("b", "")
                               .end()
                               .begin()
                               .end()
                               .begin()
                               .unit(0, info3::kLast, 0, 0, 0)
                               .end()
                               .bytes();
  const Decoded whole = decode(ReplyKind::query, bytes);
  const Decoded alone = decode(ReplyKind::query, Bytes(bytes), Action::copy, [] { return 1; });
  ASSERT_TRUE(alone.progress);
  EXPECT_EQ(*alone.progress, Progress::complete);
  EXPECT_TRUE(alone.sink.units == whole.sink.units);
  // Nothing is complete before the last byte.
  for (size_t n = 0; n < bytes.size(); ++n) {
    const Decoded cut =
        decode(ReplyKind::query, Bytes(bytes).first(n), Action::copy, [] { return SIZE_MAX; });
    ASSERT_TRUE(cut.progress);
    ASSERT_EQ(*cut.progress, Progress::needs_more) << n;
  }
}

}  // namespace
}  // namespace aerokv::wire
