// SPDX-License-Identifier: Apache-2.0
#include "base/hex.h"
#include "connector/serde_store.h"

namespace aerokv {

SerdeKey serde_key_of(std::string_view key) {
  constexpr size_t kHashField = 3;
  std::string_view rest = key;
  for (size_t i = 0; i < kHashField; ++i) {
    const size_t at = rest.find('@');
    if (at == std::string_view::npos) return {std::string(key), {}};
    rest.remove_prefix(at + 1);
  }
  const size_t end = rest.find('@');
  SerdeKey out;
  const std::optional<std::string> hash = from_hex(rest.substr(0, end));
  out.chunk_hash = hash && !hash->empty() ? *hash : std::string(key);
  if (end != std::string_view::npos) out.cache_salt = rest.substr(end + 1);
  return out;
}

}  // namespace aerokv
