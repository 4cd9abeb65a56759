// SPDX-License-Identifier: Apache-2.0
// Reads the parameters of a serde, and refuses those that nobody asked for.
#pragma once

#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "aerokv/serde.h"

namespace aerokv::serde {

/// Takes parameters one after the other. The first fault stays; finish() tells it. Errors name the
/// serde, the parameter, what was seen and what is expected; values are shown for numbers only,
/// since a text may be a secret.
class ParamReader {
 public:
  /// `type` is used in messages. Both must outlive the reader.
  ParamReader(std::string_view type, const SerdeParams& params) : type_(type), params_(params) {}

  /// `otherwise` if it is not given.
  std::string text(const std::string& name, std::string otherwise);
  int64_t integer(const std::string& name, int64_t otherwise, int64_t low, int64_t high);
  double number(const std::string& name, double otherwise, double low, double high);
  /// The index of the word in `choices`.
  size_t choice(const std::string& name, const std::vector<std::string_view>& choices,
                size_t otherwise);
  std::vector<SerdeConfig> stages(const std::string& name);

  /// A fault of the caller's own checks.
  void fail(const std::string& name, const std::string& seen, const std::string& expected);

  /// The first fault, or an error for a parameter that was never asked for.
  Status finish();

 private:
  const SerdeValue* find(const std::string& name);

  std::string_view type_;
  const SerdeParams& params_;
  std::set<std::string> asked_;
  Status status_;
};

}  // namespace aerokv::serde
