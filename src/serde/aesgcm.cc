// SPDX-License-Identifier: Apache-2.0
#include "codec/aesgcm.h"

#include "base/log.h"
#include "serde/builtin.h"
#include "serde/key_file.h"
#include "serde/key_provider.h"
#include "serde/params.h"

namespace aerokv::serde {
namespace {

class AesGcmSerializer final : public Serializer {
 public:
  explicit AesGcmSerializer(std::shared_ptr<HkdfKeyProvider> keys) : keys_(std::move(keys)) {}

  [[nodiscard]] Result<size_t> estimate_serialized_size(const Layout& layout) const override {
    const Result<uint64_t> bytes = layout_bytes(layout);
    if (!bytes) return bytes.error().with_context("aesgcm");
    return *bytes + codec::kAesGcmOverhead;
  }

  [[nodiscard]] bool is_exact_size() const override { return true; }

 private:
  // One authenticated stream: one thread does it.
  Result<size_t> encode(const ObjectView& src, MutableBytes dst, const SerdeKey& key,
                        Parallel& /*parallel*/) const override {
    const size_t size = src.bytes.size() + codec::kAesGcmOverhead;
    if (dst.size() < size) {
      return Status(Code::invalid, "aesgcm: target of " + std::to_string(dst.size()) +
                                       " bytes, expected " + std::to_string(size));
    }
    const Result<codec::SecretBytes> data_key = keys_->key(key.cache_salt);
    if (!data_key) return data_key.error();
    AEROKV_TRY(codec::encrypt_aesgcm(data_key->bytes(), src.bytes, dst.first(size)));
    return size;
  }

  std::shared_ptr<HkdfKeyProvider> keys_;
};

class AesGcmDeserializer final : public Deserializer {
 public:
  explicit AesGcmDeserializer(std::shared_ptr<HkdfKeyProvider> keys) : keys_(std::move(keys)) {}

 private:
  Status decode(Bytes src, const MutableObjectView& dst, const SerdeKey& key,
                Parallel& /*parallel*/) const override {
    const Result<codec::SecretBytes> data_key = keys_->key(key.cache_salt);
    if (!data_key) return data_key.error();
    return codec::decrypt_aesgcm(data_key->bytes(), src, dst.bytes);
  }

  std::shared_ptr<HkdfKeyProvider> keys_;
};

}  // namespace

Result<Serde> make_aesgcm(const SerdeParams& params) {
  ParamReader reader("aesgcm", params);
  const std::string path = reader.text("master_key_path", "");
  const int64_t bits = reader.integer("aes_bits", 128, 128, 256);
  reader.choice("key_provider", {"hkdf"}, 0);
  if (path.empty()) reader.fail("master_key_path", "nothing", "the path of a key file");
  if (bits != 128 && bits != 256) reader.fail("aes_bits", std::to_string(bits), "128 or 256");
  AEROKV_TRY(reader.finish());
  Result<codec::SecretBytes> master = read_key_file(path);
  if (!master) return master.error().with_context("serde aesgcm: master_key_path");
  const size_t key_bytes = static_cast<size_t>(bits) / 8;
  if (master->size() < key_bytes) {
    log(LogLevel::warning, "aesgcm key",
        "the master key in " + path + " has " + std::to_string(master->size()) +
            " bytes, fewer than the " + std::to_string(key_bytes) + " of the keys made from it");
  }
  const auto keys = std::make_shared<HkdfKeyProvider>(std::move(*master), key_bytes);
  return Serde{std::make_shared<AesGcmSerializer>(keys), std::make_shared<AesGcmDeserializer>(keys),
               "aesgcm:" + std::to_string(bits)};
}

}  // namespace aerokv::serde
