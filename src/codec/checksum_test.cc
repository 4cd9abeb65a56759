// SPDX-License-Identifier: Apache-2.0
#include "codec/checksum.h"

#include <gtest/gtest.h>

#include <cstdio>

#include "codec/checksum_copy.h"
#include "codec/frame_testing.h"

#define XXH_INLINE_ALL
#include <xxhash.h>

namespace aerokv::codec {
namespace {

const std::string kHash = "0123456789abcdef0123456789abcdef";

Buffer frame_of(Bytes payload, std::string_view hash = kHash) {
  Buffer frame(payload.size() + kChecksumOverhead);
  encode_checksum(payload, as_bytes(hash), frame);
  return frame;
}

void expect_copy_and_hash(Bytes source, size_t misalignment, Kernel kernel) {
  Guarded target(source.size(), misalignment);
  const uint64_t expected = XXH3_64bits(source.data(), source.size());
  const std::string what = std::string(kernel_name(kernel)) + ", " + std::to_string(source.size()) +
                           " bytes, misaligned by " + std::to_string(misalignment);
  EXPECT_EQ(copy_and_hash(source, target.bytes().data(), kernel), expected) << what;
  EXPECT_EQ(xxh3_64(source, kernel), expected) << what;
  EXPECT_TRUE(equal(target.bytes(), source)) << what;
  EXPECT_TRUE(target.is_intact()) << what;
}

TEST(CopyAndHash, IsXxh3OfEveryShortLength) {
  std::printf("kernels not run here:%s\n", kernels_not_run().c_str());
  const Buffer data = random_bytes(2300, 1);
  for (const Kernel kernel : available_kernels()) {
    for (size_t size = 0; size <= 2200; ++size) {
      expect_copy_and_hash(Bytes(data).subspan(size % 67, size), size % 61, kernel);
    }
  }
}

TEST(CopyAndHash, IsXxh3OfLengthsThatAreStoredPastTheCaches) {
  const Buffer data = random_bytes((4 << 20) + 9000, 2);
  for (const Kernel kernel : available_kernels()) {
    for (const size_t more :
         std::vector<size_t>{0, 1, 63, 64, 65, 1023, 1024, 1025, 1087, 1088, 2048, 8191}) {
      for (const size_t misalignment : std::vector<size_t>{0, 1, 17, 32, 63}) {
        expect_copy_and_hash(Bytes(data).subspan(misalignment, (4 << 20) + more), misalignment,
                             kernel);
      }
    }
  }
}

TEST(CopyAndHash, BlocksAreHashedAsOne) {
  const Buffer data = random_bytes(1 << 20, 3);
  for (const size_t size : std::vector<size_t>{131071, 131072, 131073, 262144, 393217, 1048576}) {
    expect_copy_and_hash(Bytes(data).first(size), 17, Kernel::scalar);
  }
}

TEST(Checksum, ComesBack) {
  for (const size_t size : std::vector<size_t>{0, 1, 16, 17, 240, 241, 4096, 70000}) {
    const Buffer payload = random_bytes(size, size);
    const Buffer frame = frame_of(payload);
    Guarded target(size);
    EXPECT_TRUE(decode_checksum(frame, as_bytes(kHash), target.bytes()));
    EXPECT_TRUE(equal(target.bytes(), payload)) << size;
    EXPECT_TRUE(target.is_intact());
  }
}

TEST(Checksum, IgnoresBytesBehindTheFrame) {
  const Buffer payload = random_bytes(300, 4);
  Buffer loaded = frame_of(payload);
  loaded.resize(1000, std::byte{0xff});
  Guarded target(300);
  EXPECT_TRUE(decode_checksum(loaded, as_bytes(kHash), target.bytes()));
  EXPECT_TRUE(equal(target.bytes(), payload));
}

TEST(Checksum, RefusesEveryTruncatedFrame) {
  const Buffer frame = frame_of(random_bytes(300, 5));
  for (size_t size = 0; size < frame.size(); ++size) {
    Guarded target(300);
    const Status status =
        decode_checksum(Bytes(frame).first(size), as_bytes(kHash), target.bytes());
    EXPECT_EQ(status.code(), Code::corruption) << size;
    EXPECT_TRUE(target.is_untouched()) << size;
  }
}

TEST(Checksum, FindsEveryFlippedBit) {
  const Buffer frame = frame_of(random_bytes(300, 6));
  for (size_t bit = 0; bit < 8 * frame.size(); ++bit) {
    Buffer damaged = frame;
    damaged[bit / 8] ^= static_cast<std::byte>(1 << (bit % 8));
    Guarded target(300);
    const Status status = decode_checksum(damaged, as_bytes(kHash), target.bytes());
    const size_t at = bit / 8;
    EXPECT_EQ(status.code(), at == 0 ? Code::invalid : Code::corruption) << bit;
    EXPECT_TRUE(target.is_intact()) << bit;
    EXPECT_TRUE(at < 9 ? target.is_untouched() : target.is_wiped()) << bit;
  }
}

TEST(Checksum, BelongsToTheFirstEightBytesOfItsHash) {
  const Buffer payload = random_bytes(32, 7);
  const Buffer frame = frame_of(payload, "12345678 and more");
  const auto read_with = [&](std::string_view hash) {
    Guarded target(32);
    return decode_checksum(frame, as_bytes(hash), target.bytes()).code();
  };
  EXPECT_EQ(read_with("12345678 and more"), Code::ok);
  EXPECT_EQ(read_with("12345678"), Code::ok);
  EXPECT_EQ(read_with("1234567"), Code::corruption);
  EXPECT_EQ(read_with("12345679"), Code::corruption);
  EXPECT_EQ(read_with(""), Code::corruption);
}

TEST(Checksum, PadsAShortHash) {
  const Buffer frame = frame_of({}, "ab");
  // XXH3-64 of nothing is a published number.
  EXPECT_EQ(frame, hex("0161620000000000002d06800538d394c2"));
}

}  // namespace
}  // namespace aerokv::codec
