// SPDX-License-Identifier: Apache-2.0
// Serializers between KV tensors and the bytes that are stored, and the processor that runs them in
// batches beside the caller.
//
// Two layers, as LMCache has them: a Serializer and a Deserializer are pure transforms; a
// SerdeProcessor runs them on its own threads behind two event descriptors.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "aerokv/bytes.h"
#include "aerokv/status.h"
#include "aerokv/tensor.h"

namespace aerokv {

// ---------------------------------------------------------------------------------------------
// Transforms

/// What a transform may know about the object's key: the hash that the frame is bound to, and the
/// tenant whose key encrypts it. Most formats ignore both.
struct SerdeKey {
  std::string chunk_hash;  ///< raw bytes
  std::string cache_salt;  ///< UTF-8; empty = no tenant
};

/// A borrowed object: tensors of `layout`, one behind the other, in `bytes`. No alignment is asked.
struct ObjectView {
  const Layout& layout;
  Bytes bytes;
};

struct MutableObjectView {
  const Layout& layout;
  MutableBytes bytes;
};

/// Runs the parts of one transform, on one thread or on several. What is written never depends on
/// the number of threads.
class Parallel {
 public:
  virtual ~Parallel() = default;
  /// Calls part(0) ... part(count - 1), each exactly once, in any order; returns after the last.
  virtual void run(size_t count, const std::function<void(size_t)>& part) = 0;
};

/// Runs all parts on the calling thread.
Parallel& serial();

/// Turns an object into bytes. Immutable, thread-safe. The same source gives the same bytes
/// (but for formats that encrypt, which say so).
class Serializer {
 public:
  virtual ~Serializer() = default;

  /// Writes the serialized form of `src` to the front of `dst` and returns its bytes. Nothing is
  /// written past `dst`. `src` and `dst` must not overlap.
  /// Errors: invalid (`src.bytes` is not what its layout says, a dtype or shape that the format
  /// does not take, `dst` too small: nothing is written then), internal.
  Result<size_t> serialize(const ObjectView& src, MutableBytes dst, const SerdeKey& key = {},
                           Parallel& parallel = serial()) const;

  /// An upper bound of the bytes that serialize() writes for any object of `layout`; it depends on
  /// shapes and dtypes alone. Errors: invalid (a dtype or shape that the format does not take).
  [[nodiscard]] virtual Result<size_t> estimate_serialized_size(const Layout& layout) const = 0;

  /// Whether the estimate is what serialize() writes, for every object. Stores that need to know
  /// the size before they read take such formats alone; others read them in one step less.
  [[nodiscard]] virtual bool is_exact_size() const { return false; }

 private:
  /// `src.bytes` has the size of its layout.
  virtual Result<size_t> encode(const ObjectView& src, MutableBytes dst, const SerdeKey& key,
                                Parallel& parallel) const = 0;
};

/// Turns bytes back into an object. Immutable, thread-safe.
class Deserializer {
 public:
  virtual ~Deserializer() = default;

  /// Fills all of `dst` from the serialized bytes at the front of `src`; more bytes may follow
  /// there, since loaded buffers are as long as the estimate. `src` is a stranger's: every length
  /// in it is checked. Nothing is written past `dst`; after an error `dst` is unspecified.
  /// Errors: corruption (truncated, damaged, bound to another key), invalid (a format, version,
  /// dtype or size that does not fit `dst`), denied (authentication failed).
  Status deserialize(Bytes src, const MutableObjectView& dst, const SerdeKey& key = {},
                     Parallel& parallel = serial()) const;

 private:
  /// `dst.bytes` has the size of its layout.
  virtual Status decode(Bytes src, const MutableObjectView& dst, const SerdeKey& key,
                        Parallel& parallel) const = 0;
};

// ---------------------------------------------------------------------------------------------
// Several tensors at one endpoint

/// Fixed-length tuples with slots that may be absent. Not given on serialize: the caller does not
/// supply it. Absent on deserialize: the caller does not want it, and nothing is made for it.
using ObjectGroup = std::vector<std::optional<ObjectView>>;
using MutableObjectGroup = std::vector<std::optional<MutableObjectView>>;
using LayoutGroup = std::vector<std::optional<Layout>>;

/// As Serializer, from a group of group_size() objects. Each format documents its slots: what they
/// carry, and which may be absent.
class MultiSerializer {
 public:
  virtual ~MultiSerializer() = default;
  [[nodiscard]] virtual size_t group_size() const = 0;
  /// Errors: as Serializer::serialize(); invalid also for another group length or for a required
  /// slot that is absent.
  virtual Result<size_t> serialize(const ObjectGroup& src, MutableBytes dst,
                                   const SerdeKey& key) const = 0;
  /// Absent layouts mirror absent objects.
  [[nodiscard]] virtual Result<size_t> estimate_serialized_size(
      const LayoutGroup& layouts) const = 0;
};

/// As Deserializer, into a group. Absent slots are left alone.
class MultiDeserializer {
 public:
  virtual ~MultiDeserializer() = default;
  [[nodiscard]] virtual size_t group_size() const = 0;
  virtual Status deserialize(Bytes src, const MutableObjectGroup& dst,
                             const SerdeKey& key) const = 0;
};

/// A single-tensor pair as groups of one; the bytes are the same. An absent source is an error, an
/// absent target is a deliberate skip.
std::unique_ptr<MultiSerializer> single_to_multi_serializer(
    std::shared_ptr<const Serializer> inner);
std::unique_ptr<MultiDeserializer> single_to_multi_deserializer(
    std::shared_ptr<const Deserializer> inner);

// ---------------------------------------------------------------------------------------------
// Configuration

struct SerdeConfig;

/// A value of a JSON configuration, as far as serdes have them: null is left out.
using SerdeValue = std::variant<bool, int64_t, double, std::string, std::vector<SerdeConfig>>;
using SerdeParams = std::map<std::string, SerdeValue>;

/// {"type": "fp8", "fp8_dtype": "float8_e5m2"}: the type, and everything else.
struct SerdeConfig {
  std::string type;
  SerdeParams params;
};

/// A pair that belongs together. `tag` names the format and all parameters that a reader must share
/// to understand the bytes ("fp8:float8_e4m3fn"), at most 255 printable ASCII characters, without
/// secrets and without what only steers the writer (levels, threads).
struct Serde {
  std::shared_ptr<const Serializer> serializer;
  std::shared_ptr<const Deserializer> deserializer;
  std::string tag;
};

/// Makes one of the built-in formats: fp8, k16v8, int8, int4, lossless, checksum, aesgcm, chain.
/// docs/reference/serde.md has their parameters.
/// Errors: invalid (an unknown type: names the known ones; a parameter that is unknown, missing or
/// out of range, named).
Result<Serde> make_serde(const SerdeConfig& config);

// ---------------------------------------------------------------------------------------------
// Processors

using SerdeTaskId = uint64_t;

/// One object of a task. Everything borrowed stays valid, and targets stay untouched by others,
/// until the task's result was taken or the processor was closed.
struct SerializeItem {
  std::shared_ptr<const Layout> layout;
  Bytes source;
  MutableBytes target;
  SerdeKey key;
};

struct DeserializeItem {
  Bytes source;
  std::shared_ptr<const Layout> layout;
  MutableBytes target;
  SerdeKey key;
};

/// Why one object of a task failed.
struct SerdeFailure {
  SerdeTaskId task = 0;
  size_t index = 0;  ///< of the object in its task
  Status status;
};

struct SerdeResult {
  bool ok = false;              ///< every object was transformed
  std::vector<uint64_t> bytes;  ///< serialize, if ok: bytes written for each object
};

/// Tasks of many objects with one result each, announced through event descriptors.
/// Thread-safe.
class SerdeProcessor {
 public:
  virtual ~SerdeProcessor() = default;

  /// Readable after tasks of that direction have ended; a result can be taken before its signal is
  /// given. Signalled once for each task. Two distinct descriptors, non-blocking, close-on-exec,
  /// the same until close().
  [[nodiscard]] virtual int serialize_event_fd() const = 0;
  [[nodiscard]] virtual int deserialize_event_fd() const = 0;

  /// Starts a task and returns at once. Ids are unique within the processor, whatever the
  /// direction. Errors: closed (also in a forked child).
  virtual Result<SerdeTaskId> submit_serialize(std::vector<SerializeItem> items) = 0;
  virtual Result<SerdeTaskId> submit_deserialize(std::vector<DeserializeItem> items) = 0;

  /// The result of a task, exactly once; nothing while it is pending, for an unknown id, and for
  /// one of the other direction. Works after close() as well.
  virtual std::optional<SerdeResult> query_serialize_result(SerdeTaskId id) = 0;
  virtual std::optional<SerdeResult> query_deserialize_result(SerdeTaskId id) = 0;

  [[nodiscard]] virtual Result<size_t> estimate_serialized_size(const Layout& layout) const = 0;

  /// The newest failures, oldest first.
  [[nodiscard]] virtual std::vector<SerdeFailure> last_errors() const = 0;

  /// Ends tasks that have not begun (their result is not ok, Code::closed), waits for the objects
  /// under way, and releases threads and descriptors. Idempotent. When it returns no buffer is
  /// touched any more.
  virtual void close() = 0;
};

/// Runs a pair on `workers` threads of its own (1 to 256), which serve both directions. A task is
/// spread over them by object, and a large object by slice.
/// Errors: invalid (`workers`), overloaded (no descriptor).
Result<std::unique_ptr<SerdeProcessor>> make_async_serde_processor(Serde serde, size_t workers);

/// Makes a processor from the parameters of a configuration, without the type. Called once for each
/// processor.
using SerdeFactory =
    std::function<Result<std::unique_ptr<SerdeProcessor>>(const SerdeParams& params)>;

/// Adds a type for the whole process. The built-in formats are there from the start; they take the
/// parameter `max_workers` too. Errors: invalid (the name is taken or empty).
Status register_serde_factory(const std::string& type, SerdeFactory factory);

/// Errors: invalid (an unknown type: names the known ones), and those of the factory.
Result<std::unique_ptr<SerdeProcessor>> create_serde_processor(const SerdeConfig& config);

/// In alphabetical order.
std::vector<std::string> registered_serde_types();

/// Objects that processors of this process could not transform. Thread-safe.
struct SerdeFailureCounts {
  uint64_t serialize = 0, deserialize = 0;
};
SerdeFailureCounts serde_failure_counts();

}  // namespace aerokv
