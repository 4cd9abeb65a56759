// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <functional>
#include <memory>
#include <mutex>
#include <string_view>
#include <vector>

#include "client/client.h"
#include "wire/digest.h"
#include "wire/request.h"

namespace aerokv::store {

/// What happened to one row of a batch.
struct RowResult {
  Status status;     ///< ok if the server answered the row
  uint8_t code = 0;  ///< of the answer
  uint32_t generation = 0;
  uint32_t void_time = 0;          ///< seconds since 2010, 0 = never
  std::optional<int64_t> integer;  ///< the integer bin, if one was asked for
  client::NodePtr node;            ///< that answered, or else was asked last

  [[nodiscard]] bool is_found() const { return status.ok() && code == wire::result::kOk; }
  [[nodiscard]] bool is_missing() const { return status.ok() && code == wire::result::kNotFound; }
};

/// The same small operation on many records: header reads, one integer bin, deletes, touches.
/// Rows are grouped by node into batch messages of at most kBatchRowsMax. Rows that a node did not
/// answer, or answered with a code that another replica may cure, are asked again elsewhere; one
/// node's failure never touches the rows of others.
class RowBatch {
 public:
  struct Template {
    enum class Kind : uint8_t { exists, read_integer, remove, touch };
    Kind kind = Kind::exists;
    std::string_view ns;   ///< must outlive the batch
    std::string_view set;  ///< must outlive the batch
    std::string_view bin;  ///< read_integer: a literal
  };

  struct Row {
    wire::Digest digest{};
    uint32_t ttl = 0;  ///< touch
    /// remove: only a record of this generation, 0 = of any. Others are answered kGeneration.
    uint32_t generation = 0;
  };

  using Done = std::function<void(std::vector<RowResult>)>;

  /// Starts the batch. `done` is called exactly once with one result per row, in order, on an I/O
  /// thread (on this one if there are no rows, or no node is known). Nothing blocks.
  static void start(client::Client& client, const Template& form, std::vector<Row> rows,
                    TimePoint deadline, Done done);
};

}  // namespace aerokv::store
