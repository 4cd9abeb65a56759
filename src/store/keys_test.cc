// SPDX-License-Identifier: Apache-2.0
#include "store/keys.h"

#include <gtest/gtest.h>

#include <map>
#include <random>
#include <set>
#include <string>
#include <utility>
#include <vector>

#include "base/limits.h"
#include "wire/digest.h"

namespace aerokv::store {
namespace {

TEST(Keys, FormIsFixedBySchema) {
  EXPECT_EQ(meta_user_key("llama@01000100@0@00aa"), "llama@01000100@0@00aa|m");
  EXPECT_EQ(segment_user_key("llama@01000100@0@00aa", 0), "llama@01000100@0@00aa|s|0");
  EXPECT_EQ(segment_user_key("k", 3), "k|s|3");
  EXPECT_EQ(segment_user_key("k", 4294967295U), "k|s|4294967295");
}

TEST(Keys, LengthLimits) {
  EXPECT_EQ(check_logical_key("").code(), Code::invalid);
  EXPECT_TRUE(check_logical_key(std::string(kKeyBytesMax, 'x')).ok());
  EXPECT_EQ(check_logical_key(std::string(kKeyBytesMax + 1, 'x')).code(), Code::invalid);
  EXPECT_TRUE(check_logical_key(std::string("\0\xff|\n", 4)).ok());
}

TEST(Keys, ParseRefusesWhatIsNotOurs) {
  for (const std::string user_key : {"",
                                     "|m",
                                     "|s|0",
                                     "m",
                                     "k",
                                     "k|",
                                     "k|s",
                                     "k|s|",
                                     "k|s|00",
                                     "k|s|01",
                                     "k|s|-1",
                                     "k|s|+1",
                                     "k|s| 1",
                                     "k|s|1 ",
                                     "k|s|0x1",
                                     "k|s|4294967296",
                                     "k|s|99999999999999999999",
                                     "k|t|1",
                                     "k|1",
                                     "ks|1",
                                     "k|m|1",
                                     "k|s|1a2b3c4d5e6f7081|0",
                                     "k|M"}) {
    EXPECT_FALSE(parse_user_key(user_key)) << user_key;
  }
  EXPECT_FALSE(parse_user_key(std::string(kKeyBytesMax + 1, 'x') + "|m"));
}

// Logical keys that look like record keys themselves, and every text that could confuse a parser.
std::vector<std::string> awkward_keys() {
  std::vector<std::string> keys = {"k",
                                   "k|m",
                                   "k|s|0",
                                   "k|s|3",
                                   "k|s|3|m",
                                   "k|m|s|3",
                                   "k|s",
                                   "k|s|",
                                   "|",
                                   "||",
                                   "|m",
                                   "|s|0",
                                   "org/model-SEP-name",
                                   "org/model/name",
                                   "org-SEP-model-SEP-name",
                                   "a@b@c",
                                   "a%b",
                                   "a b",
                                   "0",
                                   "s|0",
                                   "m",
                                   std::string("a\0b", 3),
                                   "a",
                                   "\xc3\xa9\xe2\x82\xac",
                                   "llama@000000ff@0@aa@alice",
                                   "llama@000000ff@0@aa",
                                   "llama@000000ff@0@aa@"};
  keys.push_back(std::string(200, 'm') + "@" + std::string(64, 'f') + "@" + std::string(128, 's'));
  return keys;
}

TEST(Keys, ParseIsInverse) {
  for (const std::string& key : awkward_keys()) {
    const std::string meta = meta_user_key(key);
    const auto parsed = parse_user_key(meta);
    ASSERT_TRUE(parsed) << meta;
    EXPECT_EQ(parsed->logical_key, key);
    EXPECT_EQ(parsed->kind, RecordKind::meta);
    for (const uint32_t index : {0U, 1U, 9U, 10U, 1279U, 65535U, 4294967295U}) {
      const std::string segment = segment_user_key(key, index);
      const auto name = parse_user_key(segment);
      ASSERT_TRUE(name) << segment;
      EXPECT_EQ(name->logical_key, key);
      EXPECT_EQ(name->kind, RecordKind::segment);
      EXPECT_EQ(name->segment_index, index);
    }
  }
}

// Random keys over the alphabet of the suffixes: the worst case for injectivity.
TEST(Keys, RecordKeysNeverCollide) {
  const uint32_t seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937 random(seed);
  std::set<std::string> logical;
  for (const std::string& key : awkward_keys()) logical.insert(key);
  constexpr std::string_view kAlphabet = "|ms01";
  while (logical.size() < 3000) {
    std::string key(1 + random() % 8, ' ');
    for (char& c : key) c = kAlphabet[random() % kAlphabet.size()];
    logical.insert(key);
  }
  std::map<std::string, std::string> owner;
  std::set<wire::Digest> digests;
  const auto add = [&](const std::string& user_key, const std::string& key) {
    const auto [it, is_new] = owner.emplace(user_key, key);
    EXPECT_TRUE(is_new) << user_key << " names records of " << it->second << " and " << key;
    EXPECT_TRUE(digests.insert(wire::compute_digest("kv_chunks", user_key)).second) << user_key;
  };
  for (const std::string& key : logical) {
    add(meta_user_key(key), key);
    for (const uint32_t index : {0U, 1U, 10U, 11U, 100U, 101U}) {
      add(segment_user_key(key, index), key);
    }
  }
  EXPECT_EQ(owner.size(), logical.size() * 7);
}

}  // namespace
}  // namespace aerokv::store
