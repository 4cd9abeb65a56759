// SPDX-License-Identifier: Apache-2.0
// Keys derived from keys (RFC 5869), and memory for them that is wiped.
#pragma once

#include <vector>

#include "aerokv/bytes.h"
#include "aerokv/status.h"

namespace aerokv::codec {

/// Bytes of a secret, overwritten with zeros when they are let go.
class SecretBytes {
 public:
  SecretBytes() = default;
  explicit SecretBytes(size_t size) : bytes_(size) {}
  explicit SecretBytes(Bytes bytes) : bytes_(bytes.begin(), bytes.end()) {}
  SecretBytes(const SecretBytes&) = default;
  SecretBytes(SecretBytes&&) noexcept = default;
  SecretBytes& operator=(const SecretBytes& other);
  SecretBytes& operator=(SecretBytes&& other) noexcept;
  ~SecretBytes() { wipe(); }

  [[nodiscard]] Bytes bytes() const { return bytes_; }
  [[nodiscard]] MutableBytes bytes() { return bytes_; }
  [[nodiscard]] size_t size() const { return bytes_.size(); }

  /// Forgets all bytes but the first `size`; there must be as many.
  void truncate(size_t size);

 private:
  void wipe();

  std::vector<std::byte> bytes_;
};

/// HKDF-SHA256 without a salt: `size` bytes (at most 32, one round) from `master` for `info`.
/// Errors: internal (OpenSSL).
Result<SecretBytes> hkdf_sha256(Bytes master, Bytes info, size_t size);

}  // namespace aerokv::codec
