// SPDX-License-Identifier: Apache-2.0
#include "serde/params.h"

namespace aerokv::serde {
namespace {

const char* kind_of(const SerdeValue& value) {
  static constexpr const char* kKinds[] = {"true or false", "a whole number", "a number", "text",
                                           "a list"};
  return kKinds[value.index()];
}

std::string range_text(const std::string& low, const std::string& high) {
  return low + " to " + high;
}

}  // namespace

const SerdeValue* ParamReader::find(const std::string& name) {
  asked_.insert(name);
  const auto found = params_.find(name);
  return found == params_.end() ? nullptr : &found->second;
}

std::string ParamReader::text(const std::string& name, std::string otherwise) {
  const SerdeValue* value = find(name);
  if (value == nullptr) return otherwise;
  if (const auto* text = std::get_if<std::string>(value)) return *text;
  fail(name, kind_of(*value), "text");
  return otherwise;
}

int64_t ParamReader::integer(const std::string& name, int64_t otherwise, int64_t low,
                             int64_t high) {
  const SerdeValue* value = find(name);
  if (value == nullptr) return otherwise;
  const std::string expected = range_text(std::to_string(low), std::to_string(high));
  const auto* number = std::get_if<int64_t>(value);
  if (number == nullptr) {
    fail(name, kind_of(*value), expected);
    return otherwise;
  }
  if (*number < low || *number > high) {
    fail(name, std::to_string(*number), expected);
    return otherwise;
  }
  return *number;
}

double ParamReader::number(const std::string& name, double otherwise, double low, double high) {
  const SerdeValue* value = find(name);
  if (value == nullptr) return otherwise;
  const std::string expected = range_text(std::to_string(low), std::to_string(high));
  double given = 0;
  if (const auto* real = std::get_if<double>(value)) {
    given = *real;
  } else if (const auto* whole = std::get_if<int64_t>(value)) {
    given = static_cast<double>(*whole);
  } else {
    fail(name, kind_of(*value), expected);
    return otherwise;
  }
  if (!(given >= low && given <= high)) {
    fail(name, std::to_string(given), expected);
    return otherwise;
  }
  return given;
}

size_t ParamReader::choice(const std::string& name, const std::vector<std::string_view>& choices,
                           size_t otherwise) {
  const SerdeValue* value = find(name);
  if (value == nullptr) return otherwise;
  std::string expected = "one of";
  for (const std::string_view word : choices) expected += " " + std::string(word);
  const auto* word = std::get_if<std::string>(value);
  if (word == nullptr) {
    fail(name, kind_of(*value), expected);
    return otherwise;
  }
  for (size_t i = 0; i < choices.size(); ++i) {
    if (choices[i] == *word) return i;
  }
  fail(name, "another text", expected);
  return otherwise;
}

std::vector<SerdeConfig> ParamReader::stages(const std::string& name) {
  const SerdeValue* value = find(name);
  if (value == nullptr) return {};
  if (const auto* list = std::get_if<std::vector<SerdeConfig>>(value)) return *list;
  fail(name, kind_of(*value), "a list of serdes");
  return {};
}

void ParamReader::fail(const std::string& name, const std::string& seen,
                       const std::string& expected) {
  if (!status_) return;
  status_ = {Code::invalid,
             "serde " + std::string(type_) + ": " + name + ": " + seen + ", expected " + expected};
}

Status ParamReader::finish() {
  if (!status_) return status_;
  for (const auto& [name, value] : params_) {
    if (asked_.contains(name)) continue;
    std::string known;
    for (const std::string& other : asked_) known += (known.empty() ? "" : ", ") + other;
    return {Code::invalid, "serde " + std::string(type_) + ": unknown parameter " + name +
                               ", known are " + (known.empty() ? "none" : known)};
  }
  return {};
}

}  // namespace aerokv::serde
