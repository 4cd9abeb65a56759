// SPDX-License-Identifier: Apache-2.0
#include "wire/info.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <optional>

#include "wire/result.h"

namespace aerokv::wire {
namespace {

constexpr size_t kBitmapBytes = kPartitionCount / 8;
constexpr size_t kBitmapTextBytes = 684;  // 512 bytes in base64, one padding character
constexpr size_t kPeersMax = 1024;
constexpr size_t kReplicationFactorMax = 255;

Status malformed(std::string_view what, std::string_view text) {
  constexpr size_t kShown = 60;
  std::string shown(text.substr(0, kShown));
  if (text.size() > kShown) shown += "...";
  return {Code::protocol, "parse " + std::string(what) + ": unexpected text \"" + shown + "\""};
}

/// Reads a text from left to right.
class Cursor {
 public:
  explicit Cursor(std::string_view text) : text_(text) {}

  [[nodiscard]] bool at_end() const { return text_.empty(); }
  [[nodiscard]] std::string_view rest() const { return text_; }

  bool take(char c) {
    if (text_.empty() || text_.front() != c) return false;
    text_.remove_prefix(1);
    return true;
  }

  /// Everything before the first of `stops`, which must exist and is not taken.
  std::optional<std::string_view> until(std::string_view stops) {
    const size_t at = text_.find_first_of(stops);
    if (at == std::string_view::npos) return std::nullopt;
    const std::string_view found = text_.substr(0, at);
    text_.remove_prefix(at);
    return found;
  }

  std::optional<std::string_view> count(size_t bytes) {
    if (text_.size() < bytes) return std::nullopt;
    const std::string_view found = text_.substr(0, bytes);
    text_.remove_prefix(bytes);
    return found;
  }

 private:
  std::string_view text_;
};

constexpr std::array<uint8_t, 256> make_base64_table() {
  std::array<uint8_t, 256> table{};
  table.fill(0xFF);
  constexpr std::string_view kAlphabet =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  for (size_t i = 0; i < kAlphabet.size(); ++i) {
    table[static_cast<uint8_t>(kAlphabet[i])] = static_cast<uint8_t>(i);
  }
  return table;
}
constexpr std::array<uint8_t, 256> kBase64 = make_base64_table();

// 683 characters carry 6 bits each: 4098 bits, of which the last two are padding.
std::optional<PartitionSet> decode_bitmap(std::string_view text) {
  if (text.size() != kBitmapTextBytes || text.back() != '=') return std::nullopt;
  std::array<uint8_t, kBitmapBytes> bytes{};
  uint32_t bits = 0;
  unsigned bit_count = 0;
  size_t filled = 0;
  for (const char c : text.substr(0, kBitmapTextBytes - 1)) {
    const uint8_t value = kBase64[static_cast<uint8_t>(c)];
    if (value == 0xFF) return std::nullopt;
    bits = bits << 6 | value;
    bit_count += 6;
    if (bit_count >= 8) {
      bit_count -= 8;
      bytes[filled++] = static_cast<uint8_t>(bits >> bit_count);
    }
  }
  PartitionSet set;
  for (uint32_t p = 0; p < kPartitionCount; ++p) {
    set[p] = (bytes[p >> 3] & (0x80U >> (p & 7))) != 0;
  }
  return set;
}

Result<Peer> parse_peer(Cursor& cursor, uint16_t default_port) {
  Peer peer;
  if (!cursor.take('[')) return malformed("peers", cursor.rest());
  const auto node = cursor.until(",");
  if (!node || node->empty() || node->size() > kNodeNameBytesMax || !cursor.take(',')) {
    return malformed("peers", cursor.rest());
  }
  peer.node = *node;
  const auto tls_name = cursor.until(",]");
  if (!tls_name || !cursor.take(',')) return malformed("peers", cursor.rest());
  peer.tls_name = *tls_name;
  if (cursor.take(']')) return peer;  // delta form: a departed node has no endpoint list
  if (!cursor.take('[')) return malformed("peers", cursor.rest());
  while (!cursor.take(']')) {
    if (!peer.endpoints.empty() && !cursor.take(',')) return malformed("peers", cursor.rest());
    std::string text;
    if (cursor.take('[')) {
      const auto address = cursor.until("]");
      if (!address || !cursor.take(']')) return malformed("peers", cursor.rest());
      text = "[" + std::string(*address) + "]";
    }
    const auto tail = cursor.until(",]");
    if (!tail) return malformed("peers", cursor.rest());
    text += *tail;
    Result<Endpoint> endpoint = parse_endpoint(text, default_port);
    // Here the name stands beside the addresses, not in them.
    if (!endpoint || !endpoint->tls_name.empty()) return malformed("peers", text);
    if (is_tls_name(peer.tls_name)) endpoint->tls_name = peer.tls_name;
    peer.endpoints.push_back(*std::move(endpoint));
  }
  if (!cursor.take(']')) return malformed("peers", cursor.rest());
  return peer;
}

}  // namespace

std::vector<InfoItem> parse_info(std::string_view body) {
  std::vector<InfoItem> items;
  while (!body.empty()) {
    const size_t end = std::min(body.find('\n'), body.size());
    const std::string_view line = body.substr(0, end);
    const size_t tab = line.find('\t');
    items.push_back(tab == std::string_view::npos
                        ? InfoItem{line, {}}
                        : InfoItem{line.substr(0, tab), line.substr(tab + 1)});
    body.remove_prefix(std::min(end + 1, body.size()));
  }
  return items;
}

Result<std::string_view> find_info(const std::vector<InfoItem>& items, std::string_view name) {
  // A connection that is not logged in gets one bare error line instead of its items.
  for (const InfoItem& item : items) {
    if (item.name != name && !item.name.starts_with("ERROR:")) continue;
    const std::string_view text = item.name == name ? item.value : item.name;
    for (const std::string_view prefix : {"ERROR:", "FAIL:", "error="}) {
      if (!text.starts_with(prefix)) continue;
      unsigned code = result::kUnknown;
      std::from_chars(text.data() + prefix.size(), text.data() + text.size(), code);
      return Status(code == result::kUnavailable ? Code::unavailable : Code::denied,
                    "info " + std::string(name) + ": " + std::string(text.substr(0, 200)),
                    static_cast<uint8_t>(code > 255 ? result::kUnknown : code));
    }
    return text;
  }
  return Status(Code::protocol, "info " + std::string(name) + ": not in the answer");
}

std::vector<std::pair<std::string_view, std::string_view>> parse_key_values(std::string_view text) {
  std::vector<std::pair<std::string_view, std::string_view>> pairs;
  while (!text.empty()) {
    const size_t end = std::min(text.find(';'), text.size());
    const std::string_view item = text.substr(0, end);
    const size_t equals = item.find('=');
    if (equals != std::string_view::npos) {
      pairs.emplace_back(item.substr(0, equals), item.substr(equals + 1));
    }
    text.remove_prefix(std::min(end + 1, text.size()));
  }
  return pairs;
}

std::string Endpoint::to_string() const {
  const bool is_v6 = host.find(':') != std::string::npos;
  return (is_v6 ? "[" + host + "]" : host) + ":" + std::to_string(port);
}

bool is_tls_name(std::string_view text) {
  return !text.empty() && text.size() <= kTlsNameBytesMax && text.front() != '.' &&
         std::all_of(text.begin(), text.end(), [](char c) {
           return c > ' ' && c <= '~' && std::string_view(",:[]").find(c) == std::string_view::npos;
         });
}

Result<Endpoint> parse_endpoint(std::string_view text, uint16_t default_port) {
  const Status bad(Code::invalid,
                   "host \"" + std::string(text.substr(0, 200)) +
                       "\": expected host:port, host, host:tls-name:port or [v6]:port");
  Endpoint endpoint{.host = {}, .port = default_port};
  std::string_view rest;
  if (text.starts_with('[')) {
    const size_t close = text.find(']');
    if (close == std::string_view::npos) return bad;
    endpoint.host = text.substr(1, close - 1);
    rest = text.substr(close + 1);
    if (!rest.empty() && rest.front() != ':') return bad;
  } else {
    const size_t colon = text.find(':');
    endpoint.host = text.substr(0, colon);
    if (colon != std::string_view::npos) rest = text.substr(colon);
  }
  if (endpoint.host.empty() || endpoint.host.size() > 255 ||
      std::any_of(endpoint.host.begin(), endpoint.host.end(), [](char c) {
        return static_cast<unsigned char>(c) <= ' ' || c == ',' || c == '[' || c == ']';
      })) {
    return bad;
  }
  if (rest.empty()) return endpoint;
  rest.remove_prefix(1);
  if (const size_t colon = rest.find(':'); colon != std::string_view::npos) {
    endpoint.tls_name = rest.substr(0, colon);
    if (!is_tls_name(endpoint.tls_name)) return bad;
    rest.remove_prefix(colon + 1);
  }
  unsigned port = 0;
  const auto [end, error] = std::from_chars(rest.data(), rest.data() + rest.size(), port);
  if (error != std::errc() || end != rest.data() + rest.size() || port == 0 || port > 65535) {
    return bad;
  }
  endpoint.port = static_cast<uint16_t>(port);
  return endpoint;
}

Result<std::vector<Endpoint>> parse_endpoints(std::string_view text, uint16_t default_port) {
  std::vector<Endpoint> endpoints;
  while (true) {
    const size_t end = std::min(text.find(','), text.size());
    std::string_view item = text.substr(0, end);
    while (item.starts_with(' ')) item.remove_prefix(1);
    while (item.ends_with(' ')) item.remove_suffix(1);
    Result<Endpoint> endpoint = parse_endpoint(item, default_port);
    if (!endpoint) return endpoint.error();
    endpoints.push_back(*std::move(endpoint));
    if (end == text.size()) return endpoints;
    text.remove_prefix(end + 1);
  }
}

Result<Peers> parse_peers(std::string_view text) {
  Peers result;
  Cursor cursor(text);
  const auto generation = cursor.until(",");
  if (!generation || !cursor.take(',')) return malformed("peers", text);
  Result<int64_t> number = parse_integer(*generation, "peers generation");
  if (!number) return number.error();
  result.generation = *number;
  const auto port_text = cursor.until(",");
  if (!port_text || !cursor.take(',')) return malformed("peers", text);
  uint16_t default_port = 3000;
  if (!port_text->empty()) {
    Result<int64_t> port = parse_integer(*port_text, "peers default port");
    if (!port) return port.error();
    if (*port < 1 || *port > 65535) return malformed("peers default port", *port_text);
    default_port = static_cast<uint16_t>(*port);
  }
  if (!cursor.take('[')) return malformed("peers", cursor.rest());
  while (!cursor.take(']')) {
    if (!result.peers.empty() && !cursor.take(',')) return malformed("peers", cursor.rest());
    if (result.peers.size() >= kPeersMax) return malformed("peers: too many", cursor.rest());
    Result<Peer> peer = parse_peer(cursor, default_port);
    if (!peer) return peer.error();
    result.peers.push_back(*std::move(peer));
  }
  if (!cursor.at_end()) return malformed("peers", cursor.rest());
  return result;
}

Result<std::vector<ReplicaMap>> parse_replicas(std::string_view text) {
  std::vector<ReplicaMap> maps;
  Cursor cursor(text);
  while (!cursor.at_end()) {
    ReplicaMap map;
    const auto ns = cursor.until(":");
    if (!ns || ns->empty() || ns->size() > kNamespaceBytesMax || !cursor.take(':')) {
      return malformed("replicas", cursor.rest());
    }
    map.ns = *ns;
    const auto regime = cursor.until(",");
    if (!regime || !cursor.take(',')) return malformed("replicas", cursor.rest());
    const auto count = cursor.until(",");
    if (!count) return malformed("replicas", cursor.rest());
    Result<int64_t> regime_number = parse_integer(*regime, "replicas regime");
    Result<int64_t> count_number = parse_integer(*count, "replicas count");
    if (!regime_number) return regime_number.error();
    if (!count_number) return count_number.error();
    if (*regime_number < 0 || *regime_number > UINT32_MAX || *count_number < 1 ||
        *count_number > static_cast<int64_t>(kReplicationFactorMax)) {
      return malformed("replicas", text.substr(0, 40));
    }
    map.regime = static_cast<uint32_t>(*regime_number);
    map.replication_factor = static_cast<uint32_t>(*count_number);
    for (uint32_t k = 0; k < map.replication_factor; ++k) {
      if (!cursor.take(',')) return malformed("replicas", cursor.rest());
      const auto bitmap_text = cursor.count(kBitmapTextBytes);
      if (!bitmap_text) return malformed("replicas bitmap", cursor.rest());
      const auto bitmap = decode_bitmap(*bitmap_text);
      if (!bitmap) return malformed("replicas bitmap", *bitmap_text);
      if (k < kReplicasMax) map.replicas.push_back(*bitmap);
    }
    maps.push_back(std::move(map));
    if (!cursor.at_end() && !cursor.take(';')) return malformed("replicas", cursor.rest());
  }
  return maps;
}

Result<int64_t> parse_integer(std::string_view text, std::string_view what) {
  int64_t value = 0;
  const auto [end, error] = std::from_chars(text.data(), text.data() + text.size(), value);
  if (error != std::errc() || end != text.data() + text.size()) return malformed(what, text);
  return value;
}

}  // namespace aerokv::wire
