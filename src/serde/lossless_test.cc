// SPDX-License-Identifier: Apache-2.0
// What only the lossless frame has: blocks, threads, and a head that strangers may have written.
#include <gtest/gtest.h>

#include <atomic>
#include <thread>

#include "codec/checksum_copy.h"
#include "codec/frame_testing.h"
#include "codec/lossless_head.h"
#include "serde/builtin.h"

namespace aerokv::serde {
namespace {

using codec::Buffer;
using codec::equal;
using codec::Guarded;
using codec::Kernel;
using codec::random_bytes;

/// Runs the parts from the last to the first.
class Backwards final : public Parallel {
 public:
  void run(size_t count, const std::function<void(size_t)>& part) override {
    for (size_t i = count; i > 0; --i) part(i - 1);
  }
};

class Threads final : public Parallel {
 public:
  explicit Threads(size_t threads) : threads_(threads) {}
  void run(size_t count, const std::function<void(size_t)>& part) override {
    std::atomic<size_t> next = 0;
    std::vector<std::thread> running;
    for (size_t i = 0; i < threads_; ++i) {
      running.emplace_back([&] {
        for (size_t k = next++; k < count; k = next++) part(k);
      });
    }
    for (std::thread& thread : running) thread.join();
  }

 private:
  size_t threads_;
};

Serde lossless(int64_t level = 1) {
  return *make_lossless({{"level", level}});
}

/// Bytes of which some blocks shrink and others do not.
Buffer mixed_bytes(size_t size) {
  Buffer bytes = random_bytes(size, size);
  for (size_t at = 0; at < size; at += 700000) {
    const size_t end = std::min(size, at + 350000 + at / 9);
    std::fill(bytes.begin() + static_cast<ptrdiff_t>(at),
              bytes.begin() + static_cast<ptrdiff_t>(end), static_cast<std::byte>(at / 1000));
  }
  return bytes;
}

Buffer serialized(const Serde& serde, const Layout& layout, Bytes object,
                  Parallel& parallel = serial()) {
  Guarded target(*serde.serializer->estimate_serialized_size(layout));
  const auto size = serde.serializer->serialize({layout, object}, target.bytes(), {}, parallel);
  EXPECT_TRUE(size) << size.error().message();
  EXPECT_TRUE(target.is_intact());
  const Bytes frame = Bytes(target.bytes()).first(*size);
  return {frame.begin(), frame.end()};
}

/// The frame with the sum of its head made right, as an attacker would.
Buffer resealed(Buffer frame) {
  const auto head_bytes = load_le<uint64_t>(frame.data() + 8);
  const uint64_t sum = codec::xxh3_64(Bytes(frame).first(head_bytes - 8), Kernel::scalar);
  store_le(frame.data() + head_bytes - 8, sum);
  return frame;
}

Status read(const Buffer& frame, const Layout& layout) {
  Guarded target(*layout_bytes(layout));
  const Status status = lossless().deserializer->deserialize(frame, {layout, target.bytes()});
  EXPECT_TRUE(target.is_intact());
  return status;
}

TEST(LosslessSerde, BytesDoNotDependOnThreads) {
  const Layout layout = {{DType::bfloat16, {1000001}}, {DType::float32, {300000}}};
  const Buffer object = mixed_bytes(*layout_bytes(layout));
  const Serde serde = lossless();
  const Buffer frame = serialized(serde, layout, object);
  EXPECT_LT(frame.size(), object.size() * 3 / 4);
  Backwards backwards;
  EXPECT_EQ(serialized(serde, layout, object, backwards), frame);
  for (const size_t count : std::vector<size_t>{2, 3, 7}) {
    Threads threads(count);
    for (int i = 0; i < 10; ++i) {
      ASSERT_EQ(serialized(serde, layout, object, threads), frame) << count;
    }
    Guarded target(object.size());
    EXPECT_TRUE(serde.deserializer->deserialize(frame, {layout, target.bytes()}, {}, threads));
    EXPECT_TRUE(equal(target.bytes(), object));
    EXPECT_TRUE(target.is_intact());
  }
}

TEST(LosslessSerde, TagDoesNotTellTheLevel) {
  EXPECT_EQ(lossless(1).tag, "lossless");
  EXPECT_EQ(lossless(9).tag, "lossless");
}

TEST(LosslessSerde, EveryLevelIsReadByTheSameReader) {
  const Layout layout = {{DType::float16, {3000}}};
  const Buffer object = mixed_bytes(6000);
  for (const int64_t level : {-7, -1, 0, 1, 2, 5, 19}) {
    EXPECT_TRUE(read(serialized(lossless(level), layout, object), layout)) << level;
  }
  for (const int64_t level : {-8, 20}) {
    const auto made = make_lossless({{"level", level}});
    ASSERT_FALSE(made);
    EXPECT_NE(made.error().message().find("level"), std::string::npos);
  }
}

TEST(LosslessSerde, SpecialNumbersComeBackBitByBit) {
  // Infinities, quiet and signalling NaNs with payloads, both zeros, subnormals.
  const Layout layout = {{DType::float32, {8}}};
  const Buffer object =
      codec::hex("0000807f000080ff0100807f2345c07f000000800000000001000000ffff7f80");
  const Serde serde = lossless();
  const Buffer frame = serialized(serde, layout, object);
  Buffer target(32);
  ASSERT_TRUE(serde.deserializer->deserialize(frame, {layout, target}));
  EXPECT_EQ(target, object);
}

TEST(LosslessSerde, RefusesOtherTensorsThanWereWritten) {
  const Buffer frame = serialized(lossless(), {{DType::bfloat16, {64}}, {DType::int8, {16}}},
                                  Buffer(144, std::byte{1}));
  const std::vector<Layout> others = {
      {{DType::float16, {64}}, {DType::int8, {16}}},    // another type of that width
      {{DType::bfloat16, {64}}, {DType::uint8, {16}}},  // likewise
      {{DType::bfloat16, {64}}},                        // one missing
      {{DType::bfloat16, {64}}, {DType::int8, {8}}, {DType::int8, {8}}},
      {{DType::int8, {16}}, {DType::bfloat16, {64}}},  // order
      {{DType::bfloat16, {63}}, {DType::int8, {18}}},  // sizes
      {},
  };
  for (const Layout& layout : others) {
    EXPECT_EQ(read(frame, layout).code(), Code::invalid) << layout_text(layout);
  }
  EXPECT_TRUE(read(frame, {{DType::bfloat16, {4, 16}}, {DType::int8, {2, 8}}}));  // only reshaped
}

TEST(LosslessSerde, RefusesForeignHeads) {
  const Layout layout = {{DType::bfloat16, {64}}};
  const Buffer frame = serialized(lossless(), layout, Buffer(128, std::byte{1}));
  const auto with = [&](size_t at, uint8_t value) {
    Buffer changed = frame;
    changed[at] = std::byte{value};
    return read(resealed(changed), layout).code();
  };
  EXPECT_EQ(with(0, 'A'), Code::ok);
  EXPECT_EQ(with(0, 'B'), Code::invalid);    // magic
  EXPECT_EQ(with(4, 2), Code::invalid);      // version
  EXPECT_EQ(with(5, 1), Code::invalid);      // flags
  EXPECT_EQ(with(6, 2), Code::invalid);      // tensors
  EXPECT_EQ(with(16, 1), Code::corruption);  // bytes of the object
  EXPECT_EQ(with(24, 4), Code::invalid);     // blocks no multiple of 8
  EXPECT_EQ(with(26, 0), Code::invalid);     // blocks of nothing
  EXPECT_EQ(with(27, 2), Code::invalid);     // blocks beyond the limit
  EXPECT_EQ(with(28, 1), Code::invalid);     // reserved
  EXPECT_EQ(with(32, 11), Code::invalid);    // type
  EXPECT_EQ(with(33, 1), Code::invalid);
  EXPECT_EQ(with(40, 127), Code::invalid);   // bytes of the tensor
  EXPECT_EQ(with(56, 0), Code::corruption);  // a plane of nothing
  EXPECT_EQ(with(59, 1), Code::corruption);  // a plane that grew
}

TEST(LosslessSerde, RefusesHeadsOfOtherLengths) {
  const Layout layout = {{DType::bfloat16, {64}}};
  const Buffer frame = serialized(lossless(), layout, Buffer(128, std::byte{1}));
  for (const uint64_t bytes :
       {uint64_t{0}, uint64_t{7}, uint64_t{39}, uint64_t{frame.size() + 1}, ~uint64_t{0}}) {
    Buffer changed = frame;
    store_le(changed.data() + 8, bytes);
    EXPECT_EQ(read(changed, layout).code(), Code::corruption) << bytes;
  }
  for (const uint64_t bytes : std::vector<uint64_t>{40, 48, 56, 71, 73, 80}) {
    Buffer changed = frame;
    changed.resize(200);
    store_le(changed.data() + 8, bytes);
    EXPECT_EQ(read(resealed(changed), layout).code(), Code::corruption) << bytes;
  }
}

TEST(LosslessSerde, ReportsTheFirstDamagedBlockWhateverTheThreads) {
  const Layout layout = {{DType::uint8, {2000000}}};
  const Serde serde = lossless();
  Buffer frame = serialized(serde, layout, random_bytes(2000000, 1));
  // Blocks 3 and 6; none was compressed.
  const size_t head = load_le<uint64_t>(frame.data() + 8);
  frame[head + 3 * codec::kLosslessBlockBytes + 5] ^= std::byte{1};
  frame[head + 6 * codec::kLosslessBlockBytes + 5] ^= std::byte{1};
  Backwards backwards;
  Threads threads(3);
  for (Parallel* parallel :
       {&serial(), static_cast<Parallel*>(&backwards), static_cast<Parallel*>(&threads)}) {
    Buffer target(2000000);
    const Status status = serde.deserializer->deserialize(frame, {layout, target}, {}, *parallel);
    EXPECT_EQ(status.code(), Code::corruption);
    EXPECT_NE(status.message().find("block 3"), std::string::npos) << status.message();
  }
}

// Other writers may cut their blocks otherwise.
TEST(LosslessSerde, ReadsBlocksOfOtherSizes) {
  const Layout layout = {{DType::bfloat16, {9000}}, {DType::float32, {2500}}};
  const Buffer object = mixed_bytes(28000);
  for (const size_t block_bytes : std::vector<size_t>{4096, 4104, 8192, 65536, 16 << 20}) {
    const auto plan = codec::LosslessPlan::make(layout, block_bytes);
    ASSERT_TRUE(plan);
    Buffer frame(plan->head_bytes());
    plan->write_head(layout, frame);
    for (size_t i = 0; i < plan->slices().size(); ++i) {
      const codec::LosslessSlice& slice = plan->slices()[i];
      Buffer stored(slice.bytes);
      const auto block = codec::encode_block(Bytes(object).subspan(slice.offset, slice.bytes),
                                             slice.shape, 1, stored.data());
      ASSERT_TRUE(block);
      plan->write_entry(i, *block, frame);
      frame.insert(frame.end(), stored.begin(),
                   stored.begin() + static_cast<ptrdiff_t>(block->bytes()));
    }
    plan->seal(frame);
    Guarded target(object.size());
    const Status status = lossless().deserializer->deserialize(frame, {layout, target.bytes()});
    EXPECT_TRUE(status) << status.message();
    EXPECT_TRUE(equal(target.bytes(), object)) << block_bytes;
  }
}

TEST(LosslessSerde, RefusesObjectsBeyondTheFormat) {
  const Serde serde = lossless();
  const Serializer& serializer = *serde.serializer;
  EXPECT_TRUE(serializer.estimate_serialized_size({{DType::uint8, {int64_t{1} << 40}}}));
  EXPECT_FALSE(serializer.estimate_serialized_size({{DType::uint8, {(int64_t{1} << 40) + 1}}}));
  EXPECT_TRUE(serializer.estimate_serialized_size(Layout(65535)));
  EXPECT_FALSE(serializer.estimate_serialized_size(Layout(65536)));
}

}  // namespace
}  // namespace aerokv::serde
