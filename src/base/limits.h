// SPDX-License-Identifier: Apache-2.0
// Every limit that bytes from outside are compared with, in one place.
// Sources: protocol limits are those of the Aerospike server 8.1 and of its C client 7.5;
// the others are ours, with the reason beside them.
#pragma once

#include <chrono>
#include <cstddef>
#include <cstdint>

namespace aerokv {

inline constexpr size_t kDigestBytes = 20;
inline constexpr uint32_t kPartitionCount = 4096;
inline constexpr size_t kNamespaceBytesMax = 31;
inline constexpr size_t kSetBytesMax = 63;
inline constexpr size_t kBinNameBytesMax = 15;
inline constexpr size_t kUserBytesMax = 63;
inline constexpr size_t kPasswordBytesMax = 63;
inline constexpr size_t kNodeNameBytesMax = 19;

/// What a certificate must name: the longest DNS name.
inline constexpr size_t kTlsNameBytesMax = 253;

/// Body of any message; a larger size closes the connection on both sides.
inline constexpr uint64_t kMessageBytesMax = 128ULL << 20;

/// Body of an info answer that we accept: a map of 32 namespaces with 3 replicas is 66 kB, and
/// namespace statistics are 13 kB; 8 MiB leaves room for hundreds of sets and peers.
inline constexpr uint64_t kInfoBytesMax = 8ULL << 20;

/// Body of a security answer: a token is a few hundred bytes.
inline constexpr uint64_t kSecurityBytesMax = 64ULL << 10;

/// Ops in one message: the field is 16 bits wide and the server refuses more than this.
inline constexpr uint32_t kOpCountMax = 32768;

/// Records over this cannot exist on any server (max-record-size ends there).
inline constexpr uint64_t kRecordBytesMax = 8ULL << 20;

/// A key handed to us. LMCache's longest legal keys (path of a model, 64 hex digits of hash, 128
/// characters of salt) stay far below.
inline constexpr size_t kKeyBytesMax = 4096;

/// Replicas of one partition that the client keeps, like the official one.
inline constexpr uint32_t kReplicasMax = 3;

/// Rows of one batch message: the sweet spot measured on a real server is about a thousand.
inline constexpr uint32_t kBatchRowsMax = 1000;

/// Segments of one object: 80 MiB at the smallest legal record limit of 128 KiB are 1,280.
inline constexpr uint32_t kSegmentsMax = 65536;

/// One chunk. LMCache's largest are about 80 MB; 4 GiB keeps every size in 32 bits on the wire.
inline constexpr uint64_t kChunkBytesMax = 4ULL << 30;

/// The name of a serde in a meta record.
inline constexpr size_t kSerdeTagBytesMax = 255;

/// Seconds between the Unix epoch and 2010-01-01, from which servers count void-times.
inline constexpr int64_t kServerEpochSeconds = 1262304000;

/// Largest TTL that a server accepts: ten years.
inline constexpr uint32_t kTtlSecondsMax = 315360000;

}  // namespace aerokv
