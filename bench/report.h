// SPDX-License-Identifier: Apache-2.0
// Numbers of a run: summaries of samples, and JSON that is written once.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace aerokv::bench {

/// Samples of one quantity, taken in rounds. Nearest-rank percentiles; 0 without samples.
class Samples {
 public:
  void add(double value) { values_.push_back(value); }
  void add(const Samples& other) {
    values_.insert(values_.end(), other.values_.begin(), other.values_.end());
  }
  [[nodiscard]] size_t count() const { return values_.size(); }
  [[nodiscard]] double percentile(double percent) const;
  [[nodiscard]] double median() const;
  [[nodiscard]] double min() const { return percentile(0); }
  [[nodiscard]] double max() const { return percentile(100); }

 private:
  std::vector<double> values_;
};

/// One JSON object, members in order of addition.
class Json {
 public:
  Json& add(std::string_view name, double value);
  Json& add(std::string_view name, uint64_t value);
  Json& add(std::string_view name, bool value);
  Json& add(std::string_view name, std::string_view value);
  Json& add(std::string_view name, const char* value) { return add(name, std::string_view(value)); }
  Json& add(std::string_view name, const Json& value);
  Json& add(std::string_view name, const std::vector<Json>& values);
  /// The median, the smallest and the largest sample.
  Json& add(std::string_view name, const Samples& samples);

  [[nodiscard]] std::string text() const { return "{" + members_ + "}"; }

 private:
  void raw(std::string_view name, std::string_view text);

  std::string members_;
};

}  // namespace aerokv::bench
