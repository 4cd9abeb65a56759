// SPDX-License-Identifier: Apache-2.0
#include "store/chunk_store.h"

#include <algorithm>
#include <map>
#include <thread>

#include "store/discovery.h"
#include "store/key_batches.h"
#include "store/listing.h"
#include "store/object_get.h"
#include "store/row_batch.h"

namespace aerokv {

const char* miss_reason_name(MissReason reason) {
  switch (reason) {
    case MissReason::not_found:
      return "not_found";
    case MissReason::not_ready:
      return "not_ready";
    case MissReason::bad_meta:
      return "bad_meta";
    case MissReason::too_large:
      return "too_large";
    case MissReason::segment_missing:
      return "segment_missing";
    case MissReason::segment_size:
      return "segment_size";
    case MissReason::segment_sum:
      return "segment_sum";
    case MissReason::payload_hash:
      return "payload_hash";
    case MissReason::other_serde:
      return "other_serde";
    case MissReason::undecodable:
      return "undecodable";
  }
  return "unknown";
}

const char* shed_reason_name(ShedReason reason) {
  switch (reason) {
    case ShedReason::queue_full:
      return "queue_full";
    case ShedReason::stop_writes:
      return "stop_writes";
    case ShedReason::deadline:
      return "deadline";
  }
  return "unknown";
}

Result<std::unique_ptr<Store>> Store::open(StoreOptions options) {
  Result<std::unique_ptr<store::ChunkStore>> opened = store::ChunkStore::open(std::move(options));
  if (!opened) return opened.error();
  return std::unique_ptr<Store>(*std::move(opened));
}

namespace store {
namespace {

// The slowest link on which a batch is still waited for; deadlines grow with bytes by this.
constexpr uint64_t kSlowestBytesPerMs = 50'000;

constexpr uint64_t kPlannedByCallerMax = 64;
constexpr size_t kMetadataBytesMax = 64 << 10;
constexpr size_t kBatchItemsMax = 1 << 20;
constexpr size_t kInfoCommandBytesMax = 1024;

}  // namespace

Result<client::ClientOptions> client_options(const StoreOptions& options) {
  client::ClientOptions out;
  Result<std::vector<wire::Endpoint>> seeds = wire::parse_endpoints(options.hosts, 3000);
  if (!seeds) return seeds.error().with_context("hosts");
  out.seeds = *std::move(seeds);
  out.ns = options.ns;
  out.cluster_name = options.cluster_name;
  out.user = options.username;
  out.password = Secret(options.password);
  out.auth_mode = options.auth_mode;
  out.tls = options.tls;
  out.tls_name = options.tls_name;
  out.use_alternate_addresses = options.use_services_alternate;
  switch (options.replica) {
    case Replica::master:
      out.replica = client::ReplicaPolicy::master;
      break;
    case Replica::sequence:
      out.replica = client::ReplicaPolicy::sequence;
      break;
    case Replica::any:
      out.replica = client::ReplicaPolicy::any;
      break;
    case Replica::prefer_rack:
      out.replica = client::ReplicaPolicy::prefer_rack;
      break;
  }
  out.rack_id = options.rack_id;
  out.hedge_reads = options.hedge_reads;
  out.io_threads = options.num_io_threads;
  out.connections_per_node_max = options.max_connections_per_node;
  out.bytes_in_flight_max = options.max_bytes_in_flight;
  out.connect_timeout = options.connect_timeout;
  out.start_timeout = options.start_timeout;
  out.read_attempt_timeout = options.request_timeout;
  out.write_attempt_timeout = options.write_request_timeout;
  out.tend_interval = options.tend_interval;
  return out;
}

namespace {

Status check(const StoreOptions& options) {
  if (options.set_name.size() > kSetBytesMax) {
    return {Code::invalid, "set_name: longer than " + std::to_string(kSetBytesMax) + " bytes"};
  }
  if (options.replica == Replica::prefer_rack && options.rack_id < 0) {
    return {Code::invalid, "rack_id: needed for replica \"prefer_rack\""};
  }
  if (options.segment_ttl_grace_seconds < 0) {
    return {Code::invalid, "segment_ttl_grace_seconds: negative"};
  }
  const std::pair<const char*, milliseconds> times[] = {
      {"read_timeout_ms", options.read_timeout},
      {"write_timeout_ms", options.write_timeout},
      {"request_timeout_ms", options.request_timeout},
      {"write_request_timeout_ms", options.write_request_timeout},
      {"connect_timeout_ms", options.connect_timeout},
      {"tend_interval_ms", options.tend_interval}};
  for (const auto& [name, value] : times) {
    if (value.count() < 1) return {Code::invalid, std::string(name) + ": expected at least 1"};
  }
  if (options.start_timeout.count() < 0) return {Code::invalid, "start_timeout_ms: negative"};
  if (options.max_bytes_in_flight < 1) return {Code::invalid, "max_bytes_in_flight: expected > 0"};
  if (options.max_store_bytes_queued < 1) {
    return {Code::invalid, "max_store_bytes_queued: expected > 0"};
  }
  return {};
}

constexpr milliseconds kStartPause{100};

bool is_away(const Status& error) {
  return error.code() == Code::unavailable || error.code() == Code::timeout;
}

}  // namespace

Result<std::unique_ptr<ChunkStore>> ChunkStore::open(StoreOptions options) {
  AEROKV_TRY(check(options));
  Result<client::ClientOptions> client_opts = client_options(options);
  if (!client_opts) return client_opts.error();
  wipe(options.password);
  wipe(options.tls.key_password);
  const TimePoint give_up = SteadyClock::now() + options.start_timeout;
  Result<std::unique_ptr<client::Client>> client = client::Client::connect(*client_opts);
  wipe(client_opts->tls.key_password);
  if (!client) return client.error();
  Result<std::shared_ptr<const NamespaceLimits>> limits = discover_limits(**client, options);
  // Nodes that answered a moment ago may be away again: a cluster that starts is restless.
  while (!limits && is_away(limits.error()) && SteadyClock::now() < give_up) {
    std::this_thread::sleep_for(kStartPause);
    limits = discover_limits(**client, options);
  }
  if (!limits) return limits.error();
  auto context = std::make_shared<Context>();
  context->options = std::move(options);
  context->set_limits(*std::move(limits));
  context->client = *std::move(client);
  if (context->limits()->stop_writes)
    context->admission.stop_writes("a node says stop_writes=true");
  return std::unique_ptr<ChunkStore>(new ChunkStore(std::move(context)));
}

Status check_info_command(const std::string& command) {
  // A line feed would end the command and start another one.
  const bool is_plain =
      std::all_of(command.begin(), command.end(), [](char c) { return c >= ' ' && c <= '~'; });
  if (!command.empty() && command.size() <= kInfoCommandBytesMax && is_plain) return {};
  return {Code::invalid, "info command: expected 1 to " + std::to_string(kInfoCommandBytesMax) +
                             " printable characters"};
}

ChunkStore::~ChunkStore() {
  close();
}

void ChunkStore::close() {
  context_->admission.close();  // the client's end must not begin what waits
  context_->client->close();
}

TimePoint ChunkStore::deadline(Operation operation, const std::vector<Item>& items) const {
  const StoreOptions& options = context_->options;
  const TimePoint now = SteadyClock::now();
  if (options.batch_timeout.count() > 0) return now + options.batch_timeout;
  // Loads do not wait for stores, nor stores for loads.
  const bool is_put = operation == Operation::put;
  uint64_t bytes = (is_put ? context_->open_store_bytes : context_->open_load_bytes)
                       .load(std::memory_order_relaxed);
  for (const Item& item : items) bytes += item.target.size() + item.payload.size();
  const bool is_read = operation == Operation::get || operation == Operation::exists;
  return now + (is_read ? options.read_timeout : options.write_timeout) +
         milliseconds(static_cast<int64_t>(bytes / kSlowestBytesPerMs));
}

Status ChunkStore::check_item(const Item& item) {
  AEROKV_TRY(check_logical_key(item.key));
  if (item.payload.size() > kChunkBytesMax || item.target.size() > kChunkBytesMax) {
    return {Code::invalid, "more than " + std::to_string(kChunkBytesMax) + " bytes"};
  }
  if (item.metadata.size() > kMetadataBytesMax) {
    return {Code::invalid, "metadata of " + std::to_string(item.metadata.size()) +
                               " bytes, limit " + std::to_string(kMetadataBytesMax)};
  }
  if (item.serde.size() > kSerdeTagBytesMax) {
    return {Code::invalid, "serde of " + std::to_string(item.serde.size()) + " bytes, limit " +
                               std::to_string(kSerdeTagBytesMax)};
  }
  const int64_t ttl = item.ttl_seconds.value_or(0);
  if (ttl < -2 || ttl > int64_t{kTtlSecondsMax}) {
    return {Code::invalid, "ttl_seconds " + std::to_string(ttl) + ", expected -2 to " +
                               std::to_string(kTtlSecondsMax)};
  }
  return {};
}

/// Takes out the items that cannot be done, so that they fail alone; the result reports them in
/// their places.
BatchDone ChunkStore::set_refused_aside(std::vector<Item>& items, BatchDone done) {
  const auto is_refused = [](const Item& item) { return !check_item(item).ok(); };
  if (std::none_of(items.begin(), items.end(), is_refused)) return done;
  std::vector<Status> statuses;
  std::vector<Item> accepted;
  for (size_t i = 0; i < items.size(); ++i) {
    statuses.push_back(check_item(items[i]).with_context("item " + std::to_string(i)));
    if (statuses.back().ok()) accepted.push_back(std::move(items[i]));
  }
  items = std::move(accepted);
  return [statuses = std::move(statuses), done = std::move(done)](std::vector<ItemResult> results) {
    std::vector<ItemResult> all(statuses.size());
    size_t next = 0;
    for (size_t i = 0; i < all.size(); ++i) {
      if (statuses[i].ok()) {
        all[i] = std::move(results[next++]);
      } else {
        all[i].status = statuses[i];
      }
    }
    done(std::move(all));
  };
}

void ChunkStore::submit(Operation operation, std::vector<Item> items, BatchDone done,
                        std::optional<TimePoint> end) {
  if (items.size() > kBatchItemsMax) {
    const Status status(Code::invalid, "batch of " + std::to_string(items.size()) +
                                           " keys, limit " + std::to_string(kBatchItemsMax));
    std::vector<ItemResult> results(items.size());
    for (ItemResult& result : results) result.status = status;
    return done(std::move(results));
  }
  done = set_refused_aside(items, std::move(done));
  if (items.empty()) return done({});
  TimePoint due = deadline(operation, items);
  if (end) due = std::min(due, *end);
  if (operation == Operation::get && context_->options.refresh_ttl_on_read) {
    done = refresh_after(items, std::move(done));
  }
  const size_t count = items.size();
  const auto batch =
      std::make_shared<Batch>(context_, operation, std::move(items), due, std::move(done));
  if (operation == Operation::put) return context_->admission.submit(batch);
  // Hashing keys takes about a microsecond for each record: big batches are planned by the I/O
  // threads, side by side, so that the caller goes on at once.
  const uint64_t records =
      count + batch->payload_bytes() / context_->limits()->segments.target_bytes;
  const size_t threads = static_cast<size_t>(context_->options.num_io_threads);
  const size_t shares = records < kPlannedByCallerMax ? 1 : std::min(threads, count);
  for (size_t i = 0; i < shares; ++i) {
    const size_t from = count * i / shares;
    const size_t to = count * (i + 1) / shares;
    if (records < kPlannedByCallerMax) {
      start(batch, operation, from, to);
    } else {
      context_->client->post([batch, operation, from, to] { start(batch, operation, from, to); });
    }
  }
}

void ChunkStore::start(const std::shared_ptr<Batch>& batch, Operation operation, size_t from,
                       size_t to) {
  if (operation == Operation::exists) return start_exists(batch, from, to);
  // The other operations without payload have steps that belong together: one share does all.
  if (operation == Operation::remove) return from == 0 ? start_remove(batch) : void();
  if (operation == Operation::touch) return from == 0 ? start_touch(batch) : void();
  std::vector<client::Command*> commands;
  for (size_t i = from; i < to; ++i) {
    ObjectGet::start(batch, i, commands);
  }
  if (!commands.empty()) batch->context().client->submit(commands);
}

/// Loaded objects live on for a full TTL; a batch of touches follows behind the load, which does
/// not wait for it.
BatchDone ChunkStore::refresh_after(const std::vector<Item>& items, BatchDone done) {
  std::vector<std::string> keys;
  keys.reserve(items.size());
  for (const Item& item : items) keys.push_back(item.key);
  return [context = context_, keys = std::move(keys),
          done = std::move(done)](std::vector<ItemResult> results) {
    std::vector<Item> touched;
    for (size_t i = 0; i < results.size(); ++i) {
      if (results[i].outcome == Outcome::hit) touched.emplace_back().key = keys[i];
    }
    if (!touched.empty()) {
      const TimePoint due = SteadyClock::now() + context->options.write_timeout;
      start_touch(std::make_shared<Batch>(context, Operation::touch, std::move(touched), due,
                                          [](const std::vector<ItemResult>&) {}));
    }
    done(std::move(results));
  };
}

void ChunkStore::report_damaged(const std::string& key) {
  context_->damaged.add(context_->meta_digest(key));
}

Result<std::vector<ObjectInfo>> ChunkStore::list(uint32_t& cursor, size_t count) {
  return list_objects(*context_, cursor, count);
}

Result<ObjectDetails> ChunkStore::inspect(const std::string& key) {
  return inspect_object(context_, key);
}

Result<std::vector<NodeAnswer>> ChunkStore::info(const std::string& command) {
  AEROKV_TRY(check_info_command(command));
  std::vector<NodeAnswer> answers;
  for (client::NodeInfo& node :
       context_->client->info_all(command, context_->options.connect_timeout)) {
    answers.push_back({std::move(node.node), std::move(node.status), std::move(node.value)});
  }
  if (context_->client->is_closed()) return Status(Code::closed, "info: the store is closed");
  return answers;
}

StoreStats ChunkStore::stats() const {
  const auto read = [](const auto& counter) { return counter.load(std::memory_order_relaxed); };
  StoreStats stats;
  for (size_t i = 0; i < kOperations; ++i) {
    const Counters::PerOperation& from = context_->counters.operations[i];
    StoreStats::PerOperation& to = stats.operations[i];
    to.items = read(from.items);
    to.hits = read(from.hits);
    to.misses = read(from.misses);
    to.errors = read(from.errors);
    to.bytes = read(from.bytes);
    to.round_trips = read(from.round_trips);
    // Objects may have begun and ended between the two reads.
    to.in_flight = std::max(read(from.begun), to.items) - to.items;
    for (size_t code = 0; code < kCodes; ++code) {
      to.errors_by_code[code] = read(from.errors_by_code[code]);
    }
    to.batch_microseconds = from.batch_microseconds.snapshot();
  }
  for (size_t i = 0; i < kMissReasons; ++i) {
    stats.misses_by_reason[i] = read(context_->counters.misses_by_reason[i]);
  }
  for (size_t i = 0; i < kShedReasons; ++i) {
    stats.stores_shed_by_reason[i] = read(context_->counters.stores_shed_by_reason[i]);
  }
  const Admission::Snapshot admission = context_->admission.snapshot();
  stats.store_bytes_queued = admission.bytes;
  stats.store_bytes_queued_peak = admission.bytes_peak;
  stats.stop_writes = admission.is_stopped ? 1 : 0;
  const client::ClientStats& client = context_->client->stats();
  stats.engine = context_->client->engine_id();
  stats.requests = read(client.attempts);
  stats.retries = read(client.retries);
  stats.stalls = read(client.stalls);
  stats.hedges = read(client.hedges);
  stats.hedges_won = read(client.hedges_won);
  stats.probes = read(client.probes);
  stats.connection_errors = read(client.connection_errors);
  stats.bytes_in_flight = read(client.bytes_in_flight);
  stats.bytes_in_flight_peak = read(client.bytes_in_flight_peak);
  stats.stored_segment_counts = context_->counters.stored_segment_counts.snapshot();
  stats.stored_segment_bytes = context_->counters.stored_segment_bytes.snapshot();
  stats.damaged_keys = context_->damaged.size();
  if (context_->client->is_closed()) return stats;
  const std::shared_ptr<const client::ClusterMap> map = context_->client->map();
  for (const client::NodePtr& node : map->nodes) {
    stats.nodes.push_back({node->name(), node->endpoint().to_string(), node->is_suspect(),
                           node->is_suspect() && node->is_probed(), read(node->requests),
                           read(node->failures), read(node->connections_open),
                           node->stores.bytes()});
  }
  return stats;
}

StoreLimits ChunkStore::limits() const {
  const std::shared_ptr<const NamespaceLimits> found = context_->limits();
  const NamespaceLimits& limits = *found;
  return {limits.record_bytes_max,
          std::string(limits.record_bytes_source),
          limits.segments.target_bytes,
          limits.segments.max_bytes,
          limits.segments.min_bytes,
          limits.segments.single_record_bytes,
          limits.warnings};
}

}  // namespace store
}  // namespace aerokv
