// SPDX-License-Identifier: Apache-2.0
// Every recorded answer of the real server through the reply decoder, in any split of the bytes.
#include <gtest/gtest.h>

#include <map>
#include <random>
#include <string>

#include "recordings.h"
#include "wire/collecting_sink.h"
#include "wire/info.h"
#include "wire/security.h"

namespace aerokv::golden {
namespace {

using wire::CollectedUnit;
using wire::CollectingSink;
using wire::ReplyKind;
using Action = wire::ValueTarget::Action;
using Progress = wire::ReplyDecoder::Progress;

ReplyKind kind_of(const Exchange& exchange) {
  static const std::map<std::string, ReplyKind> kKinds = {
      {"info", ReplyKind::info},     {"security", ReplyKind::security},
      {"single", ReplyKind::record}, {"pipeline", ReplyKind::record},
      {"stream", ReplyKind::batch},  {"query", ReplyKind::query}};
  const auto it = kKinds.find(exchange.kind);
  EXPECT_TRUE(it != kKinds.end()) << exchange.kind;
  return it == kKinds.end() ? ReplyKind::record : it->second;
}

// A pipeline sends several messages at once; the type of each tells the kind of its answer.
std::vector<ReplyKind> kinds_of(const Exchange& exchange) {
  if (exchange.kind != "pipeline") return {kind_of(exchange)};
  std::vector<ReplyKind> kinds;
  Bytes requests(exchange.request);
  while (!requests.empty()) {
    const wire::FrameHeader frame = *wire::decode_frame_header(requests);
    kinds.push_back(frame.type == wire::MessageType::info ? ReplyKind::info : ReplyKind::record);
    requests = requests.subspan(wire::kFrameHeaderBytes + frame.body_bytes);
  }
  EXPECT_EQ(kinds.size(), exchange.answer_count);
  return kinds;
}

struct Decoded {
  std::vector<CollectedUnit> units;
  std::vector<std::vector<std::byte>> bodies;
};

template <typename NextCount>
Decoded decode(const Exchange& exchange, Action action, NextCount next) {
  wire::ReplyDecoder decoder;
  Decoded all;
  Bytes stream(exchange.response);
  for (const ReplyKind kind : kinds_of(exchange)) {
    CollectingSink sink(action, UINT64_MAX);
    decoder.expect(kind, sink);
    const auto progress = wire::feed(decoder, stream, next);
    EXPECT_TRUE(progress) << progress.error().message();
    if (progress) {
      EXPECT_EQ(*progress, Progress::complete);
    }
    all.units.insert(all.units.end(), sink.units.begin(), sink.units.end());
    all.bodies.insert(all.bodies.end(), sink.bodies.begin(), sink.bodies.end());
  }
  EXPECT_TRUE(stream.empty()) << stream.size() << " bytes left";
  EXPECT_EQ(decoder.buffered(), 0U);
  return all;
}

// The same units by another way: frames cut off one by one, then whole units out of each.
std::vector<CollectedUnit> read_units(Bytes stream) {
  std::vector<CollectedUnit> units;
  while (stream.size() >= wire::kFrameHeaderBytes) {
    const auto frame = wire::decode_frame_header(stream);
    EXPECT_TRUE(frame);
    if (!frame) break;
    wire::UnitReader reader(stream.subspan(wire::kFrameHeaderBytes, frame->body_bytes));
    stream = stream.subspan(wire::kFrameHeaderBytes + frame->body_bytes);
    while (frame->type == wire::MessageType::record && !reader.rest().empty()) {
      const wire::MessageHeader header = *reader.header();
      CollectedUnit& unit = units.emplace_back();
      encode_message_header(header, unit.header_bytes.data());
      for (int i = 0; i < header.field_count; ++i) {
        const wire::Field field = *reader.field();
        unit.fields.push_back({field.type, {field.value.begin(), field.value.end()}});
      }
      for (int i = 0; i < header.op_count; ++i) {
        const wire::Op op = *reader.op();
        unit.bins.push_back(
            {std::string(op.name), op.particle, {op.value.begin(), op.value.end()}});
      }
      unit.ended = true;
    }
  }
  return units;
}

void check_answer(const Exchange& exchange, const Decoded& decoded) {
  const ReplyKind kind = kind_of(exchange);
  std::vector<uint8_t> codes;
  if (kind == ReplyKind::info) {
    ASSERT_EQ(decoded.bodies.size(), 1U);
    const auto items = wire::parse_info(as_text(decoded.bodies[0]));
    // Every line of the answer is there, unchanged.
    std::string again;
    for (const wire::InfoItem& item : items) {
      again += std::string(item.name);
      if (item.value.data() != nullptr) again += "\t" + std::string(item.value);
      again += "\n";
    }
    EXPECT_EQ(again, as_text(decoded.bodies[0]));
    return;
  }
  if (kind == ReplyKind::security) {
    ASSERT_EQ(decoded.bodies.size(), 1U);
    const auto answer = wire::decode_security_answer(decoded.bodies[0]);
    ASSERT_TRUE(answer) << answer.error().message();
    codes.push_back(answer->result_code);
  } else {
    for (const CollectedUnit& unit : decoded.units) codes.push_back(unit.header().result_code);
    EXPECT_TRUE(decoded.units == read_units(exchange.response));
  }
  EXPECT_EQ(codes, exchange.result_codes);
}

TEST(GoldenReplies, EveryRecordedAnswerInAnySplit) {
  const uint32_t seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  size_t decoded_count = 0;
  for (const Exchange& exchange : load_exchanges()) {
    if (exchange.is_closed) continue;
    SCOPED_TRACE(exchange.name);
    const Decoded whole = decode(exchange, Action::receive_into, [] { return SIZE_MAX; });
    check_answer(exchange, whole);
    const size_t step = exchange.response.size() > 10000 ? 997 : 1;
    const Decoded single = decode(exchange, Action::receive_into, [&] { return step; });
    EXPECT_TRUE(single.units == whole.units && single.bodies == whole.bodies);
    const size_t piece = 1 + random() % 300;
    const Decoded split = decode(exchange, Action::copy, [&] { return 1 + random() % piece; });
    EXPECT_TRUE(split.units == whole.units && split.bodies == whole.bodies);
    ++decoded_count;
    if (HasFailure()) break;
  }
  EXPECT_EQ(decoded_count, 371U);
}

// The same answer with one bit flipped may decode or not, but always to an end.
TEST(GoldenReplies, DamagedAnswersNeverBreakTheDecoder) {
  const uint32_t seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  for (Exchange exchange : load_exchanges()) {
    if (exchange.is_closed || exchange.response.size() > 100000) continue;
    for (int round = 0; round < 20; ++round) {
      std::vector<std::byte> damaged = exchange.response;
      damaged[random() % damaged.size()] ^= static_cast<std::byte>(1U << random() % 8);
      CollectingSink sink(Action::receive_into);
      wire::ReplyDecoder decoder;
      decoder.expect(kind_of(exchange), sink);
      Bytes stream(damaged);
      const auto progress = wire::feed(decoder, stream, [&] { return 1 + random() % 5000; });
      if (!progress) {
        EXPECT_EQ(progress.error().code(), Code::protocol);
      }
    }
  }
}

TEST(GoldenReplies, RecordedInfoTexts) {
  std::map<std::string, std::string> bodies;
  for (const Exchange& exchange : load_exchanges()) {
    if (exchange.kind != "info") continue;
    bodies[exchange.name] = as_text(Bytes(exchange.response).subspan(wire::kFrameHeaderBytes));
  }
  const auto replicas = wire::parse_info(bodies.at("info_connect_replicas"));
  const auto text = wire::find_info(replicas, "replicas");
  ASSERT_TRUE(text) << text.error().message();
  const auto maps = wire::parse_replicas(*text);
  ASSERT_TRUE(maps) << maps.error().message();
  ASSERT_EQ(maps->size(), 2U);
  for (const wire::ReplicaMap& map : *maps) {
    EXPECT_TRUE(map.ns == "lmcache" || map.ns == "nsup0") << map.ns;
    EXPECT_EQ(map.regime, 0U);
    EXPECT_EQ(map.replication_factor, 1U);
    EXPECT_TRUE(map.replicas.at(0).all());  // one node owns everything
  }
  const auto peers_items = wire::parse_info(bodies.at("info_peers_clear_std"));
  const auto peers = wire::parse_peers(*wire::find_info(peers_items, "peers-clear-std"));
  ASSERT_TRUE(peers) << peers.error().message();
  EXPECT_EQ(peers->generation, 0);
  EXPECT_TRUE(peers->peers.empty());
  const auto node = wire::parse_info(bodies.at("info_node"));
  EXPECT_EQ(*wire::find_info(node, "node"), "A1");
}

}  // namespace
}  // namespace aerokv::golden
