// SPDX-License-Identifier: Apache-2.0
// Data keys of tenants, derived from one master key.
#pragma once

#include <deque>
#include <map>
#include <mutex>
#include <string>
#include <string_view>

#include "aerokv/status.h"
#include "codec/hkdf.h"

namespace aerokv::serde {

/// Tenants whose keys are kept at hand; deriving one anew takes some microseconds.
inline constexpr size_t kTenantKeysMax = 1024;

/// HKDF-SHA256 of a master key, with a tenant's salt in the info. Thread-safe.
class HkdfKeyProvider {
 public:
  /// `key_bytes` is 16 or 32.
  HkdfKeyProvider(codec::SecretBytes master, size_t key_bytes)
      : master_(std::move(master)), key_bytes_(key_bytes) {}

  /// The key of the tenant `cache_salt` (UTF-8; empty = no tenant). Errors: internal (OpenSSL).
  Result<codec::SecretBytes> key(std::string_view cache_salt);

 private:
  const codec::SecretBytes master_;
  const size_t key_bytes_;

  std::mutex mutex_;
  // Guarded by mutex_. The oldest leaves first.
  std::map<std::string, codec::SecretBytes, std::less<>> keys_;
  std::deque<std::string> ages_;
};

}  // namespace aerokv::serde
