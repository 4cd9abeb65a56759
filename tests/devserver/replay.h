// SPDX-License-Identifier: Apache-2.0
// Sends recorded requests to a server and compares its answers with the recorded ones, by the
// rules that came with the recordings.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "../golden/recordings.h"
#include "raw_client.h"

namespace aerokv::devserver_test {

class Replay {
 public:
  struct Verdict {
    bool compared = false;
    bool good = false;
    std::string detail;  ///< what differs
  };

  /// `place` tells where the connection of an exchange goes.
  explicit Replay(std::function<devserver::Endpoint(const golden::Json&)> place)
      : place_(std::move(place)) {}

  /// In every expected answer `recorded` is read as `actual`: addresses are configuration.
  void substitute(std::string recorded, std::string actual) {
    substitutions_.emplace_back(std::move(recorded), std::move(actual));
  }

  /// One line of the file.
  Verdict run(const golden::Json& exchange);

  /// The answer to an earlier exchange.
  [[nodiscard]] const ByteVector& answer(const std::string& name) { return answers_[name]; }

 private:
  std::optional<ByteVector> ask(const golden::Json& exchange, RawClient& client, Bytes request);
  std::string compare(const golden::Json& exchange, const ByteVector& actual, int64_t asked_at);

  std::function<devserver::Endpoint(const golden::Json&)> place_;
  std::vector<std::pair<std::string, std::string>> substitutions_;
  std::map<int64_t, RawClient> connections_;
  std::map<std::string, ByteVector> answers_;
};

/// All lines of a file under tests/golden.
std::vector<golden::Json> load_lines(const std::string& file);

}  // namespace aerokv::devserver_test
