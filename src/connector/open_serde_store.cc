// SPDX-License-Identifier: Apache-2.0
// The configuration of the fused path: what of it belongs to the store, and what to the serde.
#include <algorithm>
#include <optional>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "connector/serde_store.h"

namespace aerokv {
namespace {

constexpr int64_t kWorkersMax = 256;

/// Takes a parameter that belongs to the store, not to the serde.
std::optional<SerdeValue> take(SerdeParams& params, const std::string& name) {
  const auto found = params.find(name);
  if (found == params.end()) return std::nullopt;
  SerdeValue value = std::move(found->second);
  params.erase(found);
  return value;
}

bool takes_bytes_as_bytes(const SerdeConfig& config) {
  return config.type == "checksum" || config.type == "aesgcm";
}

Result<DType> dtype_of(SerdeConfig& config) {
  const std::optional<SerdeValue> value = take(config.params, "dtype");
  if (!value) {
    if (takes_bytes_as_bytes(config)) return DType::uint8;
    return Status(Code::invalid, "serde " + config.type +
                                     ": dtype: missing, expected the element type of the KV "
                                     "cache, such as bfloat16");
  }
  const auto* name = std::get_if<std::string>(&*value);
  const std::optional<DType> dtype = name == nullptr ? std::nullopt : parse_dtype(*name);
  if (!dtype) {
    return Status(Code::invalid, "serde " + config.type +
                                     ": dtype: expected a name such as bfloat16, float16, float32");
  }
  return *dtype;
}

Result<size_t> workers_of(SerdeConfig& config) {
  const std::optional<SerdeValue> value = take(config.params, "max_workers");
  if (!value) return std::clamp<size_t>(std::thread::hardware_concurrency(), 1, 4);
  const auto* number = std::get_if<int64_t>(&*value);
  if (number == nullptr || *number < 1 || *number > kWorkersMax) {
    return Status(Code::invalid, "serde " + config.type + ": max_workers: expected 1 to " +
                                     std::to_string(kWorkersMax));
  }
  return static_cast<size_t>(*number);
}

Status check_shapeless(const SerdeConfig& config) {
  for (const char* name : {"int8", "int4", "k16v8"}) {
    if (config.type != name) continue;
    return {Code::invalid,
            "serde " + config.type +
                ": needs the shape of the tensor, which a connector does not know; use it as "
                "LMCache's serde \"aerospike_" +
                config.type + "\""};
  }
  const auto stages = config.params.find("stages");
  if (config.type != "chain" || stages == config.params.end()) return {};
  const auto* list = std::get_if<std::vector<SerdeConfig>>(&stages->second);
  if (list == nullptr) return {};  // make_serde() says what is wrong
  for (const SerdeConfig& stage : *list) AEROKV_TRY(check_shapeless(stage));
  return {};
}

/// A configuration that was checked and taken apart.
struct Resolved {
  Serde serde;
  DType dtype;
  size_t workers;
};

Result<Resolved> resolve(SerdeConfig config) {
  AEROKV_TRY(check_shapeless(config));
  const Result<DType> dtype = dtype_of(config);
  if (!dtype) return dtype.error();
  const Result<size_t> workers = workers_of(config);
  if (!workers) return workers.error();
  Result<Serde> serde = make_serde(config);
  if (!serde) return serde.error();
  // Says early what would fail with the first object.
  const Result<size_t> size =
      serde->serializer->estimate_serialized_size({{*dtype, {int64_t{256}}}});
  if (!size) return size.error().with_context("serde " + config.type);
  return Resolved{*std::move(serde), *dtype, *workers};
}

}  // namespace

Result<std::unique_ptr<Store>> open_serde_store(StoreOptions options, SerdeConfig config) {
  // The serde first: what is wrong with it is told whether or not the cluster can be reached.
  Result<Resolved> resolved = resolve(std::move(config));
  if (!resolved) return resolved.error();
  Result<std::unique_ptr<Store>> inner = Store::open(std::move(options));
  if (!inner) return inner.error();
  Result<std::unique_ptr<serde::WorkerPool>> pool = serde::WorkerPool::start(resolved->workers);
  if (!pool) return pool.error();
  return std::unique_ptr<Store>(std::make_unique<SerdeStore>(
      *std::move(inner), std::move(resolved->serde), resolved->dtype, *std::move(pool)));
}

}  // namespace aerokv
