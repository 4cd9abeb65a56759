// SPDX-License-Identifier: Apache-2.0
#include "report.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdio>

namespace aerokv::bench {
namespace {

std::string quoted(std::string_view text) {
  std::string out = "\"";
  for (const char c : text) {
    if (c == '"' || c == '\\') {
      out += '\\';
      out += c;
    } else if (static_cast<unsigned char>(c) < 0x20) {
      std::array<char, 8> escape{};
      std::snprintf(escape.data(), escape.size(), "\\u%04x", static_cast<unsigned>(c));
      out += escape.data();
    } else {
      out += c;
    }
  }
  return out + "\"";
}

}  // namespace

double Samples::percentile(double percent) const {
  if (values_.empty()) return 0;
  std::vector<double> sorted = values_;
  std::sort(sorted.begin(), sorted.end());
  const double rank = std::ceil(percent / 100 * static_cast<double>(sorted.size()));
  return sorted[std::min(sorted.size() - 1, static_cast<size_t>(std::max(rank, 1.0)) - 1)];
}

double Samples::median() const {
  if (values_.empty()) return 0;
  std::vector<double> sorted = values_;
  std::sort(sorted.begin(), sorted.end());
  const size_t middle = sorted.size() / 2;
  return sorted.size() % 2 == 1 ? sorted[middle] : (sorted[middle - 1] + sorted[middle]) / 2;
}

void Json::raw(std::string_view name, std::string_view text) {
  if (!members_.empty()) members_ += ",";
  members_ += quoted(name) + ":";
  members_ += text;
}

Json& Json::add(std::string_view name, double value) {
  std::array<char, 32> text{};
  std::snprintf(text.data(), text.size(), "%.6g", std::isfinite(value) ? value : 0.0);
  raw(name, text.data());
  return *this;
}

Json& Json::add(std::string_view name, uint64_t value) {
  raw(name, std::to_string(value));
  return *this;
}

Json& Json::add(std::string_view name, bool value) {
  raw(name, value ? "true" : "false");
  return *this;
}

Json& Json::add(std::string_view name, std::string_view value) {
  raw(name, quoted(value));
  return *this;
}

Json& Json::add(std::string_view name, const Json& value) {
  raw(name, value.text());
  return *this;
}

Json& Json::add(std::string_view name, const std::vector<Json>& values) {
  std::string text = "[";
  for (const Json& value : values) {
    if (text.size() > 1) text += ",";
    text += value.text();
  }
  raw(name, text + "]");
  return *this;
}

Json& Json::add(std::string_view name, const Samples& samples) {
  Json summary;
  summary.add("median", samples.median()).add("min", samples.min()).add("max", samples.max());
  return add(name, summary);
}

}  // namespace aerokv::bench
