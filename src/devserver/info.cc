// SPDX-License-Identifier: Apache-2.0
#include "devserver/info.h"

#include <algorithm>
#include <charconv>

#include "wire/result.h"

namespace aerokv::devserver {
namespace {

namespace result = wire::result;

constexpr std::string_view kFeatures =
    "batch-any;batch-index;blob-bits;cdt-index;cdt-list;cdt-map;cluster-stable;float;geo;"
    "sindex-exists;peers;pipelining;pquery;pscans;query-show;relaxed-sc;replicas;replicas-all;"
    "replicas-master;replicas-max;truncate-namespace;udf";
constexpr std::string_view kCommunity = "Aerospike Community Edition";
constexpr std::string_view kEnterprise = "Aerospike Enterprise Edition";
constexpr std::string_view kUnrecognized = "ERROR:4:unrecognized command";
constexpr std::string_view kEnterpriseOnly = "ERROR:25:enterprise only";
constexpr std::string_view kOk = "ok";

constexpr uint64_t kEpochNs = uint64_t{kServerEpochSeconds} * 1'000'000'000ULL;

std::string base64(const std::array<uint8_t, kPartitionCount / 8>& bytes) {
  constexpr std::string_view kDigits =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string text;
  text.reserve(684);
  for (size_t i = 0; i < bytes.size(); i += 3) {
    const size_t left = std::min<size_t>(3, bytes.size() - i);
    uint32_t word = 0;
    for (size_t k = 0; k < 3; ++k) word = word << 8 | (k < left ? bytes[i + k] : 0U);
    for (size_t k = 0; k < 4; ++k) {
      text += k <= left ? kDigits[word >> (18 - 6 * k) & 63] : '=';
    }
  }
  return text;
}

std::optional<uint64_t> parse_number(std::string_view text) {
  uint64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc{} || end != text.data() + text.size()) return std::nullopt;
  return value;
}

std::optional<uint64_t> scaled(std::string_view text, std::string_view units,
                               std::initializer_list<uint64_t> factors) {
  uint64_t factor = 1;
  if (!text.empty()) {
    const auto unit = units.find(text.back());
    if (unit != std::string_view::npos) {
      factor = factors.begin()[unit / 2];
      text.remove_suffix(1);
    }
  }
  const auto value = parse_number(text);
  if (!value || *value > UINT64_MAX / factor) return std::nullopt;
  return *value * factor;
}

}  // namespace

InfoParameters parse_info_parameters(std::string_view text) {
  InfoParameters parameters;
  while (!text.empty()) {
    const std::string_view item = text.substr(0, text.find(';'));
    text.remove_prefix(std::min(text.size(), item.size() + 1));
    const size_t equals = item.find('=');
    if (equals != std::string_view::npos) {
      parameters[item.substr(0, equals)] = item.substr(equals + 1);
    }
  }
  return parameters;
}

std::optional<uint64_t> parse_size(std::string_view text) {
  return scaled(text, "KkMmGgTt", {1ULL << 10, 1ULL << 20, 1ULL << 30, 1ULL << 40});
}

std::optional<uint64_t> parse_seconds(std::string_view text) {
  return scaled(text, "SsMmHhDd", {1, 60, 3600, 86400});
}

std::string info_error(int code, std::string_view text) {
  std::string error = "ERROR:";
  if (code != 1) error += std::to_string(code);
  error += ':';
  error += text;
  return error;
}

/// Answers the lines of one info message.
class InfoText {
 public:
  InfoText(Service& service, Client& client)
      : service_(service), cluster_(service.cluster), client_(client), node_(client.node) {}

  std::string line(std::string_view command) {
    const size_t colon = command.find(':');
    const std::string_view head = command.substr(0, colon);
    const std::string_view rest =
        colon == std::string_view::npos ? std::string_view{} : command.substr(colon + 1);
    if (head.starts_with("namespace/")) return namespace_line(head.substr(10));
    if (head == "sets" || head.starts_with("sets/")) return sets_line(head);
    if (auto text = about_node(head)) return *text;
    if (auto text = about_cluster(head, rest)) return *text;
    return order(head, rest);
  }

 private:
  template <typename TextOf>
  std::string for_each_namespace(TextOf text_of) {
    std::string text;
    for (Namespace& ns : service_.namespaces) text += (text.empty() ? "" : ";") + text_of(ns);
    return text;
  }

  /// That which has all that was asked for.
  [[nodiscard]] std::string_view edition() const {
    const bool enterprise =
        service_.users.enabled() || service_.options.has_tls() || cluster_.has_racks();
    return enterprise ? kEnterprise : kCommunity;
  }

  /// Without TLS, as in the Community Edition, only the clear kinds are known.
  std::optional<AddressKind> address_kind(std::string_view text) {
    if (text == "clear-std") return AddressKind::clear;
    if (text == "clear-alt") return AddressKind::clear_alternate;
    if (!service_.options.has_tls()) return std::nullopt;
    if (text == "tls-std") return AddressKind::tls;
    if (text == "tls-alt") return AddressKind::tls_alternate;
    return std::nullopt;
  }

  std::optional<std::string> about_node(std::string_view head) {
    const Options& options = service_.options;
    if (head == "node") return cluster_.id(node_);
    if (head == "build") return options.build;
    if (head == "status") return std::string(kOk);
    if (head == "features") return std::string(kFeatures);
    if (head == "edition") return std::string(edition());
    if (head == "version") return std::string(edition()) + " build " + options.build;
    if (head == "release") {
      return "edition=" + std::string(edition()) + ";version=" + options.build +
             ";os=aerokv-devserver;arch=any;sha=0000000000000000000000000000000000000000";
    }
    if (head == "cluster-name") return options.cluster_name;
    if (head == "namespaces") {
      return for_each_namespace([](Namespace& ns) { return ns.name(); });
    }
    if (head == "partitions") return std::to_string(kPartitionCount);
    if (head == "service") return cluster_.address(node_, AddressKind::clear);
    if (head.starts_with("service-")) {
      if (const auto kind = address_kind(head.substr(8))) return cluster_.address(node_, *kind);
    }
    if (head == "statistics") return statistics_text(service_, node_);
    return std::nullopt;
  }

  std::optional<std::string> about_cluster(std::string_view head, std::string_view rest) {
    if (head == "partition-generation") return std::to_string(cluster_.partition_generation(node_));
    if (head == "peers-generation") return std::to_string(cluster_.peers_generation(node_));
    if (head == "rebalance-generation") {
      return std::to_string(cluster_.rebalance_generation(node_));
    }
    if (const auto kind =
            head.starts_with("peers-") ? address_kind(head.substr(6)) : std::nullopt) {
      const InfoParameters parameters = parse_info_parameters(rest);
      std::optional<int64_t> since;
      if (const auto it = parameters.find("generation"); it != parameters.end()) {
        since = static_cast<int64_t>(parse_number(it->second).value_or(0));
      }
      return cluster_.peers(node_, since, *kind);
    }
    if (head == "rack-ids" && cluster_.has_racks()) {
      const std::string rack = ":" + std::to_string(cluster_.rack(node_));
      return for_each_namespace([&](Namespace& ns) { return ns.name() + rack; });
    }
    if (head == "racks" && cluster_.has_racks()) {
      const std::string racks = ":" + cluster_.racks(node_);
      return for_each_namespace([&](Namespace& ns) { return "ns=" + ns.name() + racks; });
    }
    if (head == "replicas") {
      const InfoParameters parameters = parse_info_parameters(rest);
      const auto it = parameters.find("max");
      const uint64_t max = it == parameters.end() ? 0 : parse_number(it->second).value_or(0);
      return replicas_line(max == 0 ? kNodesMax : static_cast<int>(std::min<uint64_t>(max, 16)),
                           "0,", true);
    }
    if (head == "replicas-master") return replicas_line(1, "", false);
    if (head == "replicas-all") return replicas_line(kNodesMax, "", true);
    if (head == "cluster-stable") return stable_line(parse_info_parameters(rest));
    return std::nullopt;
  }

  std::string replicas_line(int max, const std::string& regime, bool with_count) {
    const auto maps = cluster_.bitmaps(node_, max);
    std::string body = regime;
    if (with_count) body += std::to_string(maps.size()) + ",";
    for (size_t i = 0; i < maps.size(); ++i) {
      if (i > 0) body += ',';
      body += base64(maps[i]);
    }
    return for_each_namespace([&](Namespace& ns) { return ns.name() + ":" + body; });
  }

  std::string stable_line(const InfoParameters& parameters) {
    const auto ignore = parameters.find("ignore-migrations");
    std::string key = cluster_.stable_key(
        node_, ignore != parameters.end() && (ignore->second == "true" || ignore->second == "yes"));
    if (key.empty()) return info_error(result::kClusterKeyMismatch, "unstable cluster");
    const auto size = parameters.find("size");
    if (size != parameters.end() &&
        parse_number(size->second) != static_cast<uint64_t>(cluster_.cluster_size(node_))) {
      return info_error(result::kClusterKeyMismatch, "cluster not specified size");
    }
    return key;
  }

  std::string namespace_line(std::string_view name) {
    Namespace* ns = service_.find_namespace(name);
    return ns == nullptr ? "type=unknown" : namespace_text(service_, *ns, node_);
  }

  std::string sets_line(std::string_view head) {
    head.remove_prefix(std::min<size_t>(head.size(), 5));
    const std::string_view ns_name = head.substr(0, head.find('/'));
    std::string text;
    bool known = ns_name.empty();
    for (Namespace& ns : service_.namespaces) {
      if (!ns_name.empty() && ns.name() != ns_name) continue;
      known = true;
      if (ns_name.size() < head.size()) {
        Set* set = ns.find_set(head.substr(ns_name.size() + 1));
        return set == nullptr ? std::string() : set_text(*set, ns, node_) + ";";
      }
      for (Set* set : ns.sets()) {
        text += "ns=" + ns.name() + ":set=" + set->name + ":" + set_text(*set, ns, node_) + ";";
      }
    }
    return known ? text : "ns_type=unknown";
  }

  // Commands that change something, and those of the enterprise edition.
  std::string order(std::string_view head, std::string_view rest) {
    if (head == "user-agent-set") {
      if (client_.user_agent_set) return info_error(result::kParameter, "already set");
      client_.user_agent_set = true;
      return std::string(kOk);
    }
    if (head == "truncate" || head == "truncate-namespace") {
      return truncate(parse_info_parameters(rest), head == "truncate");
    }
    if (head == "set-config") return set_config(parse_info_parameters(rest));
    if (head == "query-show" || head == "services" || head == "services-alumni") return {};
    if (head == "query-abort") return info_error(result::kNotFound, "query not found");
    if (head == "recluster") {
      if (!may(Action::configure)) return info_error(result::kRoleViolation, "role violation");
      return cluster_.is_principal(node_) ? std::string(kOk) : "ignored-by-non-principal";
    }
    if (head == "rack-ids" || head == "racks" || head == "quiesce" || head == "quiesce-undo" ||
        head == "peers-tls-std" || head == "peers-tls-alt" || head == "service-tls-std" ||
        head == "service-tls-alt") {
      return std::string(kEnterpriseOnly);
    }
    return std::string(kUnrecognized);
  }

  bool may(Action action) const { return service_.users.check(client_.session, action) == 0; }

  std::string truncate(const InfoParameters& parameters, bool one_set) {
    const auto ns_name = parameters.find("namespace");
    if (ns_name == parameters.end()) return info_error(result::kNamespace, "missing 'namespace'");
    const auto set_name = parameters.find("set");
    if (one_set && set_name == parameters.end()) {
      return info_error(result::kParameter, "missing 'set'");
    }
    if (!may(Action::truncate)) return info_error(result::kRoleViolation, "role violation");
    const uint64_t now_ns = unix_nanoseconds();
    uint64_t lut_ns = now_ns;
    if (const auto lut = parameters.find("lut"); lut != parameters.end()) {
      const auto value = parse_number(lut->second);
      if (!value) return info_error(result::kParameter, "bad 'lut'");
      if (*value < kEpochNs) return info_error(result::kParameter, "would truncate to 0");
      if (*value > now_ns) return info_error(result::kParameter, "would truncate in the future");
      lut_ns = *value;
    }
    Namespace* ns = service_.find_namespace(ns_name->second);
    if (ns == nullptr) return std::string(kOk);  // the real server does not check the name
    std::atomic<uint64_t>* target = &ns->truncate_ns;
    if (one_set) {
      Set* set = ns->find_set(set_name->second);
      if (set == nullptr) return std::string(kOk);
      target = &set->truncate_ns;
    }
    uint64_t before = target->load();
    while (before < lut_ns && !target->compare_exchange_weak(before, lut_ns)) {
    }
    ns->truncating = true;
    service_.wake_housekeeping();
    return std::string(kOk);
  }

  std::string set_config(const InfoParameters& parameters) {
    const auto value = [&](std::string_view key) {
      const auto it = parameters.find(key);
      return it == parameters.end() ? std::string_view{} : it->second;
    };
    if (!may(Action::configure)) return info_error(result::kRoleViolation, "role violation");
    if (value("context") != "namespace") return info_error(result::kParameter, "bad 'context'");
    const std::string_view name = value("namespace").empty() ? value("id") : value("namespace");
    Namespace* ns = service_.find_namespace(name);
    if (ns == nullptr) return info_error(result::kNamespace, "unknown namespace");
    for (const auto& [key, text] : parameters) {
      if (key == "context" || key == "namespace" || key == "id") continue;
      if (!set_one(ns->settings(node_), key, text)) {
        return info_error(result::kParameter, "bad '" + std::string(key) + "'");
      }
    }
    return std::string(kOk);
  }

  static bool set_one(NamespaceSettings& settings, std::string_view key, std::string_view text) {
    if (key == "max-record-size") {
      const auto bytes = parse_size(text);
      if (!bytes || *bytes < 64 || *bytes > kRecordBytesMax) return false;
      settings.max_record_bytes = static_cast<uint32_t>(*bytes);
    } else if (key == "default-ttl") {
      const auto seconds = parse_seconds(text);
      if (!seconds || *seconds > kTtlSecondsMax) return false;
      settings.default_ttl_s = static_cast<uint32_t>(*seconds);
    } else if (key == "nsup-period") {
      const auto seconds = parse_seconds(text);
      if (!seconds || *seconds > UINT32_MAX) return false;
      settings.nsup_period_s = static_cast<uint32_t>(*seconds);
    } else if (key == "allow-ttl-without-nsup") {
      if (text != "true" && text != "false") return false;
      settings.allow_ttl_without_nsup = text == "true";
    } else {
      return false;
    }
    return true;
  }

  Service& service_;
  Cluster& cluster_;
  Client& client_;
  const int node_;
};

void Service::info(Client& client, Bytes body, Answer& out) {
  const size_t at = out.begin_frame();
  wire::UnitWriter writer = out.writer();
  if (users.check(client.session, Action::login_only) != result::kOk) {
    writer.bytes(as_bytes("ERROR:80:not authenticated\n"));
    return out.end_frame(at, wire::MessageType::info);
  }
  constexpr std::string_view kSummary =
      "features\nnode\nedition\nbuild\nversion\nstatistics\npartition-generation\n";
  std::string_view text = body.empty() ? kSummary : as_text(body);
  InfoText info_text(*this, client);
  // A last line without line feed is no command.
  for (size_t end = text.find('\n'); end != std::string_view::npos; end = text.find('\n')) {
    const std::string_view command = text.substr(0, end);
    writer.bytes(as_bytes(command));
    writer.bytes(as_bytes("\t"));
    writer.bytes(as_bytes(info_text.line(command)));
    writer.bytes(as_bytes("\n"));
    text.remove_prefix(end + 1);
  }
  out.end_frame(at, wire::MessageType::info);
}

}  // namespace aerokv::devserver
