// SPDX-License-Identifier: Apache-2.0
// Meta records as a server would deliver them: ops one after the other. The first byte chooses
// whether the payload was asked for, and whether it was received elsewhere. What is accepted must
// keep the plan's invariants and survive being written and read again.
#include <vector>

#include "fuzz.h"
#include "store/meta_record.h"

using aerokv::Bytes;
using aerokv::fuzz::require;
namespace store = aerokv::store;
namespace wire = aerokv::wire;

namespace {

std::vector<store::BinView> read_bins(Bytes ops, bool is_payload_elsewhere) {
  std::vector<store::BinView> bins;
  wire::UnitReader reader(ops);
  while (const auto op = reader.op()) {
    const bool is_elsewhere = is_payload_elsewhere && op->name == store::bin::kPayload;
    bins.push_back({op->name, op->particle, is_elsewhere ? Bytes() : op->value, op->value.size()});
  }
  return bins;
}

void check(const store::MetaRecord& record, Bytes input) {
  const store::SegmentPlan& plan = record.plan;
  require(plan.segment_count >= 1 && plan.segment_count <= aerokv::kSegmentsMax);
  require(plan.total_bytes <= plan.segment_count * plan.segment_bytes);
  require(plan.offset(plan.segment_count - 1) <= plan.total_bytes);
  require(plan.bytes(plan.segment_count - 1) <= plan.segment_bytes);
  require(record.sums.empty() || record.sums.size() == plan.segment_count);
  require(8 * record.sums.size() + record.metadata.size() <= input.size());
  std::vector<std::byte> ops;
  wire::UnitWriter writer(ops);
  encode_meta_record(record, writer);
  if (plan.is_inline()) ops.resize(ops.size() + plan.total_bytes);
  const auto bins = read_bins(ops, false);
  require(bins.size() == store::meta_op_count(record));
  const auto again = decode_meta_record(bins, store::PayloadBin::requested);
  require(again && again->plan == plan && again->sums == record.sums &&
          again->metadata == record.metadata && again->crc32 == record.crc32 &&
          again->pin == record.pin && again->created_at == record.created_at);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  Bytes ops = aerokv::fuzz::input(data, size);
  const uint8_t choice = aerokv::fuzz::take(ops);
  const auto payload =
      (choice & 1) != 0 ? store::PayloadBin::requested : store::PayloadBin::not_requested;
  const auto bins = read_bins(ops, (choice & 2) != 0);
  const auto record = decode_meta_record(bins, payload);
  if (record) {
    check(*record, ops);
  } else {
    require(record.error().code() == aerokv::Code::corruption ||
            record.error().code() == aerokv::Code::not_found);
  }
  return 0;
}
