// SPDX-License-Identifier: Apache-2.0
// The fused path: a store whose payloads go through a serde on their way to the wire and back.
#pragma once

#include <memory>

#include "aerokv/serde.h"
#include "aerokv/status.h"
#include "aerokv/store.h"

namespace aerokv {

/// Opens a store that serializes what is put and deserializes what is got, on threads of its
/// own, while other objects of the batch are on the wire. Every other operation is passed on.
///
/// Payloads and targets are the raw bytes of a KV tensor, of which only the element type is known;
/// formats that need shapes (int8, int4, k16v8) are refused. Encoded bytes live in memory of this
/// store, bounded by StoreOptions::max_bytes_in_flight: no second buffer of the caller is needed.
///
/// The meta record tells which serde and which size before it; an object of another serde, or of
/// none, is a miss (MissReason::other_serde), as is one that cannot be decoded
/// (MissReason::undecodable). Target bytes are unspecified after a miss.
///
/// `config` may hold besides the serde's own parameters: `dtype` (needed unless the serde takes
/// bytes as bytes: checksum, aesgcm) and `max_workers` (1 to 256, by default one for each
/// processor, at most 4). The tenant of a key (SerdeKey) is read from LMCache's key text: model,
/// rank, group and hash, separated by '@', then the salt; other texts have no tenant.
///
/// Errors: invalid (a parameter, named; told before the cluster is asked), overloaded (no threads),
/// and those of Store::open().
Result<std::unique_ptr<Store>> open_serde_store(StoreOptions options, SerdeConfig config);

}  // namespace aerokv
