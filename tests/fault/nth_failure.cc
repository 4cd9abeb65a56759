// SPDX-License-Identifier: Apache-2.0
#include "tests/fault/nth_failure.h"

#include <algorithm>
#include <cstdio>
#include <thread>
#include <utility>

namespace aerokv::testing {
namespace {

constexpr size_t kWorlds = 12;
constexpr uint64_t kRequestsMax = 40;  // no operation here needs as many
constexpr int kFailuresMax = 10;       // of one variant

std::atomic<uint64_t> too_busy{0};  // rounds that were never judged completely

size_t segments_of(size_t bytes) {
  return bytes <= kSegment ? 0 : (bytes + kSegment - 1) / kSegment;
}

/// All rounds of one scenario with one variant.
class Rounds {
 public:
  Rounds(World& world, const Scenario& scenario, Aim aim, const Variant& variant)
      : world_(world),
        scenario_(scenario),
        aim_(aim),
        variant_(variant),
        left_(random_bytes(300, 11)),
        right_(random_bytes(kSegment + 4000, 12)),
        old_(random_bytes(scenario.stored.value_or(0), 13)),
        new_(random_bytes(scenario.bytes, 14)),
        healed_(random_bytes(std::max(scenario.bytes, scenario.stored.value_or(0)), 15)) {}

  /// Returns how often a fault was applied.
  uint64_t run_all() {
    for (nth_ = 1; nth_ <= kRequestsMax; ++nth_) {
      const uint64_t applied = run_round();
      total_ += applied;
      if (failures_ >= kFailuresMax) {
        ADD_FAILURE() << where() << ": given up after " << failures_ << " failures";
        return total_;
      }
      if (applied == 0) return total_;
    }
    ADD_FAILURE() << where() << ": still failing";
    return total_;
  }

 private:
  [[nodiscard]] std::string where() const {
    return scenario_.name + "/" + aim_name(aim_) + "/" + variant_.name + "/" + std::to_string(nth_);
  }
  [[nodiscard]] bool is(Operation operation) const { return scenario_.operation == operation; }
  Connector& connector() { return variant_.needs_hash ? world_.verifier() : world_.writer(); }

  void check(bool condition, const std::string& what) {
    if (condition) return;
    ++failures_;
    ADD_FAILURE() << where() << ": " << what;
  }

  /// What must succeed in time.
  void expect(bool condition, const std::string& what) {
    if (!condition) complaints_.push_back(where() + ": " + what);
  }
  bool settle_complaints(std::chrono::steady_clock::time_point begin);

  uint64_t run_round();
  uint64_t try_round();
  void prepare();
  uint64_t add_fault();
  Completion operate();
  void check_bits(const Completion& completion, bool touched);
  void check_loaded(const Completion& completion);
  void check_what_is_left(bool bit, bool touched);
  void check_neighbours_left();
  void heal();
  [[nodiscard]] std::string contents_of(Bytes loaded) const;
  [[nodiscard]] bool must_succeed(bool touched) const;
  [[nodiscard]] bool neighbours_must_succeed(bool touched) const;

  World& world_;
  const Scenario& scenario_;
  const Aim aim_;
  const Variant& variant_;
  const Buffer left_, right_, old_, new_, healed_;
  uint64_t nth_ = 0;
  uint64_t total_ = 0;
  int failures_ = 0;
  int tries_ = 0;
  std::vector<std::string> complaints_;
  std::string key_, left_key_, right_key_;
  std::vector<Guarded> targets_;
};

void Rounds::prepare() {
  key_ = where() + "/" + std::to_string(++tries_);
  left_key_ = key_ + "/left";
  right_key_ = key_ + "/right";
  std::vector<Item> puts;
  if (scenario_.stored) puts.push_back(put_item(key_, old_));
  if (!is(Operation::put)) {
    puts.push_back(put_item(left_key_, left_));
    puts.push_back(put_item(right_key_, right_));
  }
  if (puts.empty()) return;
  const Completion completion = complete(connector(), Operation::put, std::move(puts));
  expect(completion.ok, "prepare: " + completion.error);
}

uint64_t Rounds::add_fault() {
  devserver::Fault fault = variant_.fault;
  fault.skip = nth_ - 1;
  fault.count = variant_.persistent ? 0 : 1;
  const size_t segments = std::max(
      {segments_of(scenario_.bytes), segments_of(scenario_.stored.value_or(0)), size_t{1}});
  using devserver::RequestKind;
  switch (aim_) {
    case Aim::record:
      fault.kinds = devserver::kRecordRequest &
                    ~devserver::mask_of(RequestKind::batch, RequestKind::batch_row);
      fault.digests = world_.digests(key_, segments + 1);
      break;
    case Aim::row:
      fault.kinds = devserver::mask_of(RequestKind::batch_row);
      fault.digests = world_.digests(key_, segments + 1);
      break;
    case Aim::message:
      fault.kinds = devserver::mask_of(RequestKind::batch);
      break;
  }
  return world_.server().add_fault(fault);
}

Completion Rounds::operate() {
  std::vector<Item> items;
  switch (scenario_.operation) {
    case Operation::put:
      items = {put_item(left_key_, left_), put_item(key_, new_), put_item(right_key_, right_)};
      break;
    case Operation::get:
      targets_.clear();
      targets_.emplace_back(left_.size());
      targets_.emplace_back(scenario_.bytes);
      targets_.emplace_back(right_.size());
      targets_.emplace_back(1000);
      items = {get_into(left_key_, targets_[0]), get_into(key_, targets_[1]),
               get_into(right_key_, targets_[2]), get_into(key_ + "/absent", targets_[3])};
      break;
    default:
      items = {key_item(left_key_), key_item(key_), key_item(right_key_),
               key_item(key_ + "/absent")};
      break;
  }
  return complete(connector(), scenario_.operation, std::move(items));
}

/// The operation on the key itself must have had its full effect.
bool Rounds::must_succeed(bool touched) const {
  if (!touched) return true;
  if (variant_.persistent || variant_.freezes) {
    // What follows a store is tidying up.
    return is(Operation::put) && aim_ != Aim::record && !variant_.freezes;
  }
  return is(Operation::get) ? variant_.cured_with_bins : variant_.cured;
}

bool Rounds::neighbours_must_succeed(bool touched) const {
  if (variant_.freezes) return !touched;
  return aim_ != Aim::message || must_succeed(touched);
}

void Rounds::check_bits(const Completion& completion, bool touched) {
  const std::string bits = text_of(completion.bits);
  const std::string seen = "bits " + bits + ", error \"" + completion.error + "\"";
  if (bits.size() > 3) check(bits[3] == '0', "an absent key is there: " + seen);
  // A removal whose answer was lost finds nothing when it is tried again.
  const bool may_find_nothing = is(Operation::remove) && touched;
  if (must_succeed(touched)) {
    expect(completion.ok, "expected success: " + seen);
    if (!may_find_nothing) expect(bits[1] == '1', "expected a hit: " + seen);
  }
  if (neighbours_must_succeed(touched) && !(may_find_nothing && aim_ == Aim::message)) {
    expect(bits[0] == '1' && bits[2] == '1', "neighbours failed: " + seen);
  }
  const uint64_t hits = static_cast<uint64_t>(std::count(bits.begin(), bits.end(), '1'));
  const bool is_ok = completion.ok;
  if (is(Operation::put)) check(is_ok == (hits == bits.size()), "ok contradicts the bits: " + seen);
}

void Rounds::check_loaded(const Completion& completion) {
  const Buffer* expected[] = {&left_, &old_, &right_};
  for (size_t i = 0; i < targets_.size(); ++i) {
    check(targets_[i].is_intact(), "written outside of buffer " + std::to_string(i));
    if (i < 3 && completion.bits[i] == 1) {
      check(targets_[i].holds(*expected[i]), "wrong bytes in buffer " + std::to_string(i));
    }
  }
}

/// Another process looks at the key.
void Rounds::check_what_is_left(bool bit, bool touched) {
  const Sight sight = world_.look(key_, old_, is(Operation::put) ? new_ : Buffer());
  const std::string seen = std::string("bit ") + (bit ? "1" : "0") + ", found " + sight_name(sight);
  if (sight == Sight::failed) return expect(false, "the look failed");
  switch (scenario_.operation) {
    case Operation::put:
      if (bit) {
        check(sight == Sight::second, "stored: " + seen);
      } else {
        check(sight == Sight::miss || sight == Sight::second ||
                  (sight == Sight::first && (variant_.persistent || variant_.freezes)),
              "not stored: " + seen);
      }
      break;
    case Operation::remove:
      check(sight == Sight::miss || (sight == Sight::first && !bit), "removed: " + seen);
      if (must_succeed(touched)) check(sight == Sight::miss, "expected removal: " + seen);
      break;
    default:
      check(sight == Sight::first, "only read or touched: " + seen);
      break;
  }
}

void Rounds::check_neighbours_left() {
  const bool removed = is(Operation::remove);
  const Sight expected = removed ? Sight::miss : Sight::first;
  for (const auto& [key, content] : {std::pair(&left_key_, &left_), {&right_key_, &right_}}) {
    const Sight sight = world_.look(*key, *content, {});
    const bool failed = sight == Sight::failed || (sight == Sight::miss && !complaints_.empty());
    if (failed) expect(false, *key + ": the look failed");
    if (!failed) check(sight == expected, *key + ": found " + sight_name(sight));
  }
}

/// For each segment, which store it is of.
std::string Rounds::contents_of(Bytes loaded) const {
  const std::pair<const char*, const Buffer*> stores[] = {
      {" healed", &healed_}, {" new", &new_}, {" old", &old_}};
  std::string text;
  for (size_t from = 0; from < loaded.size(); from += kSegment) {
    const Bytes segment = loaded.subspan(from, std::min(kSegment, loaded.size() - from));
    const char* name = " nobody";
    for (const auto& [its_name, content] : stores) {
      if (content->size() < from + segment.size()) continue;
      const Bytes of_store = Bytes(*content).subspan(from, segment.size());
      if (std::equal(segment.begin(), segment.end(), of_store.begin())) name = its_name;
    }
    text += name;
  }
  return text;
}

/// A new store makes everything good again, for this process and for others.
void Rounds::heal() {
  Completion completion = complete(connector(), Operation::put, {put_item(key_, healed_)});
  // After code 8 stores are shed until one that is let through has told otherwise.
  const auto end = std::chrono::steady_clock::now() + kSlowness * std::chrono::seconds(1);
  while (!completion.ok && connector().store()->stats().stop_writes > 0 &&
         std::chrono::steady_clock::now() < end) {
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
    completion = complete(connector(), Operation::put, {put_item(key_, healed_)});
  }
  expect(completion.ok, "heal: " + completion.error);
  const bool healed = completion.ok;
  completion = complete(connector(), Operation::exists, {key_item(key_)});
  expect(completion.bits[0] == 1, "healed, but not found");
  Guarded buffer(healed_.size());
  completion = complete(connector(), Operation::get, {get_into(key_, buffer)});
  expect(completion.bits[0] == 1, "healed, but not loaded: " + completion.error);
  check(buffer.is_intact(), "written outside of the buffer");
  check(completion.bits[0] == 0 || buffer.holds(healed_),
        "healed, but WRONG BYTES: segments are of" + contents_of(buffer.target()));
  const Sight sight = world_.look(key_, healed_, {});
  expect(sight != Sight::failed, "healed, but the look failed");
  check(sight == Sight::first || sight == Sight::failed || !healed,
        std::string("healed, but others find ") + sight_name(sight));
}

/// True if the round has to be repeated because the machine was too busy to be judged by it.
bool Rounds::settle_complaints(std::chrono::steady_clock::time_point begin) {
  const std::vector<std::string> complaints = std::exchange(complaints_, {});
  if (complaints.empty()) return false;
  if (!LagMeter::instance().was_calm_since(begin)) return true;
  for (const std::string& complaint : complaints) {
    ++failures_;
    ADD_FAILURE() << complaint;
  }
  return false;
}

uint64_t Rounds::run_round() {
  constexpr int kTries = 5;
  uint64_t applied = 0;
  for (int i = 0; i < kTries; ++i) {
    const auto begin = std::chrono::steady_clock::now();
    applied = try_round();
    if (!settle_complaints(begin)) return applied;
  }
  ++too_busy;
  return applied;
}

uint64_t Rounds::try_round() {
  prepare();
  if (!complaints_.empty()) return 1;
  devserver::DevServer& server = world_.server();
  add_fault();
  const Completion completion = operate();
  const uint64_t applied = server.fault_counters()[0].applied;
  server.clear_faults();
  if (variant_.freezes) static_cast<void>(server.resume_node(0));
  if (variant_.executes_late && applied > 0) world_.await_quiet(variant_.freezes);
  const bool touched = applied > 0;
  check_bits(completion, touched);
  if (is(Operation::get)) check_loaded(completion);
  check(world_.writer_store().stats().bytes_in_flight == 0, "bytes stay in flight");
  check_what_is_left(completion.bits[1] == 1, touched);
  if (neighbours_must_succeed(touched)) check_neighbours_left();
  heal();
  return applied;
}

}  // namespace

uint64_t fail_every_request(const Scenario& scenario, Aim aim) {
  const std::vector<Variant> variants = variants_for(aim);
  LagMeter::instance();
  // The slow ones are at the end: taken first, they overlap with everything else.
  std::atomic<size_t> left{variants.size()};
  std::atomic<uint64_t> applied{0};
  const auto work = [&] {
    World world;
    while (true) {
      size_t i = left.load();
      while (i > 0 && !left.compare_exchange_weak(i, i - 1)) {
      }
      if (i == 0) return;
      Rounds rounds(world, scenario, aim, variants[i - 1]);
      applied.fetch_add(rounds.run_all());
    }
  };
  std::vector<std::thread> threads;
  for (size_t i = 0; i < kWorlds; ++i) threads.emplace_back(work);
  for (std::thread& thread : threads) thread.join();
  if (too_busy > 0) std::printf("%d rounds on a busy machine\n", static_cast<int>(too_busy));
  return applied.load();
}

}  // namespace aerokv::testing
