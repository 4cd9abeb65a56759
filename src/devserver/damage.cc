// SPDX-License-Identifier: Apache-2.0
// Damaged answers.
#include <algorithm>
#include <random>

#include "devserver/fault_plan.h"
#include "wire/message.h"

namespace aerokv::devserver {
namespace {

using Byte = std::byte;
using ByteVector = std::vector<std::byte>;

/// Places inside a complete answer.
struct Unit {
  size_t frame = 0;  ///< of its frame header
  size_t begin = 0;  ///< of its message header
  size_t end = 0;
  wire::MessageHeader header;
};
struct OpPlace {
  size_t unit = 0;   ///< index of its unit
  size_t begin = 0;  ///< of its size word
  size_t value = 0;
  size_t value_bytes = 0;
};
struct Layout {
  std::vector<Unit> units;
  std::vector<OpPlace> ops;
};

/// Takes an answer of our own apart; stops where it is no record message.
Layout layout_of(const ByteVector& answer) {
  Layout layout;
  size_t at = 0;
  while (answer.size() - at >= wire::kFrameHeaderBytes) {
    const size_t frame = at;
    const auto head = wire::decode_frame_header(Bytes(answer).subspan(at));
    if (!head || head->type != wire::MessageType::record) break;
    at += wire::kFrameHeaderBytes;
    const size_t end = at + static_cast<size_t>(head->body_bytes);
    if (end > answer.size()) break;
    while (at < end) {
      wire::UnitReader reader(Bytes(answer).subspan(at, end - at));
      const auto place = [&] { return end - reader.rest().size(); };
      const auto header = reader.header();
      if (!header) return layout;
      const size_t begin = at;
      for (uint32_t i = 0; i < header->field_count; ++i) {
        if (!reader.field()) return layout;
      }
      for (uint32_t i = 0; i < header->op_count; ++i) {
        const size_t op_begin = place();
        const auto op = reader.op();
        if (!op) return layout;
        layout.ops.push_back(
            {layout.units.size(), op_begin, place() - op->value.size(), op->value.size()});
      }
      at = place();
      layout.units.push_back({frame, begin, at, *header});
    }
  }
  return layout;
}

void add_to_frame_size(ByteVector& answer, size_t frame, int64_t change) {
  const auto word = load_be<uint64_t>(answer.data() + frame);
  constexpr uint64_t kSizeMask = 0xFFFFFFFFFFFFULL;
  const uint64_t size = (word & kSizeMask) + static_cast<uint64_t>(change);
  store_be<uint64_t>(answer.data() + frame, (word & ~kSizeMask) | (size & kSizeMask));
}

void fill_random(ByteVector& answer, size_t from, uint64_t seed) {
  std::mt19937_64 random(seed);
  for (size_t i = from; i < answer.size(); ++i) answer[i] = static_cast<Byte>(random() & 0xFF);
}

std::ptrdiff_t offset(size_t at) {
  return static_cast<std::ptrdiff_t>(at);
}

void resize_value(ByteVector& answer, const Layout& layout, const Fault& fault, bool longer) {
  const auto largest = std::max_element(
      layout.ops.begin(), layout.ops.end(),
      [](const OpPlace& a, const OpPlace& b) { return a.value_bytes < b.value_bytes; });
  if (largest == layout.ops.end()) return;
  const auto end = answer.begin() + offset(largest->value + largest->value_bytes);
  int64_t change = 0;
  if (longer) {
    change = static_cast<int64_t>(std::min<uint64_t>(fault.bytes, 64ULL << 20));
    answer.insert(end, static_cast<size_t>(change), Byte{0xA5});
  } else {
    change = -static_cast<int64_t>(std::min<uint64_t>(fault.bytes, largest->value_bytes));
    answer.erase(end + change, end);
  }
  const auto op_bytes = load_be<uint32_t>(answer.data() + largest->begin);
  store_be<uint32_t>(answer.data() + largest->begin,
                     static_cast<uint32_t>(op_bytes + static_cast<uint64_t>(change)));
  add_to_frame_size(answer, layout.units[largest->unit].frame, change);
}

void flip_value_bit(ByteVector& answer, const Layout& layout, uint64_t seed) {
  const auto largest = std::max_element(
      layout.ops.begin(), layout.ops.end(),
      [](const OpPlace& a, const OpPlace& b) { return a.value_bytes < b.value_bytes; });
  if (largest == layout.ops.end() || largest->value_bytes == 0) return;
  std::mt19937_64 random(seed);
  answer[largest->value + random() % largest->value_bytes] ^= Byte{0x10};
}

void add_to_count(ByteVector& answer, size_t at, int change) {
  const auto count = load_be<uint16_t>(answer.data() + at);
  store_be<uint16_t>(answer.data() + at, static_cast<uint16_t>(count + change));
}

void erase_unit(ByteVector& answer, const Unit& unit) {
  answer.erase(answer.begin() + offset(unit.begin), answer.begin() + offset(unit.end));
  add_to_frame_size(answer, unit.frame, -static_cast<int64_t>(unit.end - unit.begin));
}

bool is_final(const Unit& unit) {
  return (unit.header.info3 & wire::info3::kLast) != 0;
}

void damage_rows(ByteVector& answer, const Layout& layout, Damage damage) {
  const auto& units = layout.units;
  if (units.empty() || is_final(units.front())) return;
  const Unit& first = units.front();
  constexpr size_t kIndexAt = 14;
  switch (damage) {
    case Damage::index_out_of_range:
      store_be<uint32_t>(answer.data() + first.begin + kIndexAt, 1U << 31);
      break;
    case Damage::index_duplicate:
      if (units.size() < 2 || is_final(units[1])) return;
      store_be<uint32_t>(answer.data() + units[1].begin + kIndexAt, first.header.transaction_ttl);
      break;
    case Damage::missing_row:
      erase_unit(answer, first);
      break;
    case Damage::extra_row: {
      const ByteVector copy(answer.begin() + offset(first.begin),
                            answer.begin() + offset(first.end));
      answer.insert(answer.begin() + offset(first.end), copy.begin(), copy.end());
      add_to_frame_size(answer, first.frame, static_cast<int64_t>(copy.size()));
      break;
    }
    default:
      break;
  }
}

void damage_final(ByteVector& answer, const Layout& layout) {
  if (layout.units.empty() || !is_final(layout.units.back())) return;
  const Unit& last = layout.units.back();
  const bool alone = last.begin == last.frame + wire::kFrameHeaderBytes;
  erase_unit(answer, last);
  if (alone) answer.resize(last.frame);
}

void damage_unit(ByteVector& answer, const Layout& layout, const Fault& fault) {
  if (layout.units.empty()) return;
  const Unit& unit = layout.units.front();
  constexpr size_t kFieldCountAt = 18;
  constexpr size_t kOpCountAt = 20;
  switch (fault.damage) {
    case Damage::op_count_over:
      return add_to_count(answer, unit.begin + kOpCountAt, 1);
    case Damage::op_count_under:
      if (unit.header.op_count > 0) add_to_count(answer, unit.begin + kOpCountAt, -1);
      return;
    case Damage::field_count_over:
      return add_to_count(answer, unit.begin + kFieldCountAt, 1);
    default:
      break;
  }
  if (layout.ops.empty()) return;
  const OpPlace& op = layout.ops.front();
  constexpr size_t kParticleAt = 5;
  constexpr size_t kNameAt = 8;
  switch (fault.damage) {
    case Damage::wrong_bin_name:
      if (op.value > op.begin + kNameAt) answer[op.begin + kNameAt] ^= Byte{0x20};
      break;
    case Damage::wrong_particle:
      answer[op.begin + kParticleAt] ^= Byte{0x07};
      break;
    case Damage::op_size_over:
      store_be<uint32_t>(answer.data() + op.begin, 0x7FFFFFFF);
      break;
    default:
      break;
  }
}

}  // namespace

std::vector<std::byte> damaged(std::vector<std::byte> answer, const Fault& fault) {
  if (answer.size() < wire::kFrameHeaderBytes) return answer;
  const auto amount = static_cast<int64_t>(std::min<uint64_t>(fault.bytes, 64ULL << 20));
  const Layout layout = layout_of(answer);
  switch (fault.damage) {
    case Damage::garbage_body:
      fill_random(answer, wire::kFrameHeaderBytes, fault.seed);
      break;
    case Damage::garbage_frame:
      fill_random(answer, 0, fault.seed);
      break;
    case Damage::flip_value_bit:
      flip_value_bit(answer, layout, fault.seed);
      break;
    case Damage::shorter_value:
      resize_value(answer, layout, fault, false);
      break;
    case Damage::longer_value:
      resize_value(answer, layout, fault, true);
      break;
    case Damage::frame_size_over:
      add_to_frame_size(answer, 0, amount);
      break;
    case Damage::frame_size_under: {
      const auto body = load_be<uint64_t>(answer.data()) & 0xFFFFFFFFFFFFULL;
      add_to_frame_size(answer, 0, -std::min(amount, static_cast<int64_t>(body)));
      break;
    }
    case Damage::frame_size_huge:
      add_to_frame_size(answer, 0, static_cast<int64_t>(kMessageBytesMax) + 1);
      break;
    case Damage::wrong_type:
      answer[1] = answer[1] == Byte{3} ? Byte{1} : Byte{3};
      break;
    case Damage::index_out_of_range:
    case Damage::index_duplicate:
    case Damage::missing_row:
    case Damage::extra_row:
      damage_rows(answer, layout, fault.damage);
      break;
    case Damage::no_final_unit:
      damage_final(answer, layout);
      break;
    case Damage::empty_frame: {
      answer.resize(wire::kFrameHeaderBytes);
      store_be<uint64_t>(answer.data(), load_be<uint64_t>(answer.data()) & ~0xFFFFFFFFFFFFULL);
      break;
    }
    default:
      damage_unit(answer, layout, fault);
      break;
  }
  return answer;
}

}  // namespace aerokv::devserver
