// SPDX-License-Identifier: Apache-2.0
// Forty digests on which the official client and an independent RIPEMD-160 agree.
#include <gtest/gtest.h>

#include <charconv>

#include "recordings.h"
#include "wire/digest.h"

namespace aerokv::golden {
namespace {

TEST(GoldenDigests, AllAgree) {
  const Json file = parse_json(read_golden("aerospike/digests.json"));
  ASSERT_EQ(file["vectors"].list.size(), 40U);
  for (const Json& vector : file["vectors"].list) {
    const std::string& set = vector["set"].text;
    const std::string& type = vector["key_type"].text;
    const std::string& text = vector["key"].text;
    SCOPED_TRACE(set + " " + type + " " + text);
    std::vector<std::byte> key;
    wire::Particle particle = wire::Particle::string;
    if (type == "int") {
      particle = wire::Particle::integer;
      int64_t number = 0;
      std::from_chars(text.data(), text.data() + text.size(), number);
      key.resize(8);
      store_be<uint64_t>(key.data(), static_cast<uint64_t>(number));
    } else if (type == "bytes") {
      particle = wire::Particle::blob;
      key = from_hex(text);
    } else {
      ASSERT_EQ(type, "str");
      key.assign(as_bytes(text).begin(), as_bytes(text).end());
    }
    EXPECT_EQ(to_hex(key), vector["key_value_hex"].text);
    const wire::Digest digest = wire::compute_digest(set, particle, key);
    EXPECT_EQ(to_hex({digest.begin(), digest.end()}), vector["digest"].text);
    EXPECT_EQ(wire::partition_of(digest), vector["partition"].number);
  }
}

}  // namespace
}  // namespace aerokv::golden
