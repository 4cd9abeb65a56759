// SPDX-License-Identifier: Apache-2.0
#include "serde/key_provider.h"

namespace aerokv::serde {
namespace {

constexpr std::string_view kInfoPrefix = "lmcache-l2-aesgcm-v1";

}  // namespace

Result<codec::SecretBytes> HkdfKeyProvider::key(std::string_view cache_salt) {
  const std::lock_guard lock(mutex_);
  if (const auto found = keys_.find(cache_salt); found != keys_.end()) return found->second;
  std::string info(kInfoPrefix);
  info += cache_salt;
  Result<codec::SecretBytes> derived =
      codec::hkdf_sha256(master_.bytes(), as_bytes(info), key_bytes_);
  if (!derived) return derived;
  if (keys_.size() >= kTenantKeysMax) {
    keys_.erase(ages_.front());
    ages_.pop_front();
  }
  ages_.emplace_back(cache_salt);
  keys_.emplace(ages_.back(), *derived);
  return derived;
}

}  // namespace aerokv::serde
