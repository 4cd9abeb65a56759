// SPDX-License-Identifier: Apache-2.0
#include "tests/chaos/model.h"

#include <algorithm>
#include <array>
#include <cstring>

#include "tests/chaos/random.h"

namespace aerokv::chaos {
namespace {

constexpr std::array<size_t, 9> kSizes = {16,     702,     40'000,  65'536, 65'538,
                                          99'998, 131'072, 200'000, 300'000};
constexpr size_t kHeadBytes = 16;  // version, then hash of the key

uint64_t hash_of(const std::string& text) {
  uint64_t hash = 0xCBF29CE484222325ULL;
  for (const char c : text) hash = (hash ^ static_cast<uint8_t>(c)) * 0x100000001B3ULL;
  return Random::mix(hash);
}

// Word `index` of a stream: independent of all others, so that no slice fits anywhere else.
uint64_t word(uint64_t seed, uint64_t index) {
  const uint64_t z = (seed + index) * 0x9E3779B97F4A7C15ULL;
  return z ^ (z >> 29) ^ seed;
}

void store_word(uint64_t value, MutableBytes out) {
  std::memcpy(out.data(), &value, std::min<size_t>(out.size(), sizeof value));
}

}  // namespace

Contents::Contents(const std::string& key) : hash_(hash_of(key)) {}

uint64_t Contents::seed(uint64_t version) const {
  return Random::mix(hash_ + version);
}

size_t Contents::size(uint64_t version) const {
  return kSizes[seed(version) % kSizes.size()];
}

void Contents::fill(uint64_t version, MutableBytes out) const {
  store_word(version, out);
  store_word(hash_, out.subspan(sizeof version));
  const uint64_t base = seed(version);
  for (size_t at = kHeadBytes; at < out.size(); at += sizeof base) {
    store_word(word(base, at), out.subspan(at));
  }
}

std::string Contents::identify(Bytes payload, uint64_t newest, uint64_t& version) const {
  if (payload.size() < kHeadBytes) return "a hit of " + std::to_string(payload.size()) + " bytes";
  uint64_t hash = 0;
  std::memcpy(&version, payload.data(), sizeof version);
  std::memcpy(&hash, payload.data() + sizeof version, sizeof hash);
  const std::string what = "version " + std::to_string(version);
  if (hash != hash_) return "the bytes of another key, or none of ours";
  if (version == 0 || version > newest) {
    return what + ", but only " + std::to_string(newest) + " were submitted";
  }
  if (payload.size() != size(version)) {
    return what + " with " + std::to_string(payload.size()) + " bytes, it has " +
           std::to_string(size(version));
  }
  const uint64_t base = seed(version);
  for (size_t at = kHeadBytes; at < payload.size(); at += sizeof base) {
    const uint64_t expected = word(base, at);
    const size_t count = std::min(payload.size() - at, sizeof expected);
    if (std::memcmp(payload.data() + at, &expected, count) != 0) {
      return what + " with a wrong byte at " + std::to_string(at) + " of " +
             std::to_string(payload.size());
    }
  }
  return {};
}

Model::Model(std::string set, size_t keys) : set_(std::move(set)) {
  for (size_t i = 0; i < keys; ++i) keys_.emplace_back(set_ + "/" + std::to_string(i));
}

uint64_t Model::newest(size_t key) const {
  const Key& state = keys_[key];
  const std::scoped_lock lock(state.mutex);
  return state.newest;
}

Model::Mutation Model::begin(Key& key, size_t index, uint64_t version, Calm now) {
  Mutation mutation;
  mutation.key = index;
  mutation.version = version;
  mutation.serial = ++key.serial;
  mutation.alone = key.open.empty();
  mutation.calm = now;
  key.open.push_back(mutation.serial);
  if (version != 0) key.open_puts.push_back(version);
  key.settled.reset();
  return mutation;
}

Model::Mutation Model::begin_put(size_t key, Calm now) {
  Key& state = keys_[key];
  const std::scoped_lock lock(state.mutex);
  const uint64_t version = ++state.newest;
  return begin(state, key, version, now);
}

Model::Mutation Model::begin_remove(size_t key, Calm now) {
  Key& state = keys_[key];
  const std::scoped_lock lock(state.mutex);
  return begin(state, key, 0, now);
}

void Model::end(const Mutation& mutation, Outcome outcome, Calm now) {
  Key& state = keys_[mutation.key];
  const std::scoped_lock lock(state.mutex);
  std::erase(state.open, mutation.serial);
  if (mutation.version != 0) std::erase(state.open_puts, mutation.version);
  const bool in_calm = now != 0 && now == mutation.calm;
  const bool confirmed = outcome != Outcome::error;
  if (now != 0 && !confirmed) state.doubtful_in = now;
  const bool was_alone = mutation.alone && state.serial == mutation.serial;
  if (!in_calm || !confirmed || !was_alone || state.doubtful_in == now) return;
  state.settled = mutation.version;
  state.settled_in = now;
}

Model::Load Model::begin_load(size_t key, Calm now) const {
  const Key& state = keys_[key];
  const std::scoped_lock lock(state.mutex);
  Load load;
  load.key = key;
  load.serial = state.serial;
  load.oldest = state.oldest;
  load.calm = now;
  if (now != 0 && state.settled_in == now) load.settled = state.settled;
  return load;
}

/// What a load must find; nothing if that is open. Requires the key's lock.
std::optional<uint64_t> Model::certain(const Load& load, Calm now) const {
  const Key& state = keys_[load.key];
  if (!load.settled || now != load.calm || state.serial != load.serial) return std::nullopt;
  return load.settled;
}

std::string Model::judge(const Load& load, const ItemResult& result, MutableBytes target,
                         Calm now) const {
  const Key& state = keys_[load.key];
  uint64_t newest = 0;
  std::optional<uint64_t> must;
  {
    const std::scoped_lock lock(state.mutex);
    newest = state.newest;
    must = certain(load, now);
  }
  const std::string where = "load of " + state.name + ": ";
  if (result.outcome == Outcome::hit) {
    if (result.bytes > target.size()) return where + "a hit of more bytes than the buffer has";
    uint64_t version = 0;
    const Bytes payload = target.first(static_cast<size_t>(result.bytes));
    const std::string wrong = state.contents.identify(payload, newest, version);
    if (!wrong.empty()) return where + wrong;
    if (version < load.oldest) {
      return where + "version " + std::to_string(version) + ", but all nodes died after it";
    }
    if (must && *must != version) {
      return where + "version " + std::to_string(version) + " in calm weather, expected " +
             (*must == 0 ? "none" : std::to_string(*must));
    }
    return {};
  }
  if (!must || *must == 0 || result.outcome == Outcome::error) return {};
  if (state.contents.size(*must) > target.size()) return {};
  return where + "a miss in calm weather, expected version " + std::to_string(*must) + " (" +
         result.status.message() + ")";
}

std::string Model::judge_lookup(const Load& load, const ItemResult& result, Calm now) const {
  const Key& state = keys_[load.key];
  const std::scoped_lock lock(state.mutex);
  if (result.outcome != Outcome::hit) return {};
  if (state.newest == 0) return "lookup of " + state.name + ": present, but never stored";
  const std::optional<uint64_t> must = certain(load, now);
  if (must && *must == 0) return "lookup of " + state.name + ": present in calm weather, removed";
  return {};
}

void Model::all_is_lost() {
  for (Key& key : keys_) {
    const std::scoped_lock lock(key.mutex);
    const auto first = std::min_element(key.open_puts.begin(), key.open_puts.end());
    key.oldest = first == key.open_puts.end() ? key.newest + 1 : *first;
  }
}

}  // namespace aerokv::chaos
