// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include "serde/serdes_testing.h"

namespace aerokv::serde {
namespace {

TEST(SingleToMulti, GroupsOfOneHaveTheSameBytes) {
  TestObjects objects(2, 300);
  const Serde serde = test_serde();
  const auto serializer = single_to_multi_serializer(serde.serializer);
  const auto deserializer = single_to_multi_deserializer(serde.deserializer);
  EXPECT_EQ(serializer->group_size(), 1U);
  EXPECT_EQ(deserializer->group_size(), 1U);
  const ObjectView source{*objects.layout, objects.plain[0]};
  const SerdeKey key{"abc", "salt"};
  EXPECT_EQ(*serializer->estimate_serialized_size({*objects.layout}), 301U);
  EXPECT_EQ(*serializer->serialize({source}, objects.stored[0], key), 301U);
  EXPECT_EQ(*serde.serializer->serialize(source, objects.stored[1], key), 301U);
  EXPECT_EQ(objects.stored[0], objects.stored[1]);
  ASSERT_TRUE(deserializer
                  ->deserialize(objects.stored[0],
                                {MutableObjectView{*objects.layout, objects.plain[1]}}, key)
                  .ok());
  EXPECT_EQ(objects.plain[0], objects.plain[1]);
}

TEST(SingleToMulti, AbsentSourcesAreErrorsAndAbsentTargetsAreSkipped) {
  const Serde serde = test_serde();
  const auto serializer = single_to_multi_serializer(serde.serializer);
  const auto deserializer = single_to_multi_deserializer(serde.deserializer);
  std::byte buffer[8] = {};
  EXPECT_EQ(serializer->serialize({std::nullopt}, buffer, {}).error().code(), Code::invalid);
  EXPECT_EQ(serializer->estimate_serialized_size({std::nullopt}).error().code(), Code::invalid);
  EXPECT_TRUE(deserializer->deserialize({}, {std::nullopt}, {}).ok());
}

TEST(SingleToMulti, OtherGroupLengthsAreRefused) {
  TestObjects objects(1, 3);
  const Serde serde = test_serde();
  const auto serializer = single_to_multi_serializer(serde.serializer);
  const auto deserializer = single_to_multi_deserializer(serde.deserializer);
  for (const size_t size : {0U, 2U, 3U}) {
    const ObjectGroup sources(size, ObjectView{*objects.layout, objects.plain[0]});
    const LayoutGroup layouts(size, *objects.layout);
    const MutableObjectGroup targets(size, std::nullopt);
    EXPECT_EQ(serializer->serialize(sources, objects.stored[0], {}).error().code(), Code::invalid);
    EXPECT_EQ(serializer->estimate_serialized_size(layouts).error().code(), Code::invalid);
    EXPECT_EQ(deserializer->deserialize(objects.stored[0], targets, {}).code(), Code::invalid);
  }
}

}  // namespace
}  // namespace aerokv::serde
