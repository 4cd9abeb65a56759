// SPDX-License-Identifier: Apache-2.0
// Transforms for the tests of what runs transforms: cheap, and wrong on demand.
#pragma once

#include <algorithm>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <new>
#include <stdexcept>
#include <string>
#include <utility>
#include <vector>

#include "aerokv/serde.h"

namespace aerokv::serde {

/// Holds threads back until it is opened, and tells how many wait.
class Gate {
 public:
  void pass() {
    std::unique_lock lock(mutex_);
    ++arrived_;
    changed_.notify_all();
    changed_.wait(lock, [this] { return open_; });
  }
  void await_arrivals(size_t count) {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [this, count] { return arrived_ >= count; });
  }
  void open() {
    const std::scoped_lock lock(mutex_);
    open_ = true;
    changed_.notify_all();
  }
  size_t arrived() {
    const std::scoped_lock lock(mutex_);
    return arrived_;
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  size_t arrived_ = 0;
  bool open_ = false;
};

/// The first byte of an object that makes its transform misbehave.
enum Trouble : uint8_t {
  kFails = 0xE0,
  kThrowsBadAlloc,
  kThrowsError,
  kThrowsInt,
  kThrowsInPart,
  kLies,  // claims to have written more than there is
  kWaits,
};

/// One byte, then every byte of the object xor its position, in parts of kPartBytes.
inline constexpr size_t kPartBytes = 100;

inline void copy_in_parts(Bytes src, MutableBytes dst, Parallel& parallel, bool is_bad = false) {
  const size_t parts = (src.size() + kPartBytes - 1) / kPartBytes;
  parallel.run(parts, [&](size_t part) {
    if (is_bad && part == parts / 2) throw std::runtime_error("part failed");
    const size_t end = std::min(src.size(), (part + 1) * kPartBytes);
    for (size_t i = part * kPartBytes; i < end; ++i) dst[i] = src[i] ^ static_cast<std::byte>(i);
  });
}

inline Status misbehave(Bytes bytes, Gate* gate) {
  switch (bytes.empty() ? 0 : std::to_integer<uint8_t>(bytes[0])) {
    case kFails:
      return {Code::invalid, "told to fail"};
    case kThrowsBadAlloc:
      throw std::bad_alloc();
    case kThrowsError:
      throw std::runtime_error("told to throw");
    case kThrowsInt:
      throw 7;
    case kWaits:
      if (gate != nullptr) gate->pass();
      return {};
    default:
      return {};
  }
}

class TestSerializer final : public Serializer {
 public:
  explicit TestSerializer(Gate* gate) : gate_(gate) {}
  [[nodiscard]] Result<size_t> estimate_serialized_size(const Layout& layout) const override {
    const Result<uint64_t> bytes = layout_bytes(layout);
    if (!bytes) return bytes.error();
    return *bytes + 1;
  }

 private:
  Result<size_t> encode(const ObjectView& src, MutableBytes dst, const SerdeKey& key,
                        Parallel& parallel) const override {
    AEROKV_TRY(misbehave(src.bytes, gate_));
    const auto first = src.bytes.empty() ? uint8_t{0} : std::to_integer<uint8_t>(src.bytes[0]);
    if (first == kLies) return dst.size() + 1;
    if (dst.size() < src.bytes.size() + 1) return Status(Code::invalid, "target too small");
    dst[0] = static_cast<std::byte>(key.chunk_hash.size());
    copy_in_parts(src.bytes, dst.subspan(1), parallel, first == kThrowsInPart);
    return src.bytes.size() + 1;
  }
  Gate* const gate_;
};

class TestDeserializer final : public Deserializer {
 public:
  explicit TestDeserializer(Gate* gate) : gate_(gate) {}

 private:
  Status decode(Bytes src, const MutableObjectView& dst, const SerdeKey& /*key*/,
                Parallel& parallel) const override {
    AEROKV_TRY(misbehave(src, gate_));
    if (src.size() < dst.bytes.size() + 1) return {Code::corruption, "truncated"};
    copy_in_parts(src.subspan(1, dst.bytes.size()), dst.bytes, parallel);
    return {};
  }
  Gate* const gate_;
};

inline Serde test_serde(Gate* gate = nullptr) {
  return {std::make_shared<TestSerializer>(gate), std::make_shared<TestDeserializer>(gate), "test"};
}

/// Objects of one size with room for their serialized form.
struct TestObjects {
  std::shared_ptr<const Layout> layout;
  std::vector<std::vector<std::byte>> plain;
  std::vector<std::vector<std::byte>> stored;

  TestObjects(size_t count, size_t bytes)
      : layout(std::make_shared<Layout>(Layout{{DType::uint8, {static_cast<int64_t>(bytes)}}})),
        plain(count, std::vector<std::byte>(bytes)),
        stored(count, std::vector<std::byte>(bytes + 1)) {
    for (size_t i = 0; i < count; ++i) {
      for (size_t j = 0; j < bytes; ++j) plain[i][j] = static_cast<std::byte>((7 * i + j) % 200);
    }
  }

  [[nodiscard]] std::vector<SerializeItem> to_serialize() {
    std::vector<SerializeItem> items;
    for (size_t i = 0; i < plain.size(); ++i) items.push_back({layout, plain[i], stored[i], {}});
    return items;
  }
  [[nodiscard]] std::vector<DeserializeItem> to_deserialize() {
    std::vector<DeserializeItem> items;
    for (size_t i = 0; i < plain.size(); ++i) items.push_back({stored[i], layout, plain[i], {}});
    return items;
  }
};

}  // namespace aerokv::serde
