// SPDX-License-Identifier: Apache-2.0
// The built-in formats and the types that others have registered.
#include <algorithm>
#include <mutex>
#include <string_view>
#include <thread>
#include <utility>

#include "serde/builtin.h"
#include "serde/params.h"

namespace aerokv {
namespace {

using serde::ParamReader;

constexpr int64_t kWorkersMax = 256;
constexpr unsigned kWorkersDefaultMax = 4;

struct Builtin {
  std::string_view type;
  Result<Serde> (*make)(const SerdeParams& params);
};

constexpr Builtin kBuiltins[] = {
    {"aesgcm", serde::make_aesgcm},     {"chain", serde::make_chain},
    {"checksum", serde::make_checksum}, {"fp8", serde::make_fp8},
    {"int4", serde::make_int4},         {"int8", serde::make_int8},
    {"k16v8", serde::make_k16v8},       {"lossless", serde::make_lossless},
};

Result<std::unique_ptr<SerdeProcessor>> make_processor(const Builtin& builtin, SerdeParams params) {
  const std::string name = "max_workers";
  SerdeParams own;
  if (auto found = params.extract(name); !found.empty()) own.insert(std::move(found));
  const unsigned cores = std::max(1U, std::thread::hardware_concurrency());
  ParamReader reader(builtin.type, own);
  const int64_t workers = reader.integer(name, std::min(kWorkersDefaultMax, cores), 1, kWorkersMax);
  AEROKV_TRY(reader.finish());
  Result<Serde> made = builtin.make(params);
  if (!made) return made.error();
  return make_async_serde_processor(*std::move(made), static_cast<size_t>(workers));
}

struct Registry {
  std::mutex mutex;
  std::map<std::string, SerdeFactory> factories;  // guarded by mutex

  Registry() {
    for (const Builtin& builtin : kBuiltins) {
      factories.emplace(builtin.type, [&builtin](const SerdeParams& params) {
        return make_processor(builtin, params);
      });
    }
  }
};

Registry& registry() {
  static Registry instance;
  return instance;
}

Status unknown_type(const std::string& type, const std::vector<std::string>& known) {
  std::string message = "serde: unknown type \"" + type + "\", known are";
  for (size_t i = 0; i < known.size(); ++i) message += (i == 0 ? " " : ", ") + known[i];
  return {Code::invalid, message};
}

}  // namespace

Result<Serde> make_serde(const SerdeConfig& config) {
  std::vector<std::string> known;
  for (const Builtin& builtin : kBuiltins) {
    if (builtin.type == config.type) return builtin.make(config.params);
    known.emplace_back(builtin.type);
  }
  return unknown_type(config.type, known);
}

Status register_serde_factory(const std::string& type, SerdeFactory factory) {
  if (type.empty()) return {Code::invalid, "register_serde_factory: empty type"};
  if (!factory) return {Code::invalid, "register_serde_factory: " + type + ": no factory"};
  Registry& all = registry();
  const std::scoped_lock lock(all.mutex);
  if (all.factories.emplace(type, std::move(factory)).second) return {};
  return {Code::invalid, "register_serde_factory: " + type + " is registered already"};
}

Result<std::unique_ptr<SerdeProcessor>> create_serde_processor(const SerdeConfig& config) {
  SerdeFactory factory;
  {
    Registry& all = registry();
    const std::scoped_lock lock(all.mutex);
    if (const auto found = all.factories.find(config.type); found != all.factories.end()) {
      factory = found->second;
    }
  }
  if (!factory) return unknown_type(config.type, registered_serde_types());
  return factory(config.params);
}

std::vector<std::string> registered_serde_types() {
  Registry& all = registry();
  const std::scoped_lock lock(all.mutex);
  std::vector<std::string> types;
  types.reserve(all.factories.size());
  for (const auto& [type, factory] : all.factories) types.push_back(type);
  return types;
}

}  // namespace aerokv
