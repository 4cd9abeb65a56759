// SPDX-License-Identifier: Apache-2.0
// The chunk store: objects of any size kept in an Aerospike cluster.
#pragma once

#include <array>
#include <chrono>
#include <cstdint>
#include <functional>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "aerokv/bytes.h"
#include "aerokv/status.h"
#include "aerokv/tls.h"

namespace aerokv {

/// Which copy of a record a read asks first. prefer_rack needs StoreOptions::rack_id.
enum class Replica : uint8_t { master, sequence, any, prefer_rack };

/// Who knows that a user is the one he says he is. internal: the server, by the password; external:
/// a system that the server asks (LDAP), which is given the password, so TLS is needed; pki: the
/// client's certificate names the user, and there is no password.
enum class AuthMode : uint8_t { internal, external, pki };

/// What a load checks beyond sizes. identity: the sums stored with the segments are those that the
/// meta record names. full: the received bytes are hashed as well.
enum class Verify : uint8_t { none, identity, full };

/// Everything that can be configured. docs/reference/config.md has the table.
struct StoreOptions {
  /// "host:port,host2:tls-name:port"; port 3000 if left out; IPv6 as "[::1]:3000".
  std::string hosts;
  std::string ns = "lmcache";
  std::string set_name = "kv_chunks";
  std::string username;  ///< empty = no login
  std::string password;  ///< never logged
  AuthMode auth_mode = AuthMode::internal;
  TlsOptions tls;
  std::string tls_name;  ///< that the certificates of nodes have, where `hosts` says no other
  std::string cluster_name;
  bool use_services_alternate = false;

  /// Segments. 0 = derived from what every node allows; see docs/formats/record.md#segments.
  uint64_t target_segment_bytes = 0;
  uint64_t max_segment_bytes = 0;
  uint64_t min_segment_bytes = 64 << 10;
  uint64_t single_record_threshold_bytes = 0;

  /// Seconds; 0 = the namespace's default, -1 = never expires, -2 = keep the present expiry.
  int64_t default_ttl_seconds = 86400;
  /// Segments outlive their meta record by this much (positive TTLs only).
  int64_t segment_ttl_grace_seconds = 60;
  bool refresh_ttl_on_read = false;

  bool commit_master_only = false;  ///< answer before the replicas have the record
  Replica replica = Replica::sequence;
  int rack_id = -1;
  bool hedge_reads = false;  ///< a load that is later than most is sent to a second replica, too
  bool send_key = true;      ///< meta records carry their key, which makes them listable
  bool enable_crc32 = false;
  Verify verify = Verify::identity;

  int num_io_threads = 2;
  int max_connections_per_node = 256;
  uint64_t max_bytes_in_flight = 256ULL << 20;  ///< stores have at most half of it
  /// Payload of stores that wait or are under way; what comes on top is shed (ShedReason).
  uint64_t max_store_bytes_queued = 4ULL << 30;
  std::chrono::milliseconds read_timeout{1000};    ///< deadline of a load or lookup without bytes
  std::chrono::milliseconds write_timeout{2000};   ///< the same of a store, delete or touch
  std::chrono::milliseconds batch_timeout{0};      ///< > 0: the deadline of every batch instead
  std::chrono::milliseconds request_timeout{150};  ///< silence after which a read turns elsewhere
  std::chrono::milliseconds write_request_timeout{1000};
  std::chrono::milliseconds connect_timeout{1000};
  /// open() goes on trying for so long while the cluster is away; 0 = it fails after two rounds.
  std::chrono::milliseconds start_timeout{0};
  std::chrono::milliseconds tend_interval{1000};
};

enum class Operation : uint8_t { get, put, exists, remove, touch };
inline constexpr size_t kOperations = 5;

/// One object of a batch. Keys are opaque: 1 to 4096 bytes of any kind.
struct Item {
  std::string key;
  MutableBytes target;  ///< get: receives the payload; a shorter payload fills its front
  Bytes payload;        ///< put: the payload
  /// put and touch: instead of StoreOptions::default_ttl_seconds.
  std::optional<int64_t> ttl_seconds{};
  bool pin = false;  ///< put: never expires, and is marked as pinned
  Bytes metadata{};  ///< put: opaque bytes kept in the meta record (bin `md`), at most 64 KiB

  /// The serde that the payload went through, at most 255 bytes; valid as long as the buffers.
  /// put: kept in the meta record together with `raw_bytes`, the size before it. get: an object
  /// with another serde, or with one where none is expected, is a miss (MissReason::other_serde).
  std::string_view serde{};
  uint64_t raw_bytes = 0;
  /// get: the payload may be shorter than `target`. Its meta record is asked for before any
  /// segment, since segments cut for another size would come in vain.
  bool size_is_unknown = false;
};

/// hit: loaded, stored, present, removed, touched. miss: not there, or damaged; a normal outcome.
/// error: unknown; `status` tells why.
enum class Outcome : uint8_t { hit, miss, error };

struct ItemResult {
  Outcome outcome = Outcome::error;
  /// get, put: payload bytes. A get that missed because the buffer is too small says how many
  /// there are; every other miss says 0.
  uint64_t bytes = 0;
  uint64_t raw_bytes = 0;           ///< get: size before the serde, where the object has one
  std::vector<std::byte> metadata;  ///< get: bin `md`, also of an object too large for the buffer
  Status status;                    ///< ok unless outcome is error, or a miss has a reason
};

/// Called exactly once for each submitted batch with one result per item, in order; on an I/O
/// thread, or on the caller's thread if the batch could not start. Must not block.
using BatchDone = std::function<void(std::vector<ItemResult>)>;

/// Why loads missed.
enum class MissReason : uint8_t {
  not_found,        ///< no meta record
  not_ready,        ///< the meta record has another state
  bad_meta,         ///< the meta record is damaged or foreign
  too_large,        ///< the payload is longer than the buffer
  segment_missing,  ///< a segment is not there
  segment_size,     ///< a segment has another length
  segment_sum,      ///< a segment belongs to another write of the object
  payload_hash,     ///< the received bytes do not match their sum (Verify::full, crc32)
  other_serde,      ///< stored through another serde than this reader's, or through none
  undecodable,      ///< the serde of this reader refused what it wrote: damage, or another key
};
inline constexpr size_t kMissReasons = 10;
const char* miss_reason_name(MissReason reason);

/// Why stores were refused before anything of them was sent (Code::overloaded).
enum class ShedReason : uint8_t {
  queue_full,   ///< StoreOptions::max_store_bytes_queued were waiting
  stop_writes,  ///< the namespace takes no writes
  deadline,     ///< its turn had not come when its time was over
};
inline constexpr size_t kShedReasons = 3;
const char* shed_reason_name(ShedReason reason);

/// A distribution in powers of two: counts[0] are values up to 1, counts[i] those above 2^(i-1) and
/// up to 2^i. The last also has everything above.
struct Histogram {
  static constexpr size_t kBuckets = 40;
  std::array<uint64_t, kBuckets> counts{};
  uint64_t sum = 0;  ///< of all values
};

/// A snapshot of the counters of one store. Counts are since open().
struct StoreStats {
  struct PerOperation {
    uint64_t items = 0, hits = 0, misses = 0, errors = 0, bytes = 0;
    uint64_t round_trips = 0;  ///< get, put: requests that waited for another of the same object
    uint64_t in_flight = 0;    ///< objects of batches that have not ended
    std::array<uint64_t, kCodes> errors_by_code{};
    Histogram batch_microseconds;
  };
  std::array<PerOperation, kOperations> operations{};
  std::array<uint64_t, kMissReasons> misses_by_reason{};
  std::array<uint64_t, kShedReasons> stores_shed_by_reason{};
  uint64_t store_bytes_queued = 0, store_bytes_queued_peak = 0;  ///< of stores that have not ended
  uint64_t stop_writes = 0;  ///< 1 while stores are shed since the namespace takes no writes
  /// Which engine of the process this store uses. Stores with equal connection options share one,
  /// and with it the counters of this and the next line, and `nodes`.
  uint64_t engine = 0;
  uint64_t requests = 0, retries = 0, stalls = 0, connection_errors = 0;
  uint64_t hedges = 0, hedges_won = 0;  ///< second requests of late loads; those that came first
  uint64_t probes = 0;                  ///< of suspects, whether they work again
  uint64_t bytes_in_flight = 0, bytes_in_flight_peak = 0;
  Histogram stored_segment_counts, stored_segment_bytes;  ///< of each object that was stored
  uint64_t damaged_keys = 0;  ///< keys that lookups report absent until they are stored again
  struct NodeStats {
    std::string name, address;
    bool suspect = false;  ///< its circuit breaker is open: loads avoid it
    bool probed = false;   ///< and a probe is under way
    uint64_t requests = 0, failures = 0;
    int64_t connections = 0;
    uint64_t store_window_bytes = 0;  ///< of stores that it is given at once
  };
  std::vector<NodeStats> nodes;  ///< none after close()
};

/// What open() found and decided.
struct StoreLimits {
  uint64_t record_bytes_max = 0;
  std::string record_bytes_source;
  uint64_t target_segment_bytes = 0, max_segment_bytes = 0, min_segment_bytes = 0,
           single_record_threshold_bytes = 0;
  std::vector<std::string> warnings;
};

/// One object as a listing or an inspection shows it.
struct ObjectInfo {
  std::string key;     ///< empty if the record does not carry its key
  std::string digest;  ///< of the meta record, 40 hex digits
  uint64_t bytes = 0;
  uint32_t segment_count = 0;
  uint64_t segment_bytes = 0;
  int64_t created_at = 0;   ///< Unix seconds
  int64_t expires_in = -1;  ///< seconds; -1 = never
  uint32_t generation = 0;
  bool pin = false;
  bool ready = false;
  std::string serde;       ///< what the payload went through; empty = nothing
  uint64_t raw_bytes = 0;  ///< the size before it; without a serde the same as `bytes`
};

/// One record of an object.
struct RecordInfo {
  std::string user_key;
  std::string digest;  ///< 40 hex digits
  bool present = false;
  uint32_t generation = 0;
  int64_t expires_in = -1;
  std::string node;
  /// Segments: whether the stored sum is the one that the meta record names; empty if that names
  /// none.
  std::optional<bool> sum_agrees;
};

struct ObjectDetails {
  ObjectInfo info;
  bool has_sums = false, has_crc32 = false;
  uint64_t metadata_bytes = 0;
  std::vector<RecordInfo> records;  ///< meta first
};

/// What one node said to an info command.
struct NodeAnswer {
  std::string node;
  Status status;     ///< not ok if it could not be asked, or answered "ERROR:..."
  std::string text;  ///< the value as the server wrote it
};

/// Objects in an Aerospike cluster. Thread-safe.
///
/// A store is many requests in flight on a few I/O threads; nothing is copied on the way between
/// the caller's buffers and the sockets. Segments are written before the meta record, which makes
/// an object visible at once or not at all.
class Store {
 public:
  /// Connects, asks all nodes for their limits and checks the TTL rules. Blocks for at most about
  /// three times `connect_timeout`, and `start_timeout` if no node answers.
  /// Errors: invalid (an option, named), unavailable (no node), denied (login, namespace, TTL).
  static Result<std::unique_ptr<Store>> open(StoreOptions options);

  virtual ~Store() = default;

  /// Starts a batch and returns at once. Targets, payloads and metadata must stay valid, and
  /// targets untouched, until `done` is called. Keys may repeat.
  void submit(Operation operation, std::vector<Item> items, BatchDone done) {
    submit(operation, std::move(items), std::move(done), std::nullopt);
  }

  /// The same with an end of its own, if that comes before the one that the options give.
  virtual void submit(Operation operation, std::vector<Item> items, BatchDone done,
                      std::optional<std::chrono::steady_clock::time_point> deadline) = 0;

  /// When a batch of these items ends at the latest, if it is submitted now.
  [[nodiscard]] virtual std::chrono::steady_clock::time_point deadline(
      Operation operation, const std::vector<Item>& items) const = 0;

  /// The caller could not use what a get loaded: lookups of this process call the key absent until
  /// it is stored again.
  virtual void report_damaged(const std::string& key) = 0;

  /// Lists objects, some at a time. `cursor` starts at 0 and is advanced; it is 4096 at the end.
  /// Stops after at least `count` objects or at the end. Blocks.
  virtual Result<std::vector<ObjectInfo>> list(uint32_t& cursor, size_t count) = 0;

  /// Looks at all records of one object. Blocks. Errors: not_found.
  virtual Result<ObjectDetails> inspect(const std::string& key) = 0;

  /// Asks every active node one info command, such as "namespace/lmcache". Blocks for at most
  /// `connect_timeout` for each node. Errors: invalid (a command with control characters).
  virtual Result<std::vector<NodeAnswer>> info(const std::string& command) = 0;

  [[nodiscard]] virtual StoreStats stats() const = 0;
  [[nodiscard]] virtual StoreLimits limits() const = 0;
  [[nodiscard]] virtual const StoreOptions& options() const = 0;

  /// Ends all open batches (Code::closed) and threads. Bounded, idempotent, thread-safe. Not to
  /// be called from `done`.
  virtual void close() = 0;
};

}  // namespace aerokv
