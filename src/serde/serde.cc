// SPDX-License-Identifier: Apache-2.0
#include "aerokv/serde.h"

namespace aerokv {
namespace {

class Serial final : public Parallel {
 public:
  void run(size_t count, const std::function<void(size_t)>& part) override {
    for (size_t i = 0; i < count; ++i) part(i);
  }
};

Status check_size(const char* what, const Layout& layout, size_t bytes) {
  const Result<uint64_t> expected = layout_bytes(layout);
  if (!expected) return expected.error().with_context(what);
  if (*expected == bytes) return {};
  return {Code::invalid, std::string(what) + ": buffer of " + std::to_string(bytes) +
                             " bytes, expected " + std::to_string(*expected) + " for " +
                             layout_text(layout)};
}

}  // namespace

Parallel& serial() {
  static Serial instance;
  return instance;
}

Result<size_t> Serializer::serialize(const ObjectView& src, MutableBytes dst, const SerdeKey& key,
                                     Parallel& parallel) const {
  AEROKV_TRY(check_size("serialize: source", src.layout, src.bytes.size()));
  return encode(src, dst, key, parallel);
}

Status Deserializer::deserialize(Bytes src, const MutableObjectView& dst, const SerdeKey& key,
                                 Parallel& parallel) const {
  AEROKV_TRY(check_size("deserialize: target", dst.layout, dst.bytes.size()));
  return decode(src, dst, key, parallel);
}

}  // namespace aerokv
