// SPDX-License-Identifier: Apache-2.0
#include "tests/chaos/schedule.h"

#include <algorithm>
#include <array>

#include "tests/chaos/random.h"

namespace aerokv::chaos {
namespace {

using devserver::Damage;
using devserver::Fault;
using devserver::FaultAction;
using devserver::mask_of;
using devserver::RequestKind;
using Kind = Event::Kind;

// Traffic alone at the start, so that every client has connections and every key contents.
constexpr int64_t kQuietStartMs = 800;
// Time enough for the cluster to settle and for the strict rules to be applied for a while.
constexpr int64_t kCalmMs = 2600;

constexpr std::array<uint8_t, 10> kCodes = {9, 11, 14, 18, 8, 22, 13, 2, 4, 80};
constexpr std::array<uint8_t, 5> kCodesAfter = {9, 11, 14, 18, 22};
constexpr std::array<uint64_t, 7> kCuts = {0, 5, 8, 29, 30, 75, 40000};

constexpr devserver::RequestMask kReads =
    mask_of(RequestKind::get, RequestKind::exists, RequestKind::operate);
constexpr devserver::RequestMask kWrites =
    mask_of(RequestKind::put, RequestKind::touch, RequestKind::remove);
constexpr devserver::RequestMask kBatches = mask_of(RequestKind::batch);
constexpr devserver::RequestMask kRows = mask_of(RequestKind::batch_row);
constexpr devserver::RequestMask kContacts =
    mask_of(RequestKind::info, RequestKind::login, RequestKind::authenticate);

class Maker {
 public:
  explicit Maker(const Recipe& recipe)
      : recipe_(recipe),
        random_(Random::mix(recipe.seed * 1000003 + recipe.nodes)),
        nodes_(recipe.nodes),
        end_ms_(static_cast<int64_t>(recipe.seconds) * 1000) {}

  std::vector<Event> make() {
    int64_t at = kQuietStartMs;
    while (at < end_ms_) {
      const int64_t length = random_.below(5) < 3 ? upheaval(at) : trouble(at);
      // Sometimes requests fail while the cluster changes.
      if (random_.one_in(3)) trouble(at + static_cast<int64_t>(random_.below(300)));
      at += length;
      at += random_.below(5) < 2 ? kCalmMs : static_cast<int64_t>(random_.between(50, 500));
    }
    std::stable_sort(events_.begin(), events_.end(),
                     [](const Event& a, const Event& b) { return a.at_ms < b.at_ms; });
    return std::move(events_);
  }

 private:
  int any_node() { return static_cast<int>(random_.below(nodes_)); }
  int other_than(int node) {
    const uint64_t step = 1 + random_.below(nodes_ - 1);
    return static_cast<int>((static_cast<uint64_t>(node) + step) % nodes_);
  }
  int64_t ms(uint64_t from, uint64_t to) { return static_cast<int64_t>(random_.between(from, to)); }

  Event& add(int64_t at, Kind kind, int node) {
    Event& event = events_.emplace_back();
    event.at_ms = at;
    event.kind = kind;
    event.node = node;
    return event;
  }

  // Nodes die, freeze and return. Returns how long it lasts.
  int64_t upheaval(int64_t at) {
    switch (random_.below(11)) {
      case 0:
        return one_away(at, Kind::stop, Kind::start, ms(600, 1500));
      case 1:  // back before the others have noticed
        return one_away(at, Kind::stop, Kind::start, ms(10, 150));
      case 2:
        return one_away(at, Kind::pause, Kind::resume, ms(40, 250));
      case 3:  // long enough to be replaced: it comes back with old data
        return one_away(at, Kind::pause, Kind::resume, ms(700, 1600));
      case 4:
        return two_away(at, Kind::stop, Kind::start);
      case 5:
        return two_away(at, Kind::pause, Kind::resume);
      case 6:
        return all_away(at);
      case 7:
        return rolling(at);
      case 8:
        return frozen_dies(at);
      case 9:
        return grow_and_shrink(at);
      default:
        return recipe_.has_racks() ? move_racks(at)
                                   : one_away(at, Kind::stop, Kind::start, ms(200, 700));
    }
  }

  int64_t away(int64_t at, Kind go, Kind come, int node, int64_t length) {
    add(at, go, node);
    add(at + length, come, node);
    return length;
  }

  // Arguments are evaluated in any order: no two of one call may draw a number.
  int64_t one_away(int64_t at, Kind go, Kind come, int64_t length) {
    return away(at, go, come, any_node(), length);
  }

  int64_t two_away(int64_t at, Kind go, Kind come) {
    const int first = any_node();
    const int second = other_than(first);
    const int64_t between = random_.one_in(2) ? ms(0, 30) : ms(500, 900);
    const int64_t length = away(at, go, come, first, ms(600, 1400));
    return std::max(length, between + away(at + between, go, come, second, ms(600, 1400)));
  }

  int64_t all_away(int64_t at) {
    const int64_t length = ms(200, 900);
    for (uint64_t node = 0; node < nodes_; ++node) {
      const int64_t late = ms(0, 40);
      away(at + late, Kind::stop, Kind::start, static_cast<int>(node), length + ms(50, 250));
    }
    return length + 250;
  }

  int64_t rolling(int64_t at) {
    const int64_t pause = ms(300, 900);
    for (uint64_t node = 0; node < nodes_; ++node) {
      away(at, Kind::stop, Kind::start, static_cast<int>(node), 300);
      at += 300 + pause;
    }
    return static_cast<int64_t>(nodes_) * (300 + pause);
  }

  int64_t frozen_dies(int64_t at) {
    const int node = any_node();
    const int64_t frozen = ms(30, 600);
    add(at, Kind::pause, node);
    return frozen + away(at + frozen, Kind::stop, Kind::start, node, ms(100, 900));
  }

  // The spare node comes, and goes as operators do it or as power failures do.
  int64_t grow_and_shrink(int64_t at) {
    const int spare = static_cast<int>(nodes_);
    const Kind go = random_.one_in(2) ? Kind::remove : Kind::stop;
    return away(at, Kind::start, go, spare, ms(600, 2000));
  }

  int64_t move_racks(int64_t at) {
    for (uint64_t node = 0; node < nodes_; ++node) {
      add(at, Kind::rack, static_cast<int>(node)).value = random_.below(3);
    }
    return 500;
  }

  // Requests are slow, refused, or fail. Returns how long it lasts.
  int64_t trouble(int64_t at) {
    const int64_t length = ms(300, 1200);
    const int node = random_.one_in(4) ? -1 : any_node();
    switch (random_.below(12)) {
      case 0:
        return change(at, length, Kind::limit, 0, kSmallRecordLimit, kRecordLimit);
      case 1:
        return change(at, length, Kind::link, node, random_.between(1, 20) * 1'000'000, 0);
      case 2:
        return change(at, length, Kind::latency, node, random_.between(1, 200) * 1'000, 0);
      case 3:
        return change(at, length, Kind::stop_writes, node, 1, 0);
      case 4:
        return recipe_.has_users() ? trouble_with_users(at, length) : requests_fail(at);
      case 5:
        if (!recipe_.has_tls()) return requests_fail(at);
        add(at, Kind::rotate, 0);
        return 100;
      default:
        return requests_fail(at);
    }
  }

  int64_t change(int64_t at, int64_t length, Kind kind, int node, uint64_t value, uint64_t back) {
    add(at, kind, node).value = value;
    add(at + length, kind, node).value = back;
    return length;
  }

  int64_t trouble_with_users(int64_t at, int64_t length) {
    if (random_.one_in(2)) return change(at, length, Kind::user, 0, 0, 1);
    add(at, Kind::expire, 0);
    return 100;
  }

  int64_t requests_fail(int64_t at) {
    const int64_t length = ms(150, 900);
    const uint64_t tag = ++tags_;
    const int node = random_.one_in(3) ? -1 : any_node();
    Event& event = add(at, Kind::fault, node);
    event.tag = tag;
    event.fault = make_fault();
    event.fault.node = node;
    add(at + length, Kind::unfault, node).tag = tag;
    return length;
  }

  Fault make_fault() {
    Fault fault;
    choose_requests(fault);
    choose_action(fault);
    // Now and then, or always.
    fault.skip = random_.below(20);
    fault.count = random_.one_in(2) ? 0 : random_.between(1, 30);
    fault.seed = random_.below(1000);
    return fault;
  }

  void choose_requests(Fault& fault) {
    constexpr std::array<devserver::RequestMask, 7> kMasks = {
        kReads, kWrites, kBatches, kRows, kContacts, kReads | kBatches, devserver::kRecordRequest};
    fault.kinds = kMasks[random_.below(kMasks.size())];
  }

  void choose_action(Fault& fault) {
    const bool rows_only = fault.kinds == kRows;
    switch (random_.below(rows_only ? 3 : 8)) {
      case 0:
        fault.action = FaultAction::result_code;
        fault.code = kCodes[random_.below(kCodes.size())];
        break;
      case 1:
        fault.action = FaultAction::result_after_execute;
        fault.code = kCodesAfter[random_.below(kCodesAfter.size())];
        break;
      case 2:
        fault.action = FaultAction::drop;
        break;
      case 3:
        fault.action = FaultAction::drop_answer;
        break;
      case 4:
        fault.action = random_.one_in(2) ? FaultAction::close : FaultAction::close_after_bytes;
        fault.bytes = kCuts[random_.below(kCuts.size())];
        break;
      case 5:
        fault.action = FaultAction::delay;
        fault.delay = std::chrono::milliseconds(random_.between(1, 400));
        break;
      case 6:
        fault.action = FaultAction::latency;
        fault.delay = std::chrono::milliseconds(random_.between(1, 400));
        break;
      default:
        choose_damage(fault);
    }
  }

  void choose_damage(Fault& fault) {
    fault.action = FaultAction::damage;
    fault.damage = static_cast<Damage>(random_.below(devserver::kDamages));
    fault.bytes = random_.one_in(2) ? 1 : random_.between(2, 100000);
    if (fault.damage == Damage::flip_value_bit) fault.set = kHashedSet;
  }

  const Recipe recipe_;
  Random random_;
  const uint64_t nodes_;
  const int64_t end_ms_;
  uint64_t tags_ = 0;
  std::vector<Event> events_;
};

std::string text_of(const Fault& fault) {
  std::string kinds;
  for (size_t i = 0; i < devserver::kRequestKinds; ++i) {
    if ((fault.kinds >> i & 1U) == 0) continue;
    kinds += kinds.empty() ? "" : ",";
    kinds += devserver::request_kind_name(static_cast<RequestKind>(i));
  }
  std::string text = " action=" + std::string(devserver::fault_action_name(fault.action)) +
                     " kinds=" + kinds + " skip=" + std::to_string(fault.skip) +
                     " count=" + std::to_string(fault.count);
  switch (fault.action) {
    case FaultAction::result_code:
    case FaultAction::result_after_execute:
      return text + " code=" + std::to_string(fault.code);
    case FaultAction::delay:
    case FaultAction::latency:
      return text + " delay_ms=" + std::to_string(fault.delay.count() / 1000);
    case FaultAction::close_after_bytes:
      return text + " bytes=" + std::to_string(fault.bytes);
    case FaultAction::damage:
      text += " damage=" + std::string(devserver::damage_name(fault.damage)) +
              " bytes=" + std::to_string(fault.bytes) + " seed=" + std::to_string(fault.seed);
      return fault.set.empty() ? text : text + " set=" + fault.set;
    default:
      return text;
  }
}

const char* verb_of(Kind kind) {
  constexpr const char* kVerbs[] = {"stop",        "start",   "pause", "resume", "remove",
                                    "fault",       "unfault", "limit", "link",   "latency",
                                    "stop_writes", "expire",  "user",  "rack",   "rotate"};
  return kVerbs[static_cast<size_t>(kind)];
}

}  // namespace

std::vector<Event> make_schedule(const Recipe& recipe) {
  return Maker(recipe).make();
}

std::string text_of(const Event& event) {
  const std::string text = std::to_string(event.at_ms) + " " + verb_of(event.kind);
  switch (event.kind) {
    case Kind::stop:
    case Kind::start:
    case Kind::pause:
    case Kind::resume:
    case Kind::remove:
      return text + " " + std::to_string(event.node);
    case Kind::fault:
      return text + " " + std::to_string(event.tag) + " node=" + std::to_string(event.node) +
             text_of(event.fault);
    case Kind::unfault:
      return text + " " + std::to_string(event.tag);
    case Kind::limit:
    case Kind::user:
      return text + " " + std::to_string(event.value);
    case Kind::link:
    case Kind::latency:
    case Kind::stop_writes:
    case Kind::rack:
      return text + " " + std::to_string(event.node) + " " + std::to_string(event.value);
    case Kind::expire:
    case Kind::rotate:
      return text;
  }
  return text;
}

}  // namespace aerokv::chaos
