// SPDX-License-Identifier: Apache-2.0
// Statistics of namespaces, sets and nodes as info texts.
#include <array>
#include <unordered_map>
#include <utility>

#include "devserver/info.h"

namespace aerokv::devserver {
namespace {

using Pair = std::pair<std::string_view, std::string_view>;

constexpr Pair kTemplate[] = {
#include "devserver/namespace_template.inc"
};

using Values = std::unordered_map<std::string_view, std::string>;

template <typename T>
std::string text_of(const std::atomic<T>& value) {
  return std::to_string(value.load(std::memory_order_relaxed));
}

std::string truncate_text(uint64_t truncate_ns) {
  if (truncate_ns == 0) return "0";
  return std::to_string(truncate_ns / 1'000'000 - uint64_t{kServerEpochSeconds} * 1000);
}

void add_counters(NamespaceCounters& c, Values& values) {
  values["client_read_success"] = text_of(c.read_success);
  values["client_read_not_found"] = text_of(c.read_not_found);
  values["client_read_error"] = text_of(c.read_error);
  values["client_write_success"] = text_of(c.write_success);
  values["client_write_error"] = text_of(c.write_error);
  values["client_delete_success"] = text_of(c.delete_success);
  values["client_delete_not_found"] = text_of(c.delete_not_found);
  values["client_delete_error"] = text_of(c.delete_error);
  values["batch_sub_read_success"] = text_of(c.batch_read_success);
  values["batch_sub_read_not_found"] = text_of(c.batch_read_not_found);
  values["batch_sub_read_error"] = text_of(c.batch_read_error);
  values["batch_sub_write_success"] = text_of(c.batch_write_success);
  values["batch_sub_write_error"] = text_of(c.batch_write_error);
  values["batch_sub_delete_success"] = text_of(c.batch_delete_success);
  values["batch_sub_delete_not_found"] = text_of(c.batch_delete_not_found);
  values["batch_sub_delete_error"] = text_of(c.batch_delete_error);
  values["client_proxy_complete"] = text_of(c.proxy_complete);
  values["client_proxy_timeout"] = text_of(c.proxy_timeout);
  values["expired_objects"] = text_of(c.expired);
  values["fail_record_too_big"] = text_of(c.record_too_big);
  values["fail_generation"] = text_of(c.generation_error);
  values["pi_query_long_basic_complete"] = text_of(c.queries);
}

void add_sizes(Namespace& ns, int node, Values& values) {
  const int64_t used = ns.counters(node).used_bytes.load(std::memory_order_relaxed);
  const auto total = static_cast<int64_t>(ns.size_bytes());
  const int64_t percent = total == 0 ? 100 : std::min<int64_t>(100, used * 100 / total);
  values["data_total_bytes"] = std::to_string(total);
  values["storage-engine.data-size"] = std::to_string(total);
  values["data_used_bytes"] = std::to_string(used);
  values["data_used_pct"] = std::to_string(percent);
  values["data_avail_pct"] = std::to_string(100 - percent);
  const bool stopped = percent >= 100 || ns.settings(node).stop_writes;
  values["stop_writes"] = stopped ? "true" : "false";
  values["index_used_bytes"] =
      std::to_string(64 * ns.counters(node).records.load(std::memory_order_relaxed));
}

void add_settings(Namespace& ns, int node, Values& values) {
  const NamespaceSettings& settings = ns.settings(node);
  values["max-record-size"] = text_of(settings.max_record_bytes);
  values["default-ttl"] = text_of(settings.default_ttl_s);
  values["nsup-period"] = text_of(settings.nsup_period_s);
  values["allow-ttl-without-nsup"] = settings.allow_ttl_without_nsup ? "true" : "false";
  values["current_time"] = std::to_string(server_seconds(unix_nanoseconds()));
  values["truncate_lut"] = truncate_text(ns.truncate_ns.load());
  values["truncating"] = ns.truncating ? "true" : "false";
}

}  // namespace

std::string set_text(Set& set, Namespace& ns, int node) {
  const auto at = static_cast<size_t>(node);
  return "objects=" + text_of(set.objects[at]) +
         ":tombstones=0:data_used_bytes=" + text_of(set.bytes[at]) +
         ":truncate_lut=" + truncate_text(set.truncate_ns.load()) +
         ":sindexes=0:index_populating=false:truncating=" + (ns.truncating ? "true" : "false") +
         ":default-read-touch-ttl-pct=0:default-ttl=0:disable-eviction=false:enable-index=false"
         ":stop-writes-count=0:stop-writes-size=0";
}

std::string namespace_text(Service& service, Namespace& ns, int node) {
  Values values;
  add_counters(ns.counters(node), values);
  add_sizes(ns, node, values);
  add_settings(ns, node, values);
  service.cluster.add_statistics(ns, node, values);
  std::string text;
  text.reserve(14 << 10);
  for (const auto& [key, recorded] : kTemplate) {
    const auto it = values.find(key);
    if (!text.empty()) text += ';';
    text += key;
    text += '=';
    text += it == values.end() ? recorded : std::string_view(it->second);
  }
  return text;
}

std::string statistics_text(Service& service, int node) {
  const auto at = static_cast<size_t>(node);
  const NodeCounters& counters = service.counters[at];
  const Cluster& cluster = service.cluster;
  int64_t objects = 0;
  for (Namespace& ns : service.namespaces) objects += ns.counters(node).records.load();
  const bool member = cluster.is_member(node);
  const std::string key = cluster.stable_key(node, true);
  return "cluster_size=" + std::to_string(cluster.cluster_size(node)) +
         ";cluster_key=" + (key.empty() ? "0" : key) +
         ";cluster_generation=" + std::to_string(cluster.rebalance_generation(node)) +
         ";cluster_principal=" + (member ? cluster.principal_id() : "0") +
         ";cluster_integrity=" + (member ? "true" : "false") +
         ";cluster_is_member=" + (member ? "true" : "false") +
         ";uptime=" + std::to_string(service.uptime_seconds()) +
         ";objects=" + std::to_string(objects) +
         ";tombstones=0;client_connections=" + text_of(counters.connections_now) +
         ";client_connections_opened=" + text_of(counters.connections_opened) +
         ";migrate_allowed=" + (member ? "true" : "false") +
         ";migrate_partitions_remaining=" + std::to_string(cluster.migrations_left(node));
}

}  // namespace aerokv::devserver
