// SPDX-License-Identifier: Apache-2.0
// Writes single records with any bins: what other applications, older versions and broken writers
// leave in the set.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "client/client.h"
#include "tests/integration/cluster_fixture.h"
#include "wire/request.h"

namespace aerokv::testing {

class RawRecords {
 public:
  explicit RawRecords(const StoreOptions& options);

  /// Replaces the record with this user key.
  void put(const std::string& user_key, const std::vector<wire::BinOp>& ops);

  /// An object as a writer leaves it that knows no sums.
  void put_object_without_sums(const std::string& key, const Buffer& payload, size_t segment_bytes);

 private:
  const std::string ns_;
  const std::string set_;
  std::unique_ptr<client::Client> client_;
};

}  // namespace aerokv::testing
