// SPDX-License-Identifier: Apache-2.0
// The meta record of an object: what its bins say, checked. docs/formats/record.md has the
// table. A meta record is input from a stranger: nothing in it is used before it is checked, and
// nothing is allocated because of a number in it.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "aerokv/bytes.h"
#include "aerokv/status.h"
#include "store/plan.h"
#include "wire/message.h"

namespace aerokv::store {

/// Bin names of the schema; older servers allow 14 bytes.
namespace bin {
inline constexpr std::string_view kVersion = "ver", kState = "state", kSegmentCount = "nseg",
                                  kSegmentBytes = "seg_b", kTotalBytes = "tot_b",
                                  kCreatedAt = "created_at", kPin = "pin", kMetadata = "md",
                                  kCrc32 = "crc32", kSums = "sums", kSum = "sum", kPayload = "b",
                                  kSerde = "serde", kRawBytes = "raw_b";
}  // namespace bin

inline constexpr int64_t kSchemaVersion = 1;
inline constexpr std::string_view kStateReady = "ready";
/// The payload went through the serde named beside it. Readers that know no serdes take every other
/// state than `ready` for a miss.
inline constexpr std::string_view kStateEncoded = "encoded";

/// A bin as the client delivers it. `value` points into the client's buffer. A payload may have
/// been received elsewhere: then `value` is empty and only `value_bytes` tells its size.
struct BinView {
  std::string_view name;
  uint8_t particle = 0;
  Bytes value;
  uint64_t value_bytes = 0;
};

/// Whether the payload bin was among the bins asked for.
enum class PayloadBin : uint8_t { requested, not_requested };

/// A checked meta record that says `ready` or `encoded`; its plan keeps the invariants of
/// SegmentPlan.
struct MetaRecord {
  SegmentPlan plan;
  int64_t created_at = 0;  ///< Unix seconds; 0 if a foreign writer left it out
  bool pin = false;
  std::optional<uint32_t> crc32;    ///< zlib CRC-32 of the whole payload
  std::vector<uint64_t> sums;       ///< one for each segment; empty if the writer made none
  std::vector<std::byte> metadata;  ///< bin `md`, opaque here; empty if there is none
  std::string serde;                ///< 1 to kSerdeTagBytesMax bytes in state `encoded`, else empty
  uint64_t raw_bytes = 0;           ///< the size before the serde; 0 without one
};

/// Reads the bins of one record in any order; bins that are not in the schema are ignored, and
/// so is a payload bin beside segments (an update by another writer may leave one behind).
/// Records of writers that know no sums are accepted; `pin` may be a bool or an integer.
/// In state "ready" the bins of a serde are ignored: another writer's update may leave them behind.
/// Errors: not_found if `state` is neither "ready" nor "encoded"; corruption, with the bin named,
/// for everything else: a bin missing or twice, of a wrong type, out of range, or in contradiction
/// to another.
Result<MetaRecord> decode_meta_record(std::span<const BinView> bins, PayloadBin payload);

/// Number of ops that encode_meta_record() appends, for the message header.
uint16_t meta_op_count(const MetaRecord& record);

/// Appends the write ops of `record`. For an inline plan the last op is the payload's header:
/// the caller sends plan.total_bytes payload bytes behind it. Requires a valid plan and as many
/// sums as segments, or none.
void encode_meta_record(const MetaRecord& record, wire::UnitWriter& writer);

}  // namespace aerokv::store
