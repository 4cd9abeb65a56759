// SPDX-License-Identifier: Apache-2.0
#include "store/record_commands.h"

#include <algorithm>
#include <array>
#include <utility>

#include "wire/request.h"

namespace aerokv::store {
namespace {

constexpr uint8_t kBlob = static_cast<uint8_t>(wire::Particle::blob);
constexpr uint8_t kInteger = static_cast<uint8_t>(wire::Particle::integer);

// Bins of a meta record besides the payload; everything else in it belongs to somebody else.
bool is_meta_bin(std::string_view name) {
  for (const std::string_view known :
       {bin::kVersion, bin::kState, bin::kSegmentCount, bin::kSegmentBytes, bin::kTotalBytes,
        bin::kCreatedAt, bin::kPin, bin::kMetadata, bin::kCrc32, bin::kSums, bin::kSerde,
        bin::kRawBytes}) {
    if (name == known) return true;
  }
  return false;
}

void set_write_flags(const StoreOptions& options, wire::RecordRequest& request) {
  if (options.commit_master_only) request.info3 |= wire::info3::kCommitMaster;
}

}  // namespace

void RecordCommand::prepare(const wire::Digest& digest, bool is_write, TimePoint deadline,
                            uint64_t payload_bytes) {
  digest_ = digest;
  plan.partition = wire::partition_of(digest);
  plan.is_write = is_write;
  plan.deadline = deadline;
  plan.payload_bytes = payload_bytes;
}

Status RecordCommand::outcome(std::string_view what) const {
  if (!status_.ok()) return status_.with_context(what);
  return wire::status_from_result(header_.result_code, what);
}

// ------------------------------------------------------------------------------------------ reads

void MetaGet::forget() {
  bins_.clear();
  payload_received_ = payload_seen_ = repeats_a_bin_ = false;
}

Status MetaGet::encode(uint32_t timeout_ms, Encoded& request) {
  forget();
  return wire::encode_record_request(
      wire::RecordRequest::get(context_.record(digest_), {}, timeout_ms), wire::Payload::inside,
      request.head);
}

Status MetaGet::unit(const wire::MessageHeader& header) {
  forget();
  return RecordCommand::unit(header);
}

wire::ValueTarget MetaGet::value_target(std::string_view bin, uint8_t particle, uint64_t bytes) {
  if (bin == bin::kPayload) {
    const bool again = payload_received_;
    const bool repeated = std::exchange(payload_seen_, true);
    if (!repeated || !repeats_a_bin_) bins_.push_back({std::string(bin), particle, {}, bytes});
    repeats_a_bin_ |= repeated;
    if (!accept_inline_ || again || particle != kBlob || bytes > target_.size()) {
      return wire::ValueTarget::skip();
    }
    payload_received_ = true;
    return wire::ValueTarget::receive_into(target_.first(static_cast<size_t>(bytes)));
  }
  if (!is_meta_bin(bin) || bytes > wire::kCopiedValueBytesMax) return wire::ValueTarget::skip();
  const bool again = std::any_of(bins_.begin(), bins_.end(),
                                 [bin](const StoredBin& stored) { return stored.name == bin; });
  if (!again) return wire::ValueTarget::copy();
  // A record with a bin twice is damaged, however often it comes; its values are not collected.
  if (!repeats_a_bin_) bins_.push_back({std::string(bin), particle, {}, bytes});
  repeats_a_bin_ = true;
  return wire::ValueTarget::skip();
}

Status MetaGet::value(std::string_view bin, uint8_t particle, Bytes value) {
  bins_.push_back({std::string(bin), particle, {value.begin(), value.end()}, value.size()});
  return {};
}

Result<MetaRecord> MetaGet::decode() const {
  std::vector<BinView> views;
  views.reserve(bins_.size());
  for (const StoredBin& bin : bins_) {
    views.push_back({bin.name, bin.particle, bin.value, bin.value_bytes});
  }
  return decode_meta_record(views, PayloadBin::requested);
}

Status SegmentGet::encode(uint32_t timeout_ms, Encoded& request) {
  received_ = contradicts_ = false;
  sum_.reset();
  crc32_.reset();
  // The sums first: they arrive with the header, before the payload.
  static constexpr size_t kBins = 3;
  const std::array<wire::BinOp, kBins> bins = {wire::BinOp::read(bin::kSum),
                                               wire::BinOp::read(bin::kCrc32),
                                               wire::BinOp::read(bin::kPayload)};
  return wire::encode_record_request(
      wire::RecordRequest::get(context_.record(digest_), bins, timeout_ms), wire::Payload::inside,
      request.head);
}

Status SegmentGet::unit(const wire::MessageHeader& header) {
  received_ = contradicts_ = false;
  sum_.reset();
  crc32_.reset();
  return RecordCommand::unit(header);
}

wire::ValueTarget SegmentGet::value_target(std::string_view bin, uint8_t particle, uint64_t bytes) {
  if (bin == bin::kPayload) {
    if (received_ || particle != kBlob || bytes != slice_.size()) {
      contradicts_ = true;
      return wire::ValueTarget::skip();
    }
    received_ = true;
    return wire::ValueTarget::receive_into(slice_);
  }
  const bool is_sum = (bin == bin::kSum || bin == bin::kCrc32) && particle == kInteger;
  return is_sum && bytes == 8 ? wire::ValueTarget::copy() : wire::ValueTarget::skip();
}

Status SegmentGet::value(std::string_view bin, uint8_t, Bytes value) {
  const auto number = load_be<uint64_t>(value.data());
  if (bin == bin::kSum) {
    sum_ = number;
  } else {
    crc32_ = static_cast<uint32_t>(number);
  }
  return {};
}

// ----------------------------------------------------------------------------------------- writes

Status SegmentPut::encode(uint32_t timeout_ms, Encoded& request) {
  was_sent_ = true;
  if (!summed_) {
    sum_ = segment_sum(slice_);
    summed_ = true;
  }
  std::vector<wire::BinOp> ops;
  ops.push_back(wire::BinOp::write_integer(bin::kSum, sum_to_bin(sum_)));
  if (context_.options.enable_crc32) {
    ops.push_back(wire::BinOp::write_integer(bin::kCrc32, store::crc32(slice_)));
  }
  ops.push_back(wire::BinOp::write_blob(bin::kPayload, slice_));
  wire::RecordRequest put = wire::RecordRequest::put(
      context_.record(digest_), wire::Exists::create_or_replace, wire_ttl_, ops, timeout_ms);
  set_write_flags(context_.options, put);
  request.payload = slice_;
  return wire::encode_record_request(put, wire::Payload::external, request.head);
}

Status MetaPut::encode(uint32_t timeout_ms, Encoded& request) {
  was_sent_ = true;
  if (record.plan.is_inline() && record.sums.empty()) record.sums = {segment_sum(payload)};
  wire::RecordRequest put = wire::RecordRequest::put(
      context_.record(digest_), wire::Exists::create_or_replace, wire_ttl, {}, timeout_ms);
  set_write_flags(context_.options, put);
  if (context_.options.send_key) {
    put.user_key = wire::UserKey{wire::Particle::string, as_bytes(user_key)};
  }
  wire::UnitWriter writer(request.head);
  Result<size_t> begun = wire::begin_record_request(put, meta_op_count(record), writer);
  if (!begun) return begun.error();
  encode_meta_record(record, writer);
  if (record.plan.is_inline()) request.payload = payload;
  writer.end_frame(*begun, wire::MessageType::record, request.payload.size());
  return {};
}

Status RecordRemove::encode(uint32_t timeout_ms, Encoded& request) {
  return wire::encode_record_request(
      wire::RecordRequest::remove(context_.record(digest_), timeout_ms), wire::Payload::inside,
      request.head);
}

}  // namespace aerokv::store
