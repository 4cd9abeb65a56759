// SPDX-License-Identifier: Apache-2.0
// A cluster for one test, and what its nodes say about partitions.
#pragma once

#include <array>
#include <map>
#include <set>
#include <string>
#include <vector>

#include "devserver/succession.h"
#include "server_fixture.h"

namespace aerokv::devserver_test {

constexpr milliseconds kSettleTime{30000};

/// What one node says about partitions: bitmaps as vectors of bits.
inline std::vector<std::vector<bool>> maps_of(const std::string& replicas) {
  std::vector<std::vector<bool>> maps;
  std::string text = replicas.substr(replicas.find(':') + 1);
  text.erase(0, text.find(',') + 1);
  const auto count = static_cast<size_t>(std::stoi(text));
  constexpr std::string_view kDigits =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  for (size_t k = 0; k < count; ++k) {
    text.erase(0, text.find(',') + 1);
    std::vector<bool> bits;
    for (const char c : text.substr(0, 684)) {
      const size_t digit = kDigits.find(c);
      for (int bit = 5; bit >= 0; --bit) {
        bits.push_back(digit != std::string_view::npos && (digit >> bit & 1) != 0);
      }
    }
    bits.resize(kPartitionCount);
    maps.push_back(std::move(bits));
  }
  return maps;
}

class ClusterTest : public ServerTest {
 protected:
  std::string info(int node, const std::string& command) { return connect(node).info(command); }

  int64_t number(int node, const std::string& command) { return std::stoll(info(node, command)); }

  /// A key whose owners are `order[0]`, `order[1]`, ...
  std::string key_of(const std::vector<int>& order) {
    std::vector<std::string> ids;
    for (size_t i = 1; i <= server_->endpoints().size(); ++i) {
      ids.push_back("B" + std::to_string(i));
    }
    const auto owners = devserver::succession(ids);
    for (int i = next_key_;; ++i) {
      const std::string key = "c-" + std::to_string(i);
      const auto& nodes = owners[wire::partition_of(wire::compute_digest("kv_chunks", key))];
      if (std::equal(order.begin(), order.end(), nodes.begin())) {
        next_key_ = i + 1;
        return key;
      }
    }
  }

  uint8_t code(int node, RequestParts request, uint32_t timeout_ms = 1000) {
    RawClient client = connect(node);
    request.timeout_ms = timeout_ms;
    return ask_code(client, request);
  }

  ByteVector value(int node, const std::string& key, uint8_t more_info1 = 0) {
    RawClient client = connect(node);
    RequestParts get = get_of(key);
    get.info1 |= more_info1;
    const Unit unit = ask_unit(client, get);
    return unit.op("b") == nullptr ? ByteVector{} : unit.op("b")->value;
  }

  void settle() { ASSERT_TRUE(server_->await_settled(kSettleTime)); }

  /// How often each slot of each partition is claimed, by the nodes given.
  std::map<std::string, int> claims(const std::vector<int>& nodes) {
    std::map<std::string, int> counts;
    std::vector<std::vector<std::vector<bool>>> all;
    for (const int node : nodes) all.push_back(maps_of(info(node, "replicas")));
    for (uint32_t p = 0; p < kPartitionCount; ++p) {
      std::string picture;
      for (size_t k = 0; k < all.front().size(); ++k) {
        int claimed = 0;
        for (const auto& maps : all) claimed += maps.size() > k && maps[k][p] ? 1 : 0;
        picture += std::to_string(claimed);
      }
      ++counts[picture];
    }
    return counts;
  }

  int next_key_ = 0;
};

}  // namespace aerokv::devserver_test
