// SPDX-License-Identifier: Apache-2.0
#include "devserver/execute.h"

#include <algorithm>

#include "wire/result.h"

namespace aerokv::devserver {
namespace {

namespace result = wire::result;
using wire::OpType;
using wire::Particle;

constexpr uint32_t kTtlNever = 0xFFFFFFFF;
constexpr uint32_t kTtlKeep = 0xFFFFFFFE;

Outcome outcome_of(uint8_t code, const Record* record) {
  if (record == nullptr) return {code, 0, 0};
  return {code, record->generation, record->void_time};
}

bool set_differs(const Record& record, std::string_view name) {
  return record.set == nullptr ? !name.empty() : record.set->name != name;
}

bool key_differs(const Record& record, Bytes key) {
  return !key.empty() && !record.key.empty() && as_text(key) != record.key;
}

// A read may ask for the record's life to be prolonged when only so many percent of it are left.
// Returns false for an impossible percentage on a record that expires.
bool touch_on_read(Record& record, uint32_t percent, uint64_t now_ns) {
  if (record.void_time == 0 || percent == 0 || percent == kTtlNever) return true;
  if (percent > 100) return false;
  const uint32_t born = server_seconds(record.updated_ns);
  const uint32_t now = server_seconds(now_ns);
  if (record.void_time <= born || record.void_time <= now) return true;
  const uint64_t life = record.void_time - born;
  const uint64_t left = record.void_time - now;
  if (left * 100 > life * percent) return true;
  record.void_time = now + static_cast<uint32_t>(life);
  record.updated_ns = now_ns;
  return true;
}

void send_all_bins(const Record& record, OpSink& out) {
  for (const Bin& bin : record.bins) out.value(static_cast<uint8_t>(OpType::read), bin);
}

uint8_t read_bins(const Record& record, const RecordRequest& request, OpSink& out) {
  const bool all = (request.header.info1 & wire::info1::kGetAll) != 0;
  const bool respond_all = (request.header.info2 & wire::info2::kRespondAllOps) != 0;
  if (request.ops.empty()) {
    if (!all) return result::kParameter;
    send_all_bins(record, out);
    return result::kOk;
  }
  for (const wire::Op& op : request.ops) {
    if (static_cast<OpType>(op.type) != OpType::read) {
      const bool known = op.type == 3 || op.type == 7 || op.type == 12 || op.type == 15;
      return known ? result::kUnsupported : result::kParameter;
    }
    if (op.name.empty() && all) {
      send_all_bins(record, out);
    } else if (const Bin* bin = record.find(op.name)) {
      out.value(op.type, *bin);
    } else if (respond_all) {
      out.nothing(op.type, op.name);
    }
  }
  return result::kOk;
}

bool value_is_legal(const wire::Op& op) {
  const size_t size = op.value.size();
  switch (static_cast<Particle>(op.particle)) {
    case Particle::null:
      return true;
    case Particle::integer:
      return size == 1 || size == 2 || size == 4 || size == 8;
    case Particle::floating:
      return size == 8;
    case Particle::boolean:
      return size == 1 && std::to_integer<uint8_t>(op.value[0]) <= 1;
    case Particle::string:
    case Particle::blob:
    case Particle::hll:
    case Particle::map:
    case Particle::list:
    case Particle::geojson:
      return true;
    default:
      return op.particle >= 7 && op.particle <= 12;
  }
}

uint8_t check_write_op(const wire::Op& op, const RecordRequest& request, bool replace) {
  if (op.name.size() > kBinNameBytesMax || op.name.find('\0') != std::string_view::npos) {
    return result::kBinName;
  }
  switch (static_cast<OpType>(op.type)) {
    case OpType::read:
      return request.is_read() ? result::kOk : result::kParameter;
    case OpType::write:
      if (replace && op.particle == 0) return result::kParameter;
      return value_is_legal(op) ? result::kOk : result::kParameter;
    case OpType::touch:
    case OpType::delete_all:
      return replace ? result::kParameter : result::kOk;
    case OpType::add:
    case OpType::append:
    case OpType::prepend:
      return replace || !value_is_legal(op) ? result::kParameter : result::kOk;
    default: {
      // Lists, maps, expressions, bits, HLL: known to the real server, of no use to a cache.
      const bool known = op.type == 3 || op.type == 4 || op.type == 7 || op.type == 8 ||
                         op.type == 12 || op.type == 13 || op.type == 15 || op.type == 16;
      return known ? result::kUnsupported : result::kParameter;
    }
  }
}

struct WriteMode {
  bool must_create = false;
  bool must_exist = false;
  bool replace = false;
};

uint8_t check_ops(const RecordRequest& request, WriteMode& mode) {
  mode.must_create = (request.header.info2 & wire::info2::kCreateOnly) != 0;
  mode.must_exist =
      (request.header.info3 & (wire::info3::kUpdateOnly | wire::info3::kReplaceOnly)) != 0;
  mode.replace =
      (request.header.info3 & (wire::info3::kCreateOrReplace | wire::info3::kReplaceOnly)) != 0;
  if (request.ops.empty()) return result::kParameter;
  for (const wire::Op& op : request.ops) {
    if (const uint8_t code = check_write_op(op, request, mode.replace)) return code;
    if (static_cast<OpType>(op.type) == OpType::touch) mode.must_exist = true;
  }
  return result::kOk;
}

bool generation_fails(const RecordRequest& request, const Record* record) {
  const uint32_t stored = record == nullptr ? 0 : record->generation;
  const uint32_t given = request.header.generation;
  if ((request.header.info2 & wire::info2::kGenerationEqual) != 0) return given != stored;
  if ((request.header.info2 & wire::info2::kGenerationGreater) != 0) return given <= stored;
  return false;
}

uint8_t new_void_time(const NamespaceSettings& ns, uint32_t ttl, const Record* old, uint64_t now_ns,
                      uint32_t& void_time) {
  if (ttl == kTtlNever) {
    void_time = 0;
    return result::kOk;
  }
  if (ttl == kTtlKeep) {
    if (old != nullptr) {
      void_time = old->void_time;
      return result::kOk;
    }
    ttl = 0;
  }
  if (ttl > kTtlSecondsMax) return result::kParameter;
  if (ttl == 0) ttl = ns.default_ttl_s.load(std::memory_order_relaxed);
  if (ttl == 0) {
    void_time = 0;
    return result::kOk;
  }
  if (ns.nsup_period_s.load(std::memory_order_relaxed) == 0 &&
      !ns.allow_ttl_without_nsup.load(std::memory_order_relaxed)) {
    return result::kForbidden;
  }
  void_time = server_seconds(now_ns) + ttl;
  return result::kOk;
}

// Brings values of a message into memory that the record may keep: large ones stay in the
// message's own buffer if it can be kept, all others move into one new buffer.
class ValueKeeper {
 public:
  ValueKeeper(const RecordRequest& request, BufferPool& pool) : buffer_(request.buffer) {
    size_t large = 0;
    size_t small = 0;
    for (const wire::Op& op : request.ops) {
      const bool is_large = op.value.size() >= kLargeMin;
      large += is_large ? op.value.size() : 0;
      small += std::max<size_t>(op.value.size(), 8);
    }
    // A buffer that is mostly something else would be kept for a small part of it.
    keep_large_ = buffer_ && large >= buffer_.capacity() / 2;
    const size_t needed = keep_large_ ? small - large : small;
    if (needed > 0) copies_ = pool.allocate(needed);
    failed_ = needed > 0 && !copies_;
  }

  [[nodiscard]] bool failed() const { return failed_; }

  Slice keep(const wire::Op& op) {
    if (keep_large_ && op.value.size() >= kLargeMin) {
      return {buffer_, op.value.data(), static_cast<uint32_t>(op.value.size())};
    }
    std::byte* at = copies_.data() + used_;
    if (static_cast<Particle>(op.particle) == Particle::integer) {
      std::fill(at, at + 8, std::byte{0});  // short integers are extended with zeros
      std::copy(op.value.begin(), op.value.end(), at + 8 - op.value.size());
      used_ += 8;
      return {copies_, at, 8};
    }
    std::copy(op.value.begin(), op.value.end(), at);
    used_ += op.value.size();
    return {copies_, at, static_cast<uint32_t>(op.value.size())};
  }

 private:
  static constexpr size_t kLargeMin = 2048;
  BufferRef buffer_;
  BufferRef copies_;
  size_t used_ = 0;
  bool keep_large_ = false;
  bool failed_ = false;
};

Bin& bin_of(std::vector<Bin>& bins, std::string_view name) {
  for (Bin& bin : bins) {
    if (bin.name.view() == name) return bin;
  }
  bins.push_back({BinName(name), 0, {}});
  return bins.back();
}

// The last bin takes the place of the deleted one, as on the real server.
void delete_bin(std::vector<Bin>& bins, std::string_view name) {
  for (Bin& bin : bins) {
    if (bin.name.view() != name) continue;
    if (&bin != &bins.back()) bin = std::move(bins.back());
    bins.pop_back();
    return;
  }
}

uint8_t add_to(Bin& bin, const wire::Op& op, BufferPool& pool) {
  const auto type = static_cast<Particle>(op.particle);
  if (type != Particle::integer && type != Particle::floating) return result::kIncompatibleType;
  if (bin.particle != 0 && bin.particle != op.particle) return result::kIncompatibleType;
  uint64_t given = 0;
  for (const std::byte b : op.value) given = given << 8 | std::to_integer<uint64_t>(b);
  uint64_t sum = given;
  if (bin.particle != 0) {
    const auto stored = load_be<uint64_t>(bin.value.data);
    sum =
        type == Particle::integer
            ? stored + given
            : std::bit_cast<uint64_t>(std::bit_cast<double>(stored) + std::bit_cast<double>(given));
  }
  BufferRef memory = pool.allocate(8);
  if (!memory) return result::kOutOfSpace;
  store_be(memory.data(), sum);
  const std::byte* at = memory.data();
  bin.particle = op.particle;
  bin.value = {std::move(memory), at, 8};
  return result::kOk;
}

uint8_t concatenate(Bin& bin, const wire::Op& op, BufferPool& pool) {
  const auto type = static_cast<Particle>(op.particle);
  if (type != Particle::string && type != Particle::blob) return result::kIncompatibleType;
  if (bin.particle != 0 && bin.particle != op.particle) return result::kIncompatibleType;
  Bytes first = bin.value.bytes();
  Bytes second = op.value;
  if (static_cast<OpType>(op.type) == OpType::prepend) std::swap(first, second);
  const size_t size = first.size() + second.size();
  if (size > kRecordBytesMax) return result::kRecordTooBig;
  BufferRef memory = pool.allocate(size);
  if (!memory) return result::kOutOfSpace;
  std::copy(first.begin(), first.end(), memory.data());
  std::copy(second.begin(), second.end(), memory.data() + first.size());
  const std::byte* at = memory.data();
  bin.particle = op.particle;
  bin.value = {std::move(memory), at, static_cast<uint32_t>(size)};
  return result::kOk;
}

void read_one(const std::vector<Bin>& bins, const wire::Op& op, bool respond_all, OpSink& out) {
  if (op.name.empty()) {
    for (const Bin& bin : bins) out.value(op.type, bin);
    return;
  }
  for (const Bin& bin : bins) {
    if (bin.name.view() == op.name) return out.value(op.type, bin);
  }
  if (respond_all) out.nothing(op.type, op.name);
}

uint8_t modify(std::vector<Bin>& bins, const wire::Op& op, ValueKeeper& keeper, BufferPool& pool) {
  switch (static_cast<OpType>(op.type)) {
    case OpType::write:
      if (op.particle == 0) {
        delete_bin(bins, op.name);
      } else {
        Bin& bin = bin_of(bins, op.name);
        bin.particle = op.particle;
        bin.value = keeper.keep(op);
      }
      return result::kOk;
    case OpType::add:
      return add_to(bin_of(bins, op.name), op, pool);
    case OpType::append:
    case OpType::prepend:
      return concatenate(bin_of(bins, op.name), op, pool);
    case OpType::delete_all:
      bins.clear();
      return result::kOk;
    default:
      return result::kOk;  // touch changes the header only
  }
}

uint8_t apply_ops(const RecordRequest& request, std::vector<Bin>& bins, BufferPool& pool,
                  OpSink& out) {
  const bool respond_all = (request.header.info2 & wire::info2::kRespondAllOps) != 0;
  ValueKeeper keeper(request, pool);
  if (keeper.failed()) return result::kOutOfSpace;
  for (const wire::Op& op : request.ops) {
    if (static_cast<OpType>(op.type) == OpType::read) {
      read_one(bins, op, respond_all, out);
      continue;
    }
    if (const uint8_t code = modify(bins, op, keeper, pool)) return code;
    if (respond_all) out.nothing(op.type, op.name);
  }
  return result::kOk;
}

uint16_t next_generation(const Record* old) {
  if (old == nullptr) return 1;
  return old->generation == 0xFFFF ? uint16_t{1} : static_cast<uint16_t>(old->generation + 1);
}

// The checks between existence and application, in the order of the real server.
uint8_t check_old(const Place& place, const RecordRequest& request, const WriteMode& mode,
                  const Record* old, Set*& set) {
  if (old == nullptr && mode.must_exist) return result::kNotFound;
  if (old != nullptr && mode.must_create) return result::kRecordExists;
  if (generation_fails(request, old)) {
    place.ns->counters(place.node).generation_error.fetch_add(1, std::memory_order_relaxed);
    return result::kGeneration;
  }
  if (old != nullptr) {
    set = old->set;
    if (set_differs(*old, request.set_name())) return result::kParameter;
    return key_differs(*old, request.key) ? result::kKeyMismatch : result::kOk;
  }
  if (request.set_name().empty()) return result::kOk;
  set = place.ns->find_or_add_set(request.set_name());
  return set == nullptr ? result::kParameter : result::kOk;
}

uint8_t check_size(const Place& place, const Record& record, const Record* old) {
  const uint64_t bytes = record_bytes(record);
  if (bytes > place.ns->settings(place.node).max_record_bytes.load(std::memory_order_relaxed)) {
    place.ns->counters(place.node).record_too_big.fetch_add(1, std::memory_order_relaxed);
    return result::kRecordTooBig;
  }
  const int64_t used = place.ns->counters(place.node).used_bytes.load(std::memory_order_relaxed) -
                       (old == nullptr ? 0 : int64_t{old->stored_bytes});
  const auto size = static_cast<int64_t>(place.ns->size_bytes());
  return used + static_cast<int64_t>(bytes) > size ? result::kOutOfSpace : result::kOk;
}

}  // namespace

void OpSink::value(uint8_t op, const Bin& bin) {
  answer_.writer().op_header(static_cast<OpType>(op), static_cast<Particle>(bin.particle),
                             bin.name.view(), bin.value.size);
  answer_.append(bin.value);
  ++count_;
}

void OpSink::nothing(uint8_t op, std::string_view name) {
  answer_.writer().op_header(static_cast<OpType>(op), Particle::null, name, 0);
  ++count_;
}

Outcome execute_read(const Place& place, const RecordRequest& request, uint64_t now_ns,
                     OpSink& out) {
  Record* record = place.ns->table(place.node, place.partition).find(place.digest);
  if (record == nullptr) return {result::kNotFound, 0, 0};
  if (place.ns->is_hidden(*record, now_ns)) return outcome_of(result::kNotFound, record);
  if (!request.set_name().empty() && set_differs(*record, request.set_name())) {
    return outcome_of(result::kParameter, record);
  }
  if (key_differs(*record, request.key)) return outcome_of(result::kKeyMismatch, record);
  if (!touch_on_read(*record, request.header.record_ttl, now_ns)) {
    return outcome_of(result::kParameter, record);
  }
  uint8_t code = result::kOk;
  if ((request.header.info1 & wire::info1::kNoBinData) == 0) {
    code = read_bins(*record, request, out);
  }
  return outcome_of(code, record);
}

Outcome execute_write(const Place& place, const RecordRequest& request, uint64_t now_ns,
                      OpSink& out) {
  if (place.ns->settings(place.node).stop_writes.load(std::memory_order_relaxed)) {
    return {result::kOutOfSpace, 0, 0};
  }
  WriteMode mode;
  if (const uint8_t code = check_ops(request, mode)) return {code, 0, 0};
  const Record* stored = place.ns->table(place.node, place.partition).find(place.digest);
  const Record* old = stored != nullptr && place.ns->is_hidden(*stored, now_ns) ? nullptr : stored;

  auto record = std::make_unique<Record>();
  if (const uint8_t code = check_old(place, request, mode, old, record->set)) {
    return outcome_of(code, old);
  }
  if (const uint8_t code = new_void_time(place.ns->settings(place.node), request.header.record_ttl,
                                         old, now_ns, record->void_time)) {
    return outcome_of(code, old);
  }
  if (old != nullptr && !mode.replace) record->bins = old->bins;
  if (const uint8_t code = apply_ops(request, record->bins, place.ns->pool(), out)) {
    return outcome_of(code, old);
  }
  if (record->bins.empty()) {
    if (old == nullptr) return {result::kNotFound, 0, 0};
    place.ns->remove_record(place.node, place.partition, place.digest);
    return {result::kOk, 0, 0};
  }
  record->digest = place.digest;
  record->generation = next_generation(old);
  record->updated_ns = now_ns;
  if (!request.key.empty()) record->key = as_text(request.key);
  if (request.key.empty() && old != nullptr) record->key = old->key;
  if (const uint8_t code = check_size(place, *record, old)) return outcome_of(code, old);
  const Outcome outcome = outcome_of(result::kOk, record.get());
  place.ns->put_record(place.node, place.partition, std::move(record));
  return outcome;
}

Outcome execute_delete(const Place& place, const RecordRequest& request) {
  if ((request.header.info2 & wire::info2::kDurableDelete) != 0) {
    return {result::kEnterpriseOnly, 0, 0};
  }
  const Record* record = place.ns->table(place.node, place.partition).find(place.digest);
  if (record == nullptr || place.ns->is_truncated(*record)) return {result::kNotFound, 0, 0};
  if (!request.set_name().empty() && set_differs(*record, request.set_name())) {
    return {result::kParameter, 0, 0};
  }
  if (generation_fails(request, record)) return {result::kGeneration, 0, 0};
  if (key_differs(*record, request.key)) return {result::kKeyMismatch, 0, 0};
  place.ns->remove_record(place.node, place.partition, place.digest);
  return {result::kOk, 0, 0};
}

}  // namespace aerokv::devserver
