// SPDX-License-Identifier: Apache-2.0
// The four payload requests of the store as commands of the client. Each belongs to an object's
// operation, tells it when it is done, and is owned by it.
#pragma once

#include <vector>

#include "client/command.h"
#include "store/context.h"
#include "store/meta_record.h"
#include "store/sums.h"

namespace aerokv::store {

/// Is told about the end of its commands, on I/O threads, possibly several at once.
class CommandOwner {
 public:
  virtual void command_done() = 0;

 protected:
  ~CommandOwner() = default;
};

/// The shared part: addressing, result, end.
class RecordCommand : public client::Command {
 public:
  RecordCommand(Context& context, CommandOwner& owner) : context_(context), owner_(owner) {}

  void prepare(const wire::Digest& digest, bool is_write, TimePoint deadline,
               uint64_t payload_bytes);

  [[nodiscard]] uint8_t result_code() const override { return header_.result_code; }
  Status unit(const wire::MessageHeader& header) override {
    header_ = header;
    return {};
  }
  void done(Status status) override {
    status_ = std::move(status);
    owner_.command_done();  // may end the life of *this
  }

  [[nodiscard]] const wire::Digest& digest() const { return digest_; }
  [[nodiscard]] const wire::MessageHeader& header() const { return header_; }
  /// False if no attempt came as far as a connection.
  [[nodiscard]] bool was_sent() const { return was_sent_; }
  [[nodiscard]] bool is_missing() const {
    return status_.ok() && header_.result_code == wire::result::kNotFound;
  }
  /// ok only if the server answered with code 0.
  [[nodiscard]] Status outcome(std::string_view what) const;

 protected:
  Context& context_;
  CommandOwner& owner_;
  wire::Digest digest_{};
  wire::MessageHeader header_;
  Status status_;
  bool was_sent_ = false;  // writes only
};

/// Reads a meta record, and an inline payload into its target.
class MetaGet final : public RecordCommand {
 public:
  using RecordCommand::RecordCommand;

  /// Where an inline payload may go; empty = it is skipped (the target is in use by segments).
  void set_target(MutableBytes target, bool accept_inline) {
    target_ = target;
    accept_inline_ = accept_inline;
  }

  Status encode(uint32_t timeout_ms, Encoded& request) override;
  Status unit(const wire::MessageHeader& header) override;
  wire::ValueTarget value_target(std::string_view bin, uint8_t particle, uint64_t bytes) override;
  Status value(std::string_view bin, uint8_t particle, Bytes value) override;

  /// The record, checked. Errors: as decode_meta_record().
  [[nodiscard]] Result<MetaRecord> decode() const;
  [[nodiscard]] bool payload_received() const { return payload_received_; }

 private:
  struct StoredBin {
    std::string name;
    uint8_t particle;
    std::vector<std::byte> value;
    uint64_t value_bytes;
  };
  void forget();

  MutableBytes target_;
  bool accept_inline_ = false;
  bool payload_received_ = false;
  bool payload_seen_ = false;
  bool repeats_a_bin_ = false;
  std::vector<StoredBin> bins_;
};

/// Reads one segment into its slice.
class SegmentGet final : public RecordCommand {
 public:
  using RecordCommand::RecordCommand;

  void set_slice(MutableBytes slice) { slice_ = slice; }

  Status encode(uint32_t timeout_ms, Encoded& request) override;
  Status unit(const wire::MessageHeader& header) override;
  wire::ValueTarget value_target(std::string_view bin, uint8_t particle, uint64_t bytes) override;
  Status value(std::string_view bin, uint8_t particle, Bytes value) override;

  [[nodiscard]] bool is_complete() const { return received_ && !contradicts_; }
  [[nodiscard]] std::optional<uint64_t> sum() const { return sum_; }
  [[nodiscard]] std::optional<uint32_t> crc32() const { return crc32_; }
  [[nodiscard]] Bytes slice() const { return slice_; }

 private:
  MutableBytes slice_;
  bool received_ = false;
  bool contradicts_ = false;  // another length, another type, or two payloads
  std::optional<uint64_t> sum_;
  std::optional<uint32_t> crc32_;
};

/// Writes one segment; its sum is computed just before it is sent.
class SegmentPut final : public RecordCommand {
 public:
  using RecordCommand::RecordCommand;

  void set_slice(Bytes slice, uint32_t wire_ttl) {
    slice_ = slice;
    wire_ttl_ = wire_ttl;
  }

  Status encode(uint32_t timeout_ms, Encoded& request) override;
  [[nodiscard]] uint64_t sum() const { return sum_; }

 private:
  Bytes slice_;
  uint32_t wire_ttl_ = 0;
  bool summed_ = false;
  uint64_t sum_ = 0;
};

/// Writes the meta record, with an inline payload behind it.
class MetaPut final : public RecordCommand {
 public:
  using RecordCommand::RecordCommand;

  MetaRecord record;  ///< sums of an inline payload are filled in by encode()
  Bytes payload;      ///< of an inline record
  uint32_t wire_ttl = 0;
  std::string user_key;  ///< sent only if the options say so

  Status encode(uint32_t timeout_ms, Encoded& request) override;
};

/// Removes one record.
class RecordRemove final : public RecordCommand {
 public:
  using RecordCommand::RecordCommand;
  Status encode(uint32_t timeout_ms, Encoded& request) override;
};

}  // namespace aerokv::store
