// SPDX-License-Identifier: Apache-2.0
#include "recordings.h"

#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <sstream>

namespace aerokv::golden {
namespace {

void append_utf8(uint32_t code, std::string& out) {
  const auto put = [&](uint32_t byte) { out += static_cast<char>(byte); };
  if (code < 0x80) {
    put(code);
  } else if (code < 0x800) {
    put(0xC0 | code >> 6);
    put(0x80 | (code & 0x3F));
  } else {
    put(0xE0 | code >> 12);
    put(0x80 | (code >> 6 & 0x3F));
    put(0x80 | (code & 0x3F));
  }
}

class Parser {
 public:
  explicit Parser(std::string_view text) : rest_(text) {}

  Json parse() {
    Json value = parse_value();
    skip_space();
    if (!rest_.empty()) fail();
    return failed_ ? Json() : value;
  }

 private:
  void fail() {
    if (!failed_) ADD_FAILURE() << "JSON: unexpected text: " << rest_.substr(0, 40);
    failed_ = true;
    rest_ = {};
  }

  void skip_space() {
    rest_.remove_prefix(std::min(rest_.find_first_not_of(" \t\r\n"), rest_.size()));
  }

  bool take(std::string_view token) {
    skip_space();
    if (!rest_.starts_with(token)) return false;
    rest_.remove_prefix(token.size());
    return true;
  }

  Json parse_value() {
    Json value;
    if (take("{")) {
      value.type = Json::Type::object;
      while (!failed_ && !take("}")) {
        if (!value.list.empty() && !take(",")) fail();
        value.keys.push_back(parse_text());
        if (!take(":")) fail();
        value.list.push_back(parse_value());
      }
    } else if (take("[")) {
      value.type = Json::Type::list;
      while (!failed_ && !take("]")) {
        if (!value.list.empty() && !take(",")) fail();
        value.list.push_back(parse_value());
      }
    } else if (take("true") || take("false")) {
      value.type = Json::Type::boolean;
      value.boolean = *(rest_.data() - 2) == 'u';  // tr-u-e, fal-s-e
    } else if (take("null")) {
      value.type = Json::Type::null;
    } else if (rest_.starts_with('"')) {
      value.type = Json::Type::text;
      value.text = parse_text();
    } else {
      value.type = Json::Type::number;
      parse_number(value.number);
    }
    return value;
  }

  void parse_number(int64_t& number) {
    const size_t end = std::min(rest_.find_first_not_of("-+.eE0123456789"), rest_.size());
    if (end == 0) return fail();
    number = static_cast<int64_t>(std::stod(std::string(rest_.substr(0, end))));
    rest_.remove_prefix(end);
  }

  std::string parse_text() {
    std::string out;
    if (!take("\"")) fail();
    while (!failed_ && !rest_.starts_with('"')) {
      const char c = next();
      if (c != '\\') {
        out += c;
        continue;
      }
      const char escape = next();
      constexpr std::string_view kShort = "bfnrt", kMeaning = "\b\f\n\r\t";
      if (escape == 'u') {
        append_utf8(static_cast<uint32_t>(std::stoul(std::string(rest_.substr(0, 4)), nullptr, 16)),
                    out);
        rest_.remove_prefix(4);
      } else if (const size_t at = kShort.find(escape); at != std::string_view::npos) {
        out += kMeaning[at];
      } else {
        out += escape;
      }
    }
    if (!failed_) next();
    return out;
  }

  char next() {
    if (rest_.empty()) {
      fail();
      return '"';
    }
    const char c = rest_.front();
    rest_.remove_prefix(1);
    return c;
  }

  std::string_view rest_;
  bool failed_ = false;
};

// Long texts are stored as a rule: prefix, then byte i = i mod 251, then suffix.
std::vector<std::byte> bytes_of(const Json& hex, const Json& rule) {
  if (rule.is_null()) return from_hex(hex.text);
  std::vector<std::byte> bytes = from_hex(rule["prefix"].text);
  for (int64_t i = 0; i < rule["fill"]["count"].number; ++i) {
    bytes.push_back(static_cast<std::byte>(i % 251));
  }
  const std::vector<std::byte> suffix = from_hex(rule["suffix"].text);
  bytes.insert(bytes.end(), suffix.begin(), suffix.end());
  return bytes;
}

std::vector<Exchange> load(const std::string& file, bool is_official) {
  std::vector<Exchange> exchanges;
  std::istringstream lines(read_golden(file));
  for (std::string line; std::getline(lines, line);) {
    const Json json = parse_json(line);
    if (json["request"].is_null()) continue;
    Exchange& exchange = exchanges.emplace_back();
    exchange.name = json["name"].text;
    exchange.group = json["group"].text;
    exchange.kind = json["kind"].text;
    exchange.is_official = is_official || json["official_client"].boolean;
    exchange.is_closed = json["response"].text == "closed";
    if (!json["answers"].is_null()) {
      exchange.answer_count = static_cast<size_t>(json["answers"].number);
    }
    exchange.request = bytes_of(json["request"], json["request_rule"]);
    if (!exchange.is_closed) {
      exchange.response = bytes_of(json["response"], json["response_rule"]);
    }
    for (const Json& code : json["result_codes"].list) {
      exchange.result_codes.push_back(static_cast<uint8_t>(code.number));
    }
  }
  return exchanges;
}

}  // namespace

const Json& Json::operator[](std::string_view key) const {
  static const Json kNull;
  for (size_t i = 0; i < keys.size(); ++i) {
    if (keys[i] == key) return list[i];
  }
  return kNull;
}

Json parse_json(std::string_view text) {
  return Parser(text).parse();
}

std::string read_golden(const std::string& name) {
  std::ifstream in(AEROKV_SOURCE_DIR "/tests/golden/" + name, std::ios::binary);
  if (!in) ADD_FAILURE() << "cannot open tests/golden/" << name;
  return {std::istreambuf_iterator<char>(in), {}};
}

std::vector<std::byte> from_hex(std::string_view text) {
  const auto digit = [](char c) {
    return static_cast<unsigned>(c <= '9' ? c - '0' : c - 'a' + 10);
  };
  std::vector<std::byte> bytes;
  bytes.reserve(text.size() / 2);
  for (size_t i = 0; i + 1 < text.size(); i += 2) {
    bytes.push_back(static_cast<std::byte>(digit(text[i]) << 4 | digit(text[i + 1])));
  }
  return bytes;
}

std::string to_hex(const std::vector<std::byte>& bytes) {
  constexpr std::string_view kDigits = "0123456789abcdef";
  std::string text;
  text.reserve(2 * bytes.size());
  for (const std::byte byte : bytes) {
    text += kDigits[std::to_integer<size_t>(byte) >> 4];
    text += kDigits[std::to_integer<size_t>(byte) & 15];
  }
  return text;
}

std::vector<Exchange> load_exchanges() {
  return load("aerospike/exchanges.jsonl", false);
}
std::vector<Exchange> load_connect_sequence() {
  return load("aerospike/connect_sequence.jsonl", true);
}

}  // namespace aerokv::golden
