// SPDX-License-Identifier: Apache-2.0
#include "serde/key_file.h"

#include <fcntl.h>
#include <gtest/gtest.h>

#include "codec/frame_testing.h"
#include "serde/key_provider.h"
#include "serde/test_keys.h"

namespace aerokv::serde {
namespace {

using codec::Buffer;
using codec::equal;
using codec::random_bytes;

void expect_refused(const std::string& path, Code code, const std::string& reason) {
  const auto key = read_key_file(path);
  ASSERT_FALSE(key) << path;
  EXPECT_EQ(key.error().code(), code);
  EXPECT_NE(key.error().message().find(path), std::string::npos) << key.error().message();
  EXPECT_NE(key.error().message().find(reason), std::string::npos) << key.error().message();
}

TEST(KeyFile, IsReadAsItIs) {
  for (const size_t size : {size_t{1}, size_t{16}, size_t{33}, kKeyFileBytesMax}) {
    Buffer contents = random_bytes(size, size);
    contents.back() = std::byte{'\n'};
    const KeyFile file{Bytes(contents)};
    const auto key = read_key_file(file.path());
    ASSERT_TRUE(key) << key.error().message();
    EXPECT_TRUE(equal(key->bytes(), contents));
  }
}

TEST(KeyFile, MayBeReadOnlyAndBehindALink) {
  const KeyFile file("secret");
  file.set_mode(0400);
  const std::string link = file.path() + ".link";
  ASSERT_EQ(::symlink(file.path().c_str(), link.c_str()), 0);
  EXPECT_TRUE(read_key_file(link));
  ::unlink(link.c_str());
}

TEST(KeyFile, IsRefusedIfOthersMayTouchIt) {
  const KeyFile file("secret");
  for (const mode_t mode : std::vector<mode_t>{0640, 0604, 0620, 0602, 0610, 0601, 0644, 0666}) {
    file.set_mode(mode);
    char text[8];
    std::snprintf(text, sizeof(text), "%04o", static_cast<unsigned>(mode));
    expect_refused(file.path(), Code::denied, "mode " + std::string(text));
  }
  file.set_mode(0600);
  EXPECT_TRUE(read_key_file(file.path()));
}

TEST(KeyFile, IsRefusedIfItIsSomebodyElses) {
  if (::geteuid() != 0) GTEST_SKIP() << "only root can give files away";
  const KeyFile file("secret");
  ASSERT_EQ(::chown(file.path().c_str(), 12345, 12345), 0);
  expect_refused(file.path(), Code::denied, "owned by user 12345");
}

TEST(KeyFile, IsRefusedIfItIsNoFileOfAKey) {
  expect_refused("/nonexistent/key", Code::invalid, "No such file");
  expect_refused("/tmp", Code::invalid, "not a regular file");
  expect_refused("/dev/zero", Code::invalid, "not a regular file");
  const KeyFile empty("");
  expect_refused(empty.path(), Code::invalid, "0 bytes");
  const KeyFile large(std::string(kKeyFileBytesMax + 1, 'k'));
  expect_refused(large.path(), Code::invalid, "65537 bytes");
}

TEST(KeyFile, OpeningAPipeDoesNotWaitForItsWriter) {
  const KeyFile file("");
  const std::string pipe = file.path() + ".pipe";
  ASSERT_EQ(::mkfifo(pipe.c_str(), 0600), 0);
  expect_refused(pipe, Code::invalid, "not a regular file");
  ::unlink(pipe.c_str());
}

TEST(KeyProvider, GivesEachTenantItsKey) {
  HkdfKeyProvider keys(codec::SecretBytes(Bytes(random_bytes(32, 1))), 16);
  const auto one = keys.key("one");
  const auto two = keys.key("two");
  const auto none = keys.key("");
  ASSERT_TRUE(one && two && none);
  EXPECT_EQ(one->size(), 16U);
  EXPECT_FALSE(equal(one->bytes(), two->bytes()));
  EXPECT_FALSE(equal(one->bytes(), none->bytes()));
  EXPECT_TRUE(equal(one->bytes(), keys.key("one")->bytes()));
}

TEST(KeyProvider, GivesTheSameKeysHoweverManyTenantsThereAre) {
  HkdfKeyProvider keys(codec::SecretBytes(Bytes(random_bytes(32, 2))), 32);
  const auto first = keys.key("tenant 0");
  ASSERT_TRUE(first);
  for (size_t i = 0; i < 3 * kTenantKeysMax; ++i) {
    ASSERT_TRUE(keys.key("tenant " + std::to_string(i)));
  }
  EXPECT_TRUE(equal(first->bytes(), keys.key("tenant 0")->bytes()));
}

}  // namespace
}  // namespace aerokv::serde
