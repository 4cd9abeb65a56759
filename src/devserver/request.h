// SPDX-License-Identifier: Apache-2.0
// A record message of a client, taken apart. Everything points into the message.
#pragma once

#include <optional>
#include <vector>

#include "devserver/buffer.h"
#include "devserver/faults.h"
#include "wire/message.h"

namespace aerokv::devserver {

/// The part that single requests and batch rows have in common.
struct RecordRequest {
  wire::MessageHeader header;  ///< batch rows: put together from the row
  std::optional<std::string_view> ns;
  std::optional<std::string_view> set;
  std::optional<Bytes> digest;
  Bytes key;  ///< particle type byte and key; empty = not sent
  bool has_filter = false;
  std::vector<wire::Op> ops;
  /// Holds the memory that op values point into, if it may be kept; else values are copied.
  BufferRef buffer;

  [[nodiscard]] bool is_read() const { return (header.info1 & wire::info1::kRead) != 0; }
  [[nodiscard]] bool is_write() const { return (header.info2 & wire::info2::kWrite) != 0; }
  [[nodiscard]] bool is_delete() const {
    return is_write() && (header.info2 & wire::info2::kDelete) != 0;
  }
  [[nodiscard]] std::string_view set_name() const { return set.value_or(std::string_view{}); }
  void clear_record();
};

struct Request : RecordRequest {
  std::optional<Bytes> batch;
  std::optional<uint64_t> task_id;
  std::optional<uint64_t> max_records;
  std::optional<Bytes> partition_ids;
  std::optional<Bytes> resume_digests;
  bool has_index_range = false;  ///< asks for a secondary index
  bool has_udf = false;

  // NOLINTNEXTLINE(bugprone-derived-method-shadowing-base-method): forgets the base's parts too
  void clear();
};

/// Takes the body of a record message apart. False if its lengths contradict each other (code 4);
/// `request` then holds what was read.
bool parse_request(Bytes body, Request& request);

/// What the request asks for; for well-formed requests with a digest, and batch rows.
RequestKind kind_of(const RecordRequest& request);

}  // namespace aerokv::devserver
