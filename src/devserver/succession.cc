// SPDX-License-Identifier: Apache-2.0
#include "devserver/succession.h"

#include <algorithm>
#include <array>
#include <numeric>
#include <span>

#include "aerokv/bytes.h"
#include "base/limits.h"

namespace aerokv::devserver {
namespace {

// FNV-1a, 64 bits.
uint64_t fnv(Bytes bytes) {
  uint64_t hash = 0xcbf29ce484222325ULL;
  for (const std::byte b : bytes) hash = (hash ^ std::to_integer<uint64_t>(b)) * 0x100000001b3ULL;
  return hash;
}

// Jenkins' one-at-a-time scheme on 64 bits.
uint64_t one_at_a_time(Bytes bytes) {
  uint64_t hash = 0;
  for (const std::byte b : bytes) {
    hash += std::to_integer<uint64_t>(b);
    hash += hash << 10;
    hash ^= hash >> 6;
  }
  hash += hash << 3;
  hash ^= hash >> 11;
  return hash + (hash << 15);
}

}  // namespace

// Each node gets a weight for each partition, the hash of both hashes; the heaviest owns it. The
// last byte of the weight is the place of the node among all ids, highest first. Verified bit for
// bit against the ownership bitmaps of a real cluster: tests/golden/aerospike_cluster.
std::vector<std::vector<uint8_t>> succession(const std::vector<std::string>& ids) {
  std::vector<uint64_t> numbers;
  for (const std::string& id : ids) numbers.push_back(std::stoull(id, nullptr, 16));
  std::vector<size_t> by_id(ids.size());
  std::iota(by_id.begin(), by_id.end(), size_t{0});
  std::sort(by_id.begin(), by_id.end(),
            [&](size_t a, size_t b) { return numbers[a] > numbers[b]; });

  std::vector<uint64_t> node_hashes;
  for (const size_t node : by_id) {
    std::array<std::byte, 8> number;
    store_le(number.data(), numbers[node]);
    node_hashes.push_back(fnv(number));
  }
  std::vector<std::vector<uint8_t>> orders(kPartitionCount);
  for (uint32_t partition = 0; partition < kPartitionCount; ++partition) {
    std::array<std::byte, 4> number;
    store_le(number.data(), partition);
    std::array<std::byte, 16> both;
    store_le(both.data() + 8, fnv(number));
    std::vector<std::pair<uint64_t, uint8_t>> weights;
    for (size_t place = 0; place < by_id.size(); ++place) {
      store_le(both.data(), node_hashes[place]);
      const uint64_t weight = (one_at_a_time(both) & ~uint64_t{0xFF}) + place;
      weights.emplace_back(weight, static_cast<uint8_t>(by_id[place]));
    }
    std::sort(weights.rbegin(), weights.rend());
    for (const auto& [weight, node] : weights) orders[partition].push_back(node);
  }
  return orders;
}

}  // namespace aerokv::devserver
