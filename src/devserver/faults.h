// SPDX-License-Identifier: Apache-2.0
// The fault plan of the development server: which request fails, and how. Tests of clients use it
// to make every step of an operation fail in every way.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "aerokv/bytes.h"
#include "wire/digest.h"

namespace aerokv::devserver {

/// What a request asks for. A record request has exactly one kind; the rows of a batch are requests
/// of kind `batch_row` of their own, inside one of kind `batch`.
enum class RequestKind : uint8_t {
  info,
  login,
  authenticate,
  get,     ///< one record with bins, all or some
  exists,  ///< header only
  put,
  touch,
  remove,
  operate,  ///< reads and writes in one request
  batch,
  batch_row,
  query,
  other,  ///< compressed, malformed, unknown security command
};
inline constexpr size_t kRequestKinds = 13;

/// "get", "batch_row", ...
std::string_view request_kind_name(RequestKind kind);
std::optional<RequestKind> request_kind_from_name(std::string_view name);

/// One bit for each kind.
using RequestMask = uint32_t;
constexpr RequestMask mask_of(RequestKind kind) {
  return 1U << static_cast<uint32_t>(kind);
}
template <typename... Kinds>
constexpr RequestMask mask_of(RequestKind first, Kinds... rest) {
  return mask_of(first) | mask_of(rest...);
}
inline constexpr RequestMask kAnyRequest = (1U << kRequestKinds) - 1;
/// Everything but info and security: what a client does after it has connected.
inline constexpr RequestMask kRecordRequest =
    kAnyRequest & ~mask_of(RequestKind::info, RequestKind::login, RequestKind::authenticate);

enum class FaultAction : uint8_t {
  delay,        ///< execute and answer `delay` later; requests behind it on the connection wait
  latency,      ///< the answer leaves `delay` later; requests behind it are not held back
  drop,         ///< read the request, execute nothing, never answer it nor anything behind it
  drop_answer,  ///< execute, then never answer it nor anything behind it
  close,        ///< close the connection before executing
  close_after_bytes,     ///< execute, send the first `bytes` bytes of the answer, close
  result_code,           ///< answer `code` without executing
  result_after_execute,  ///< execute, then answer `code`
  damage,                ///< execute, then send the answer damaged as `damage` says
  freeze_node,           ///< the node freezes before this request is executed (see pause_node)
  stop_node,             ///< the node dies before this request is executed (see stop_node)
};
inline constexpr size_t kFaultActions = 11;

std::string_view fault_action_name(FaultAction action);
std::optional<FaultAction> fault_action_from_name(std::string_view name);

/// How an answer is damaged. "Consistent" means that all sizes in the message still agree.
enum class Damage : uint8_t {
  garbage_body,        ///< every byte behind the frame header is random
  garbage_frame,       ///< every byte is random
  flip_value_bit,      ///< one bit of the largest bin value is flipped; consistent
  shorter_value,       ///< the largest bin value loses its last `bytes` bytes; consistent
  longer_value,        ///< the largest bin value gains `bytes` bytes; consistent
  wrong_bin_name,      ///< the first bin has another name; consistent
  wrong_particle,      ///< the first bin has another value type; consistent
  op_size_over,        ///< the size of the first op reaches behind the message
  op_count_over,       ///< one op more is announced than present
  op_count_under,      ///< one op less is announced than present
  field_count_over,    ///< one field more is announced than present
  frame_size_over,     ///< the frame announces `bytes` bytes more than follow
  frame_size_under,    ///< the frame announces `bytes` bytes less than follow
  frame_size_huge,     ///< the frame announces more than any message may have
  wrong_type,          ///< the frame has another message type
  index_out_of_range,  ///< batch: the index of the first row is 2^31
  index_duplicate,     ///< batch: the second row has the index of the first
  missing_row,         ///< batch: the first row is left out
  extra_row,           ///< batch: the first row comes twice
  no_final_unit,       ///< batch, query: the final unit is left out
  empty_frame,         ///< a frame with an empty body in place of the answer
};
inline constexpr size_t kDamages = 21;

std::string_view damage_name(Damage damage);
std::optional<Damage> damage_from_name(std::string_view name);

/// One entry of the plan. A request meets the fault if node, kind and key match; of those requests
/// the `skip` first pass, the next `count` get the action, later ones pass again.
struct Fault {
  int node = -1;  ///< index of the node asked, -1 = any
  RequestMask kinds = kRecordRequest;
  /// Digests of the records concerned; empty = any. A batch or query has no digest of its own.
  std::vector<wire::Digest> digests;
  /// Matches only requests that carry their user key, and only if it contains this text.
  std::string key_contains;
  /// Matches only requests of this set; empty = any.
  std::string set;

  uint64_t skip = 0;   ///< n - 1 to hit the n-th request
  uint64_t count = 0;  ///< how many are hit, 0 = every one

  FaultAction action = FaultAction::delay;
  std::chrono::microseconds delay{0};  ///< delay, latency
  uint8_t code = 0;                    ///< result_code, result_after_execute
  uint64_t bytes = 1;                  ///< close_after_bytes, and the sizes in Damage
  Damage damage = Damage::garbage_body;
  uint64_t seed = 1;  ///< of the random bytes
};
// Rows of a batch (kind batch_row) know these actions: result_code, result_after_execute, drop (the
// row gets no answer). All other actions belong to the batch as a whole (kind batch).

struct FaultCounter {
  uint64_t id = 0;
  uint64_t matched = 0;  ///< requests that met the conditions, those passed by `skip` included
  uint64_t applied = 0;  ///< requests that got the action
};

}  // namespace aerokv::devserver
