// SPDX-License-Identifier: Apache-2.0
// User keys found in a set: what parses is exactly what we would have written.
#include "fuzz.h"
#include "store/keys.h"

using aerokv::fuzz::require;
namespace store = aerokv::store;

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  const std::string_view text = aerokv::as_text(aerokv::fuzz::input(data, size));
  if (const auto name = store::parse_user_key(text)) {
    const std::string key(name->logical_key);
    require(store::check_logical_key(key).ok());
    const bool is_meta = name->kind == store::RecordKind::meta;
    require(text == (is_meta ? store::meta_user_key(key)
                             : store::segment_user_key(key, name->segment_index)));
  }
  if (store::check_logical_key(text).ok()) {
    const std::string meta = store::meta_user_key(text);
    const std::string segment = store::segment_user_key(text, static_cast<uint32_t>(size * 7919));
    for (const std::string& user_key : {meta, segment}) {
      const auto name = store::parse_user_key(user_key);
      require(name && name->logical_key == text);
    }
  }
  return 0;
}
