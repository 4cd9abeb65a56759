// SPDX-License-Identifier: Apache-2.0
#include "codec/checksum.h"

#include "serde/builtin.h"
#include "serde/params.h"

namespace aerokv::serde {
namespace {

class ChecksumSerializer final : public Serializer {
 public:
  [[nodiscard]] Result<size_t> estimate_serialized_size(const Layout& layout) const override {
    const Result<uint64_t> bytes = layout_bytes(layout);
    if (!bytes) return bytes.error().with_context("checksum");
    return *bytes + codec::kChecksumOverhead;
  }

  [[nodiscard]] bool is_exact_size() const override { return true; }

 private:
  // The sum needs the bytes in their order: one thread does it.
  Result<size_t> encode(const ObjectView& src, MutableBytes dst, const SerdeKey& key,
                        Parallel& /*parallel*/) const override {
    const size_t size = src.bytes.size() + codec::kChecksumOverhead;
    if (dst.size() < size) {
      return Status(Code::invalid, "checksum: target of " + std::to_string(dst.size()) +
                                       " bytes, expected " + std::to_string(size));
    }
    codec::encode_checksum(src.bytes, as_bytes(key.chunk_hash), dst.first(size));
    return size;
  }
};

class ChecksumDeserializer final : public Deserializer {
 private:
  Status decode(Bytes src, const MutableObjectView& dst, const SerdeKey& key,
                Parallel& /*parallel*/) const override {
    return codec::decode_checksum(src, as_bytes(key.chunk_hash), dst.bytes);
  }
};

}  // namespace

Result<Serde> make_checksum(const SerdeParams& params) {
  ParamReader reader("checksum", params);
  AEROKV_TRY(reader.finish());
  return Serde{std::make_shared<ChecksumSerializer>(), std::make_shared<ChecksumDeserializer>(),
               "checksum"};
}

}  // namespace aerokv::serde
