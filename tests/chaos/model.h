// SPDX-License-Identifier: Apache-2.0
// What loads may return. Contents follow from key and version, so every byte of a hit is compared
// without keeping any.
//
// Always: a hit is one version, whole, that was submitted before the load ended; and none from
// before a moment at which every node was dead. Older versions than the last confirmed one, and
// removed objects, are lawful while things happen: a node that was frozen comes back with what it
// had, and a request that its client gave up may be executed late.
//
// In calm weather (see Stage): an object that was stored or removed by one writer alone, in this
// calm, is found exactly so.
#pragma once

#include <atomic>
#include <cstdint>
#include <deque>
#include <mutex>
#include <optional>
#include <string>
#include <vector>

#include "aerokv/bytes.h"
#include "aerokv/store.h"

namespace aerokv::chaos {

/// Contents of the versions of one key. Sizes are even.
class Contents {
 public:
  static constexpr size_t kBytesMax = 300'000;

  explicit Contents(const std::string& key);
  [[nodiscard]] size_t size(uint64_t version) const;
  void fill(uint64_t version, MutableBytes out) const;
  /// Empty if `payload` is exactly some version up to `newest`, which is set; else what is wrong.
  [[nodiscard]] std::string identify(Bytes payload, uint64_t newest, uint64_t& version) const;

 private:
  [[nodiscard]] uint64_t seed(uint64_t version) const;
  uint64_t hash_;
};

/// Counts calms; 0 = the cluster is disturbed. A calm has a number of its own.
using Calm = uint64_t;

/// Everything known about the keys of one set. Thread-safe.
class Model {
 public:
  Model(std::string set, size_t keys);

  struct Mutation {
    size_t key = 0;
    uint64_t version = 0;  ///< 0 = removal
    uint64_t serial = 0;
    bool alone = false;
    Calm calm = 0;
  };
  struct Load {
    size_t key = 0;
    uint64_t serial = 0;
    uint64_t oldest = 0;
    Calm calm = 0;
    std::optional<uint64_t> settled;
  };

  [[nodiscard]] size_t size() const { return keys_.size(); }
  [[nodiscard]] const std::string& set() const { return set_; }
  [[nodiscard]] const std::string& name(size_t key) const { return keys_[key].name; }
  [[nodiscard]] const Contents& contents(size_t key) const { return keys_[key].contents; }
  /// Of the version submitted last; 0 if there is none.
  [[nodiscard]] uint64_t newest(size_t key) const;

  [[nodiscard]] Mutation begin_put(size_t key, Calm now);
  [[nodiscard]] Mutation begin_remove(size_t key, Calm now);
  void end(const Mutation& mutation, Outcome outcome, Calm now);

  [[nodiscard]] Load begin_load(size_t key, Calm now) const;
  /// Empty, or what is unlawful about the result of a load into `target`.
  [[nodiscard]] std::string judge(const Load& load, const ItemResult& result, MutableBytes target,
                                  Calm now) const;
  /// The same for a lookup. One that says absent is always lawful: the store may remember damage.
  [[nodiscard]] std::string judge_lookup(const Load& load, const ItemResult& result,
                                         Calm now) const;

  /// Every node is dead: what was stored is gone.
  void all_is_lost();

 private:
  struct Key {
    explicit Key(std::string text) : name(std::move(text)), contents(name) {}
    const std::string name;
    const Contents contents;
    mutable std::mutex mutex;
    uint64_t newest = 0;
    uint64_t oldest = 1;              // older versions cannot exist any more
    uint64_t serial = 0;              // mutations begun
    std::deque<uint64_t> open;        // serials of mutations that have not ended
    std::deque<uint64_t> open_puts;   // their versions
    std::optional<uint64_t> settled;  // what is there for certain; 0 = nothing
    Calm settled_in = 0;
    Calm doubtful_in = 0;  // a mutation failed in this calm: it may still be executed
  };

  Mutation begin(Key& key, size_t index, uint64_t version, Calm now);
  [[nodiscard]] std::optional<uint64_t> certain(const Load& load, Calm now) const;

  const std::string set_;
  std::deque<Key> keys_;
};

}  // namespace aerokv::chaos
