// SPDX-License-Identifier: Apache-2.0
// Bytes on their way to a client: small parts copied, payloads by reference to their buffer.
#pragma once

#include <sys/uio.h>

#include <cstdint>
#include <vector>

#include "devserver/buffer.h"
#include "wire/message.h"

namespace aerokv::devserver {

/// A run of frames under construction and then in transmission. Thread-compatible.
class Answer {
 public:
  /// Small parts are appended through this writer.
  [[nodiscard]] wire::UnitWriter writer() { return wire::UnitWriter(small_); }

  /// Appends `slice`: copied if small, else sent from where it lies.
  void append(const Slice& slice);

  /// A frame from begin_frame() to end_frame(); `append` in between is counted.
  [[nodiscard]] size_t begin_frame();
  void end_frame(size_t at, wire::MessageType type);
  /// Bytes added since begin_frame() returned `at`.
  [[nodiscard]] uint64_t frame_bytes(size_t at) const;
  /// A place to rewind() to.
  [[nodiscard]] size_t mark() const { return small_.size(); }
  /// Takes back everything from mark() or begin_frame() on.
  void rewind(size_t at);

  /// A unit whose header is known only after its ops: reserves the header, returns its place.
  [[nodiscard]] size_t begin_unit();
  void end_unit(size_t at, const wire::MessageHeader& header);
  /// Takes back the ops written since begin_unit().
  void drop_ops(size_t at) { rewind(at + wire::kMessageHeaderBytes); }

  /// Takes everything from place `at` on out of this answer.
  [[nodiscard]] Answer cut(size_t at);

  /// One frame with one unit: a header and no more.
  void header_only(uint8_t result_code, uint32_t generation = 0, uint32_t void_time = 0);

  /// Appends everything of `other`.
  void append(Answer&& other);
  /// Appends a copy of `bytes`.
  void append(Bytes bytes) { writer().bytes(bytes); }

  [[nodiscard]] uint64_t size() const { return small_.size() + large_bytes_; }
  [[nodiscard]] uint64_t unsent() const { return size() - sent_; }
  [[nodiscard]] bool empty() const { return unsent() == 0; }
  void clear();

  /// All bytes in one piece.
  [[nodiscard]] std::vector<std::byte> flat() const;

  /// Fills `parts` with what is to be sent next; returns how many were used.
  [[nodiscard]] size_t next_parts(iovec* parts, size_t count) const;
  /// Notes that `bytes` bytes of it were taken; drops what is not needed any more.
  void mark_sent(uint64_t bytes);
  /// Forgets what has been sent; places become invalid.
  void compact();

 private:
  struct Large {
    uint64_t at = 0;        // position in the whole run
    uint64_t small_at = 0;  // bytes of small_ in front of it
    Slice slice;
  };
  static constexpr uint32_t kCopyMax = 1024;

  std::vector<std::byte> small_;
  std::vector<Large> large_;
  uint64_t large_bytes_ = 0;
  uint64_t sent_ = 0;
  size_t large_sent_ = 0;  // complete entries of large_ behind us
};

}  // namespace aerokv::devserver
