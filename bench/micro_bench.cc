// SPDX-License-Identifier: Apache-2.0
// aerokv_micro_bench: what each byte and each key costs in the pure parts of the engine.
#include <benchmark/benchmark.h>

#include <random>
#include <string>
#include <vector>

#include "store/keys.h"
#include "store/sums.h"
#include "wire/digest.h"
#include "wire/request.h"

namespace {

constexpr const char* kSet = "kv_chunks";
constexpr size_t kKeys = 1000;

std::vector<std::string> make_keys() {
  std::vector<std::string> keys;
  for (size_t i = 0; i < kKeys; ++i) {
    const std::string number = std::to_string(i);
    keys.push_back("meta-llama/Llama-3.1-8B@01000100@0@" + std::string(64 - number.size(), '0') +
                   number + "|m");
  }
  return keys;
}

std::vector<std::byte> random_bytes(size_t count) {
  std::mt19937_64 random(1);
  std::vector<std::byte> bytes(count);
  for (std::byte& byte : bytes) byte = static_cast<std::byte>(random());
  return bytes;
}

void digests_of_1000_keys(benchmark::State& state) {
  const std::vector<std::string> keys = make_keys();
  const std::vector<std::string_view> views(keys.begin(), keys.end());
  std::vector<aerokv::wire::Digest> digests(kKeys);
  for (auto _ : state) {
    aerokv::wire::compute_digests(kSet, views, digests);
    benchmark::DoNotOptimize(digests.data());
  }
  state.SetItemsProcessed(state.iterations() * int64_t{kKeys});
}
BENCHMARK(digests_of_1000_keys);

void digest_of_one_key(benchmark::State& state) {
  const std::vector<std::string> keys = make_keys();
  for (auto _ : state) benchmark::DoNotOptimize(aerokv::wire::compute_digest(kSet, keys[0]));
  state.SetItemsProcessed(static_cast<int64_t>(state.iterations()));
}
BENCHMARK(digest_of_one_key);

void encode_lookup_of_1000_keys(benchmark::State& state) {
  const std::vector<std::string> keys = make_keys();
  const std::vector<std::string_view> views(keys.begin(), keys.end());
  std::vector<aerokv::wire::Digest> digests(kKeys);
  aerokv::wire::compute_digests(kSet, views, digests);
  for (auto _ : state) {
    std::vector<std::byte> message;
    message.reserve(128 + kKeys * 25);
    aerokv::wire::BatchEncoder encoder(0, 1000, message);
    for (uint32_t i = 0; i < kKeys; ++i) {
      const aerokv::wire::RecordRef record{"lmcache", kSet, digests[i]};
      if (!encoder.add(i, aerokv::wire::RecordRequest::exists(record, 0))) {
        state.SkipWithError("a row was refused");
        return;
      }
    }
    if (!encoder.finish()) state.SkipWithError("the message was refused");
    benchmark::DoNotOptimize(message.data());
  }
  state.SetItemsProcessed(state.iterations() * int64_t{kKeys});
}
BENCHMARK(encode_lookup_of_1000_keys);

// Slices lie one behind the other in memory that no cache holds, as payloads do.
void sum_of_segments(benchmark::State& state) {
  constexpr size_t kSegment = 950'000;
  const std::vector<std::byte> payload = random_bytes(64 * kSegment);
  for (auto _ : state) {
    for (size_t at = 0; at < payload.size(); at += kSegment) {
      benchmark::DoNotOptimize(
          aerokv::store::segment_sum(aerokv::Bytes(payload).subspan(at, kSegment)));
    }
  }
  state.SetBytesProcessed(state.iterations() * static_cast<int64_t>(payload.size()));
}
BENCHMARK(sum_of_segments);

void crc32_of_payload(benchmark::State& state) {
  const std::vector<std::byte> payload = random_bytes(64 << 20);
  for (auto _ : state) benchmark::DoNotOptimize(aerokv::store::crc32(payload));
  state.SetBytesProcessed(state.iterations() * static_cast<int64_t>(payload.size()));
}
BENCHMARK(crc32_of_payload);

}  // namespace

BENCHMARK_MAIN();
