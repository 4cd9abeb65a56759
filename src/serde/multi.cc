// SPDX-License-Identifier: Apache-2.0
// The bridges between transforms of one object and transforms of groups.
#include <string>
#include <utility>

#include "aerokv/serde.h"

namespace aerokv {
namespace {

Status check_group(const char* what, size_t size) {
  if (size == 1) return {};
  return {Code::invalid,
          std::string(what) + ": a group of " + std::to_string(size) + ", expected 1"};
}

class SingleSerializer final : public MultiSerializer {
 public:
  explicit SingleSerializer(std::shared_ptr<const Serializer> inner) : inner_(std::move(inner)) {}

  [[nodiscard]] size_t group_size() const override { return 1; }

  Result<size_t> serialize(const ObjectGroup& src, MutableBytes dst,
                           const SerdeKey& key) const override {
    AEROKV_TRY(check_group("serialize", src.size()));
    if (!src[0]) return Status(Code::invalid, "serialize: slot 0 is absent, expected an object");
    return inner_->serialize(*src[0], dst, key);
  }

  [[nodiscard]] Result<size_t> estimate_serialized_size(const LayoutGroup& layouts) const override {
    AEROKV_TRY(check_group("estimate_serialized_size", layouts.size()));
    if (!layouts[0]) {
      return Status(Code::invalid, "estimate_serialized_size: slot 0 is absent, expected a layout");
    }
    return inner_->estimate_serialized_size(*layouts[0]);
  }

 private:
  std::shared_ptr<const Serializer> inner_;
};

class SingleDeserializer final : public MultiDeserializer {
 public:
  explicit SingleDeserializer(std::shared_ptr<const Deserializer> inner)
      : inner_(std::move(inner)) {}

  [[nodiscard]] size_t group_size() const override { return 1; }

  Status deserialize(Bytes src, const MutableObjectGroup& dst, const SerdeKey& key) const override {
    AEROKV_TRY(check_group("deserialize", dst.size()));
    return dst[0] ? inner_->deserialize(src, *dst[0], key) : Status();
  }

 private:
  std::shared_ptr<const Deserializer> inner_;
};

}  // namespace

std::unique_ptr<MultiSerializer> single_to_multi_serializer(
    std::shared_ptr<const Serializer> inner) {
  return std::make_unique<SingleSerializer>(std::move(inner));
}

std::unique_ptr<MultiDeserializer> single_to_multi_deserializer(
    std::shared_ptr<const Deserializer> inner) {
  return std::make_unique<SingleDeserializer>(std::move(inner));
}

}  // namespace aerokv
