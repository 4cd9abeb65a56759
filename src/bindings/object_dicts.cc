// SPDX-License-Identifier: Apache-2.0
#include "bindings/object_dicts.h"

#include <nanobind/stl/string.h>

#include <string_view>

namespace aerokv::bindings {
namespace {

namespace nb = nanobind;

nb::object expiry(int64_t expires_in) {
  return expires_in < 0 ? nb::none() : nb::object(nb::int_(expires_in));
}

}  // namespace

nb::object text_of(std::string_view text) {
  return nb::steal(
      PyUnicode_DecodeUTF8(text.data(), static_cast<Py_ssize_t>(text.size()), "backslashreplace"));
}

nb::dict object_dict(const ObjectInfo& object) {
  nb::dict out;
  out["key"] = object.key.empty() ? nb::none() : text_of(object.key);
  out["digest"] = object.digest;
  out["bytes"] = object.bytes;
  out["segment_count"] = object.segment_count;
  out["segment_bytes"] = object.segment_bytes;
  out["created_at"] = object.created_at;
  out["expires_in"] = expiry(object.expires_in);
  out["generation"] = object.generation;
  out["pin"] = object.pin;
  out["ready"] = object.ready;
  out["serde"] = object.serde.empty() ? nb::none() : text_of(object.serde);
  out["raw_bytes"] = object.raw_bytes;
  return out;
}

nb::dict details_dict(const ObjectDetails& details) {
  nb::dict out = object_dict(details.info);
  out["has_sums"] = details.has_sums;
  out["has_crc32"] = details.has_crc32;
  out["metadata_bytes"] = details.metadata_bytes;
  nb::list records;
  for (const RecordInfo& record : details.records) {
    nb::dict row;
    row["user_key"] = text_of(record.user_key);
    row["digest"] = record.digest;
    row["present"] = record.present;
    row["generation"] = record.generation;
    row["expires_in"] = expiry(record.expires_in);
    row["node"] = record.node;
    row["sum_agrees"] = record.sum_agrees ? nb::object(nb::bool_(*record.sum_agrees)) : nb::none();
    records.append(row);
  }
  out["records"] = records;
  return out;
}

}  // namespace aerokv::bindings
