// SPDX-License-Identifier: Apache-2.0
// What one request does to one record of one node, and the answer that it gives.
#pragma once

#include <cstdint>

#include "devserver/answer.h"
#include "devserver/request.h"
#include "devserver/storage.h"

namespace aerokv::devserver {

/// The outcome for the answer's header.
struct Outcome {
  uint8_t code = 0;
  uint32_t generation = 0;
  uint32_t void_time = 0;
};

/// Where a request is executed.
struct Place {
  Namespace* ns = nullptr;
  int node = 0;
  uint32_t partition = 0;
  wire::Digest digest{};
};

/// Ops of an answer, in front of which the header must be written once their number is known.
class OpSink {
 public:
  explicit OpSink(Answer& answer) : answer_(answer) {}
  void value(uint8_t op, const Bin& bin);
  void nothing(uint8_t op, std::string_view name);
  [[nodiscard]] uint16_t count() const { return count_; }

 private:
  Answer& answer_;
  uint16_t count_ = 0;
};

/// Executes a read. Requires the partition's lock.
Outcome execute_read(const Place& place, const RecordRequest& request, uint64_t now_ns,
                     OpSink& out);

/// Executes a write, touch or operate. Requires the partition's lock.
Outcome execute_write(const Place& place, const RecordRequest& request, uint64_t now_ns,
                      OpSink& out);

/// Executes a delete. Requires the partition's lock.
Outcome execute_delete(const Place& place, const RecordRequest& request);

}  // namespace aerokv::devserver
