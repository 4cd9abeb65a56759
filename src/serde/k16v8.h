// SPDX-License-Identifier: Apache-2.0
// K and V as two objects in one container, byte-compatible with LMCache's asym_k16_v8.
// docs/formats/k16v8.md
#pragma once

#include "aerokv/serde.h"

namespace aerokv::serde {

/// Groups of two: slot 0 = K, bit-exact; slot 1 = V of bfloat16, float16 or float32, in 8 bits with
/// one scale. Each slot is one tensor, both of the same shape.
///
/// V is required. An absent K is held elsewhere: the container has none.
class K16V8MultiSerializer final : public MultiSerializer {
 public:
  /// `k_tag` says in containers without K what type it has elsewhere.
  explicit K16V8MultiSerializer(DType k_tag = DType::bfloat16) : k_tag_(k_tag) {}

  [[nodiscard]] size_t group_size() const override { return 2; }
  Result<size_t> serialize(const ObjectGroup& src, MutableBytes dst,
                           const SerdeKey& key) const override;
  /// Exact. V is required.
  [[nodiscard]] Result<size_t> estimate_serialized_size(const LayoutGroup& layouts) const override;

 private:
  DType k_tag_;
};

/// Groups of two as above. Either slot may be absent and is left alone; with both absent the source
/// is not looked at. Errors besides those of the interface: invalid (a slot that the container does
/// not have).
class K16V8MultiDeserializer final : public MultiDeserializer {
 public:
  [[nodiscard]] size_t group_size() const override { return 2; }
  Status deserialize(Bytes src, const MutableObjectGroup& dst, const SerdeKey& key) const override;
};

}  // namespace aerokv::serde
