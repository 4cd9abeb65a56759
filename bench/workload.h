// SPDX-License-Identifier: Apache-2.0
// Objects, buffers whose pages exist, and one batch at a time through a connector.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "aerokv/bytes.h"
#include "aerokv/connector.h"
#include "aerokv/status.h"
#include "aerokv/store.h"
#include "report.h"

namespace aerokv::bench {

/// Anonymous memory, every page touched.
class Memory {
 public:
  explicit Memory(size_t bytes, uint64_t seed = 0);
  ~Memory();
  Memory(const Memory&) = delete;
  Memory& operator=(const Memory&) = delete;

  [[nodiscard]] MutableBytes bytes() const { return bytes_; }
  /// `count` runs of `size` bytes, one behind the other, around the end if need be.
  [[nodiscard]] std::vector<MutableBytes> slices(size_t size, size_t count) const;

 private:
  MutableBytes bytes_;
};

/// Read-only views of `slices`.
std::vector<Bytes> as_sources(const std::vector<MutableBytes>& slices);

/// A connector with its store, driven as LMCache drives it: submit, poll the event fd, drain.
class Engine {
 public:
  static Result<std::unique_ptr<Engine>> open(const StoreOptions& options);

  /// Each runs one batch and fails unless every item was a hit.
  Status put(const std::string& prefix, const std::vector<Bytes>& payloads);
  Status get(const std::string& prefix, const std::vector<MutableBytes>& targets,
             size_t distinct_keys = 0);
  Status exists(const std::string& prefix, size_t count);
  Status remove(const std::string& prefix, size_t count);

  /// What happened between client and servers since the engine was opened.
  [[nodiscard]] Json client_counters() const;

  [[nodiscard]] Store& store() { return *connector_->store(); }

 private:
  Status run(Operation operation, std::vector<Item> items);

  std::unique_ptr<Connector> connector_;
};

/// A key of the length that LMCache's keys have.
std::string key_of(const std::string& prefix, size_t index);

double seconds_since(std::chrono::steady_clock::time_point start);

}  // namespace aerokv::bench
