// SPDX-License-Identifier: Apache-2.0
#include "replay.h"

#include <algorithm>
#include <sstream>
#include <thread>

#include "base/clock.h"

namespace aerokv::devserver_test {
namespace {

using golden::Json;

constexpr int64_t kVoidTimeSlack = 2;  // seconds

/// A range of the recorded answer that differs from run to run.
struct Volatile {
  size_t begin = 0;
  size_t end = 0;
  std::string what;
};

std::vector<Volatile> volatile_ranges(const Json& exchange) {
  std::vector<Volatile> ranges;
  for (const Json& item : exchange["volatile"].list) {
    const auto begin = static_cast<size_t>(item.list[0].number);
    ranges.push_back({begin, begin + static_cast<size_t>(item.list[1].number), item.list[2].text});
  }
  return ranges;
}

/// The bytes of `key`, or of its rule: a prefix, a counting fill, a suffix.
ByteVector recorded_bytes(const Json& exchange, const std::string& key) {
  const Json& rule = exchange[key + "_rule"];
  if (rule.is_null()) return golden::from_hex(exchange[key].text);
  ByteVector bytes = golden::from_hex(rule["prefix"].text);
  for (int64_t i = 0; i < rule["fill"]["count"].number; ++i) {
    bytes.push_back(static_cast<std::byte>(i % 251));
  }
  const ByteVector suffix = golden::from_hex(rule["suffix"].text);
  bytes.insert(bytes.end(), suffix.begin(), suffix.end());
  return bytes;
}

std::string difference(const std::string& what, const ByteVector& actual,
                       const ByteVector& expected) {
  constexpr size_t kShown = 200;
  return what + ": got " + golden::to_hex(actual).substr(0, kShown) + ", recorded " +
         golden::to_hex(expected).substr(0, kShown);
}

std::vector<std::string> lines_of(const ByteVector& frame) {
  std::vector<std::string> lines;
  std::istringstream text(std::string(as_text(Bytes(frame).subspan(wire::kFrameHeaderBytes))));
  for (std::string line; std::getline(text, line);) lines.push_back(line);
  return lines;
}

std::string compare_lines(const ByteVector& actual, const ByteVector& expected,
                          const std::vector<Volatile>& ranges) {
  const auto got = lines_of(actual);
  const auto recorded = lines_of(expected);
  if (got.size() != recorded.size()) return difference("number of lines", actual, expected);
  size_t at = wire::kFrameHeaderBytes;
  for (size_t i = 0; i < got.size(); ++i) {
    const size_t end = at + recorded[i].size();
    const bool may_differ = std::any_of(ranges.begin(), ranges.end(), [&](const Volatile& v) {
      return v.begin < end && v.end > at;
    });
    at = end + 1;
    const std::string name = recorded[i].substr(0, recorded[i].find('\t') + 1);
    if (may_differ ? !got[i].starts_with(name) : got[i] != recorded[i]) {
      return "line " + std::to_string(i) + ": got " + got[i] + ", recorded " + recorded[i];
    }
  }
  return {};
}

/// Checks void-times: they are relative to now, or equal to an earlier one.
class VoidTimes {
 public:
  VoidTimes(std::map<std::string, ByteVector>& answers, int64_t asked_at)
      : answers_(answers), asked_at_(asked_at) {}

  std::string check(const Volatile& range, const std::byte* at) {
    constexpr std::string_view kNow = "void-time = now + ";
    constexpr std::string_view kSame = "void-time = ";
    if (!range.what.starts_with(kSame)) return {};
    const auto void_time = int64_t{load_be<uint32_t>(at)};
    if (range.what.starts_with(kNow)) {
      const int64_t ttl = std::stoll(range.what.substr(kNow.size()));
      const int64_t late = void_time - (asked_at_ - kServerEpochSeconds) - ttl;
      if (late >= 0 && late <= kVoidTimeSlack) return {};
      return range.what + ": off by " + std::to_string(late) + " s";
    }
    for (const Unit& unit : units_of(answers_[range.what.substr(kSame.size())])) {
      if (unit.header.record_ttl == void_time) return {};
    }
    return range.what + ": differs";
  }

 private:
  std::map<std::string, ByteVector>& answers_;
  const int64_t asked_at_;
};

/// Compares runs of equal meaning that begin at `a` and `b` and reach to `a_end`, `b_end`.
std::string compare_bytes(const ByteVector& actual, size_t a, size_t a_end,
                          const ByteVector& expected, size_t b, size_t b_end,
                          const std::vector<Volatile>& ranges, VoidTimes& void_times) {
  const ByteVector got(actual.begin() + static_cast<std::ptrdiff_t>(a),
                       actual.begin() + static_cast<std::ptrdiff_t>(a_end));
  ByteVector wanted(expected.begin() + static_cast<std::ptrdiff_t>(b),
                    expected.begin() + static_cast<std::ptrdiff_t>(b_end));
  if (got.size() != wanted.size()) return difference("size", got, wanted);
  for (const Volatile& range : ranges) {
    if (range.begin < b || range.end > b_end) continue;
    std::string wrong = void_times.check(range, got.data() + (range.begin - b));
    if (!wrong.empty()) return wrong;
    std::copy(got.begin() + static_cast<std::ptrdiff_t>(range.begin - b),
              got.begin() + static_cast<std::ptrdiff_t>(range.end - b),
              wanted.begin() + static_cast<std::ptrdiff_t>(range.begin - b));
  }
  return got == wanted ? std::string() : difference("bytes", got, wanted);
}

std::string unit_key(const Unit& unit, bool by_index) {
  if (unit.is_last()) return "last";
  if (by_index) return std::to_string(unit.header.transaction_ttl);
  const ByteVector* digest = unit.field(wire::FieldType::digest);
  if (digest != nullptr) return golden::to_hex(*digest);
  return "partition " + std::to_string(unit.header.generation);
}

std::string compare_units(const ByteVector& actual, const ByteVector& expected, bool by_index,
                          const std::vector<Volatile>& ranges, VoidTimes& void_times) {
  const auto got = units_of(actual);
  const auto recorded = units_of(expected);
  if (got.size() != recorded.size()) return difference("number of units", actual, expected);
  if (!recorded.empty() && recorded.back().is_last() && !got.back().is_last()) {
    return "the final unit is not the last";
  }
  std::map<std::string, const Unit*> by_key;
  for (const Unit& unit : got) by_key[unit_key(unit, by_index)] = &unit;
  if (by_key.size() != got.size()) return "two units of one row";
  for (const Unit& unit : recorded) {
    const auto it = by_key.find(unit_key(unit, by_index));
    if (it == by_key.end()) return "unit " + unit_key(unit, by_index) + " is missing";
    std::string wrong = compare_bytes(actual, it->second->begin, it->second->end, expected,
                                      unit.begin, unit.end, ranges, void_times);
    if (!wrong.empty()) return "unit " + unit_key(unit, by_index) + ": " + wrong;
  }
  return {};
}

}  // namespace

std::vector<Json> load_lines(const std::string& file) {
  std::vector<Json> lines;
  std::istringstream text(golden::read_golden(file));
  for (std::string line; std::getline(text, line);) lines.push_back(golden::parse_json(line));
  return lines;
}

std::optional<ByteVector> Replay::ask(const Json& exchange, RawClient& client, Bytes request) {
  const std::string& kind = exchange["kind"].text;
  client.send(request);
  size_t frames = 1;
  if (kind == "pipeline") frames = static_cast<size_t>(exchange["answers"].number);
  const bool is_stream = kind == "stream" || kind == "query";
  ByteVector answer;
  for (size_t i = 0; is_stream || i < frames; ++i) {
    const auto frame = client.receive_frame();
    if (!frame) return std::nullopt;
    answer.insert(answer.end(), frame->begin(), frame->end());
    if (!is_stream) continue;
    const auto units = units_of(*frame);
    if (units.empty()) return answer;
    const wire::MessageHeader& last = units.back().header;
    if (units.back().is_last()) break;
    if (kind == "query" && last.result_code != 0 && last.info3 == 0) break;
  }
  return answer;
}

std::string Replay::compare(const Json& exchange, const ByteVector& actual, int64_t asked_at) {
  ByteVector expected = recorded_bytes(exchange, "response");
  const std::vector<Volatile> ranges = volatile_ranges(exchange);
  const std::string& rule = exchange["compare"].text;
  const bool is_info = exchange["kind"].text == "info";
  if (is_info && !substitutions_.empty() && ranges.empty()) {
    std::string text(as_text(Bytes(expected).subspan(wire::kFrameHeaderBytes)));
    for (const auto& [recorded, now] : substitutions_) {
      for (size_t at = text.find(recorded); at != std::string::npos;
           at = text.find(recorded, at + now.size())) {
        text.replace(at, recorded.size(), now);
      }
    }
    expected = info_request(text);
  }
  if (rule == "info_lines") return compare_lines(actual, expected, ranges);
  VoidTimes void_times(answers_, asked_at);
  if (rule == "units_by_index" || rule == "units_by_digest") {
    return compare_units(actual, expected, rule == "units_by_index", ranges, void_times);
  }
  return compare_bytes(actual, 0, actual.size(), expected, 0, expected.size(), ranges, void_times);
}

Replay::Verdict Replay::run(const Json& exchange) {
  if (!exchange["delay_before_ms"].is_null()) {
    // The recording needs real time to pass: a record has to expire.
    std::this_thread::sleep_for(milliseconds(exchange["delay_before_ms"].number));
  }
  const int64_t number = exchange["connection"].number;
  auto it = connections_.find(number);
  if (it == connections_.end()) {
    it = connections_.emplace(number, RawClient(place_(exchange))).first;
  }
  const ByteVector request = recorded_bytes(exchange, "request");
  const int64_t asked_at = unix_seconds();
  if (exchange["kind"].text == "closed") {
    it->second.send(request);
    const bool closed = it->second.is_closed_by_server();
    connections_.erase(it);
    return {true, closed, closed ? "" : "the connection stayed open"};
  }
  auto answer = ask(exchange, it->second, request);
  if (!answer) {
    connections_.erase(it);
    return {true, false, "no answer"};
  }
  Verdict verdict;
  verdict.compared = exchange["compare"].text != "ignore";
  if (verdict.compared) verdict.detail = compare(exchange, *answer, asked_at);
  verdict.good = verdict.detail.empty();
  answers_[exchange["name"].text] = std::move(*answer);
  return verdict;
}

}  // namespace aerokv::devserver_test
