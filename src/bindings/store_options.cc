// SPDX-License-Identifier: Apache-2.0
#include "bindings/store_options.h"

#include <nanobind/stl/string.h>

#include <array>
#include <optional>
#include <string>
#include <string_view>
#include <utility>

#include "aerokv/serde_store.h"
#include "bindings/errors.h"
#include "bindings/gil.h"
#include "bindings/option_reader.h"
#include "bindings/serde_config.h"
#include "bindings/store_totals.h"

namespace aerokv::bindings {
namespace {

using Name = std::string_view;

constexpr std::array<std::pair<Name, bool>, 2> kCommitLevels{{{"all", false}, {"master", true}}};
constexpr std::array<std::pair<Name, Replica>, 4> kReplicas{
    {{"master", Replica::master},
     {"sequence", Replica::sequence},
     {"any", Replica::any},
     {"prefer_rack", Replica::prefer_rack}}};
constexpr std::array<std::pair<Name, AuthMode>, 3> kAuthModes{
    {{"internal", AuthMode::internal}, {"external", AuthMode::external}, {"pki", AuthMode::pki}}};
constexpr std::array<std::pair<Name, TlsVersion>, 2> kTlsVersions{
    {{"1.2", TlsVersion::v1_2}, {"1.3", TlsVersion::v1_3}}};
constexpr std::array<std::pair<Name, Verify>, 3> kVerifies{
    {{"none", Verify::none}, {"identity", Verify::identity}, {"full", Verify::full}}};

constexpr std::array<const char*, kOperations> kOperationNames{"get", "put", "exists", "delete",
                                                               "touch"};

StoreOptions read_options(const nb::dict& fields, std::optional<SerdeConfig>& serde) {
  StoreOptions out;
  OptionReader reader(fields, "option");
  reader.take_text("hosts", out.hosts);
  reader.take_text("namespace", out.ns);
  reader.take_text("set_name", out.set_name);
  reader.take_text("username", out.username);
  reader.take_text("password", out.password);
  reader.take_choice("auth_mode", out.auth_mode, kAuthModes);
  reader.take_flag("tls_enable", out.tls.enable);
  reader.take_text("tls_name", out.tls_name);
  reader.take_text("tls_ca_file", out.tls.ca_file);
  reader.take_text("tls_ca_path", out.tls.ca_path);
  reader.take_text("tls_crl_file", out.tls.crl_file);
  reader.take_text("tls_cert_file", out.tls.cert_file);
  reader.take_text("tls_key_file", out.tls.key_file);
  reader.take_text("tls_key_password", out.tls.key_password);
  reader.take_text("tls_key_password_file", out.tls.key_password_file);
  reader.take_choice("tls_min_version", out.tls.min_version, kTlsVersions);
  reader.take_text("tls_ciphers", out.tls.ciphers);
  reader.take_text("tls_cipher_suites", out.tls.cipher_suites);
  reader.take_text("cluster_name", out.cluster_name);
  reader.take_flag("use_services_alternate", out.use_services_alternate);
  reader.take_number("target_segment_bytes", out.target_segment_bytes);
  reader.take_number("max_segment_bytes", out.max_segment_bytes);
  reader.take_number("min_segment_bytes", out.min_segment_bytes);
  reader.take_number("single_record_threshold_bytes", out.single_record_threshold_bytes);
  reader.take_number("default_ttl_seconds", out.default_ttl_seconds);
  reader.take_number("segment_ttl_grace_seconds", out.segment_ttl_grace_seconds);
  reader.take_flag("refresh_ttl_on_read", out.refresh_ttl_on_read);
  reader.take_choice("commit_level", out.commit_master_only, kCommitLevels);
  reader.take_choice("replica", out.replica, kReplicas);
  reader.take_number("rack_id", out.rack_id);
  reader.take_flag("hedge_reads", out.hedge_reads);
  reader.take_flag("send_key", out.send_key);
  reader.take_flag("enable_crc32", out.enable_crc32);
  reader.take_choice("verify", out.verify, kVerifies);
  reader.take_number("num_io_threads", out.num_io_threads);
  reader.take_number("max_connections_per_node", out.max_connections_per_node);
  reader.take_number("max_bytes_in_flight", out.max_bytes_in_flight);
  reader.take_number("max_store_bytes_queued", out.max_store_bytes_queued);
  reader.take_duration("read_timeout_ms", out.read_timeout);
  reader.take_duration("write_timeout_ms", out.write_timeout);
  reader.take_duration("batch_timeout_ms", out.batch_timeout);
  reader.take_duration("request_timeout_ms", out.request_timeout);
  reader.take_duration("write_request_timeout_ms", out.write_request_timeout);
  reader.take_duration("connect_timeout_ms", out.connect_timeout);
  reader.take_duration("start_timeout_ms", out.start_timeout);
  reader.take_duration("tend_interval_ms", out.tend_interval);
  if (const nb::object dict = reader.take("serde"); !dict.is_none()) {
    serde = read_serde_config(dict, "serde");
  }
  reader.finish();
  return out;
}

nb::dict histogram_dict(const Histogram& histogram) {
  nb::dict out;
  nb::list counts;
  for (const uint64_t count : histogram.counts) counts.append(count);
  out["counts"] = counts;
  out["sum"] = histogram.sum;
  return out;
}

// Only the codes that have been met.
nb::dict errors_dict(const std::array<uint64_t, kCodes>& errors) {
  nb::dict out;
  for (size_t i = 0; i < errors.size(); ++i) {
    if (errors[i] == 0) continue;
    const std::string_view name = code_name(static_cast<Code>(i));
    out[nb::str(name.data(), name.size())] = errors[i];
  }
  return out;
}

nb::dict node_dict(const StoreStats::NodeStats& node) {
  nb::dict out;
  out["name"] = node.name;
  out["address"] = node.address;
  out["suspect"] = node.suspect;
  out["probed"] = node.probed;
  out["requests"] = node.requests;
  out["failures"] = node.failures;
  out["connections"] = node.connections;
  out["store_window_bytes"] = node.store_window_bytes;
  return out;
}

}  // namespace

StoreOptions parse_store_options(const nb::dict& options) {
  std::optional<SerdeConfig> serde;
  return read_options(options, serde);
}

std::shared_ptr<Store> open_store(const nb::dict& options) {
  std::optional<SerdeConfig> serde;
  StoreOptions parsed = read_options(options, serde);
  std::optional<Result<std::unique_ptr<Store>>> opened;
  {
    const GilReleased released;
    opened.emplace(serde ? open_serde_store(std::move(parsed), *std::move(serde))
                         : Store::open(std::move(parsed)));
  }
  if (!opened->has_value()) raise(opened->error(), During::open);
  return count_in_totals(std::move(*opened).value());
}

nb::dict stats_dict(const StoreStats& stats) {
  nb::dict out;
  nb::dict operations;
  for (size_t i = 0; i < kOperations; ++i) {
    nb::dict counts;
    counts["items"] = stats.operations[i].items;
    counts["hits"] = stats.operations[i].hits;
    counts["misses"] = stats.operations[i].misses;
    counts["errors"] = stats.operations[i].errors;
    counts["bytes"] = stats.operations[i].bytes;
    counts["round_trips"] = stats.operations[i].round_trips;
    counts["in_flight"] = stats.operations[i].in_flight;
    counts["errors_by_code"] = errors_dict(stats.operations[i].errors_by_code);
    counts["batch_microseconds"] = histogram_dict(stats.operations[i].batch_microseconds);
    operations[kOperationNames[i]] = counts;
  }
  out["operations"] = operations;
  nb::dict misses;
  for (size_t i = 0; i < kMissReasons; ++i) {
    misses[miss_reason_name(static_cast<MissReason>(i))] = stats.misses_by_reason[i];
  }
  out["misses_by_reason"] = misses;
  nb::dict shed;
  for (size_t i = 0; i < kShedReasons; ++i) {
    shed[shed_reason_name(static_cast<ShedReason>(i))] = stats.stores_shed_by_reason[i];
  }
  out["stores_shed_by_reason"] = shed;
  out["store_bytes_queued"] = stats.store_bytes_queued;
  out["store_bytes_queued_peak"] = stats.store_bytes_queued_peak;
  out["stop_writes"] = stats.stop_writes;
  out["engine"] = stats.engine;
  out["requests"] = stats.requests;
  out["retries"] = stats.retries;
  out["stalls"] = stats.stalls;
  out["hedges"] = stats.hedges;
  out["hedges_won"] = stats.hedges_won;
  out["probes"] = stats.probes;
  out["connection_errors"] = stats.connection_errors;
  out["bytes_in_flight"] = stats.bytes_in_flight;
  out["bytes_in_flight_peak"] = stats.bytes_in_flight_peak;
  out["stored_segment_counts"] = histogram_dict(stats.stored_segment_counts);
  out["stored_segment_bytes"] = histogram_dict(stats.stored_segment_bytes);
  out["damaged_keys"] = stats.damaged_keys;
  nb::list nodes;
  for (const StoreStats::NodeStats& node : stats.nodes) nodes.append(node_dict(node));
  out["nodes"] = nodes;
  return out;
}

nb::dict limits_dict(const StoreLimits& limits) {
  nb::dict out;
  out["record_bytes_max"] = limits.record_bytes_max;
  out["record_bytes_source"] = limits.record_bytes_source;
  out["target_segment_bytes"] = limits.target_segment_bytes;
  out["max_segment_bytes"] = limits.max_segment_bytes;
  out["min_segment_bytes"] = limits.min_segment_bytes;
  out["single_record_threshold_bytes"] = limits.single_record_threshold_bytes;
  nb::list warnings;
  for (const std::string& warning : limits.warnings) warnings.append(warning);
  out["warnings"] = warnings;
  return out;
}

std::string repr_of(nb::handle self, const StoreOptions& options) {
  std::string out = "<";
  out += type_name_of(self);
  out += " hosts='" + options.hosts;
  out += "' namespace='" + options.ns;
  out += "' set_name='" + options.set_name;
  out += "'>";
  return out;
}

std::string repr_of_unopened(nb::handle self) {
  return "<" + std::string(type_name_of(self)) + ", not open>";
}

}  // namespace aerokv::bindings
