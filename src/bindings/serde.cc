// SPDX-License-Identifier: Apache-2.0
// Classes Serializer and Deserializer: one transform at a time, on the calling thread.
#include "aerokv/serde.h"

#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <utility>

#include "bindings/bind.h"
#include "bindings/errors.h"
#include "bindings/gil.h"
#include "bindings/serde_buffers.h"
#include "bindings/serde_config.h"
#include "bindings/serde_transforms.h"

namespace aerokv::bindings {
namespace {

Serde make_pair(nb::handle config) {
  const SerdeConfig read = read_serde_config(config, "serde");
  Result<Serde> made = Status();
  {
    const GilReleased released;  // a key file may be read
    made = make_serde(read);
  }
  if (!made) raise(made.error());
  return std::move(made).value();
}

template <typename Class>
void bind_common(nb::class_<Class>& type, const char* name) {
  type.def(
      "__init__", [](Class* self, nb::handle config) { new (self) Class(config); },
      nb::arg("config"));
  type.def_prop_ro("tag", &Class::tag,
                   "The format and all parameters that a reader must share, without secrets.");
  type.def("__repr__",
           [name](const Class& self) { return "<" + std::string(name) + " " + self.tag() + ">"; });
}

}  // namespace

PySerializer::PySerializer(nb::handle config) {
  Serde pair = make_pair(config);
  native_ = std::move(pair.serializer);
  tag_ = std::move(pair.tag);
}

size_t PySerializer::serialize(nb::handle src, nb::handle dst, nb::handle key) const {
  const HeldMemory source = hold_tensor(src, Access::read, {"src"});
  const HeldMemory target = hold_bytes(dst, Access::write, {"dst"});
  refuse_overlap(source, target, {"dst"});
  const SerdeKey native_key = read_serde_key(key, {"key"});
  Result<size_t> written = Status();
  {
    const GilReleased released;
    written = native_->serialize({source.layout, source.bytes}, target.bytes, native_key);
  }
  if (!written) raise(written.error());
  return *written;
}

size_t PySerializer::estimate(nb::handle layout) const {
  const Result<size_t> bytes = native_->estimate_serialized_size(read_layout(layout, {"layout"}));
  if (!bytes) raise(bytes.error());
  return *bytes;
}

PyDeserializer::PyDeserializer(nb::handle config) {
  Serde pair = make_pair(config);
  native_ = std::move(pair.deserializer);
  tag_ = std::move(pair.tag);
}

void PyDeserializer::deserialize(nb::handle src, nb::handle dst, nb::handle key) const {
  const HeldMemory source = hold_bytes(src, Access::read, {"src"});
  const HeldMemory target = hold_tensor(dst, Access::write, {"dst"});
  refuse_overlap(source, target, {"dst"});
  const SerdeKey native_key = read_serde_key(key, {"key"});
  Status status;
  {
    const GilReleased released;
    status = native_->deserialize(source.bytes, {target.layout, target.bytes}, native_key);
  }
  if (!status) raise(status);
}

void bind_serde(nb::module_& module) {
  nb::class_<PySerializer> serializer(module, "Serializer",
                                      "Turns a tensor into bytes. Immutable, thread-safe.");
  bind_common(serializer, "Serializer");
  serializer.def("serialize", &PySerializer::serialize, nb::arg("src").none(),
                 nb::arg("dst").none(), nb::arg("key") = nb::none(),
                 "Write the serialized form of src to the front of dst; returns its bytes.");
  serializer.def("estimate_serialized_size", &PySerializer::estimate, nb::arg("layout").none(),
                 "An upper bound of what serialize() writes for tensors of this layout.");

  nb::class_<PyDeserializer> deserializer(
      module, "Deserializer", "Turns bytes back into a tensor. Immutable, thread-safe.");
  bind_common(deserializer, "Deserializer");
  deserializer.def("deserialize", &PyDeserializer::deserialize, nb::arg("src").none(),
                   nb::arg("dst").none(), nb::arg("key") = nb::none(),
                   "Fill dst from the serialized bytes at the front of src.");

  module.def("serde_types", &registered_serde_types, "The names of the built-in formats.");
  bind_serde_groups(module);
  bind_serde_processor(module);
}

}  // namespace aerokv::bindings
