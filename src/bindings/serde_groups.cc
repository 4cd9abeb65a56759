// SPDX-License-Identifier: Apache-2.0
// Classes MultiSerializer and MultiDeserializer: several tensors at one endpoint.
#include <nanobind/nanobind.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "aerokv/serde.h"
#include "bindings/buffers.h"
#include "bindings/errors.h"
#include "bindings/gil.h"
#include "bindings/serde_buffers.h"
#include "bindings/serde_config.h"
#include "bindings/serde_transforms.h"
#include "serde/k16v8.h"
#include "serde/params.h"

namespace aerokv::bindings {
namespace {

/// The tensors of a group, with absent ones.
class HeldGroup {
 public:
  HeldGroup(nb::handle group, Access access, const char* name) {
    const nb::object sequence = as_sequence(group, name, "tensors or None");
    const Py_ssize_t count = PySequence_Fast_GET_SIZE(sequence.ptr());
    for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(sequence.ptr()) && i < count; ++i) {
      const nb::object slot = nb::borrow(PySequence_Fast_GET_ITEM(sequence.ptr(), i));
      if (slot.is_none()) {
        held_.emplace_back();
      } else {
        held_.emplace_back(hold_tensor(slot, access, {name, i}));
      }
    }
  }

  /// Views into this object.
  template <typename View>
  [[nodiscard]] std::vector<std::optional<View>> views() const {
    std::vector<std::optional<View>> out;
    for (const std::optional<HeldMemory>& held : held_) {
      out.push_back(held ? std::optional<View>(View{held->layout, held->bytes}) : std::nullopt);
    }
    return out;
  }

  void refuse_overlap_with(const HeldMemory& other, const char* dst_name) const {
    for (const std::optional<HeldMemory>& held : held_) {
      if (held) refuse_overlap(*held, other, {dst_name});
    }
  }

 private:
  std::vector<std::optional<HeldMemory>> held_;
};

// The formats that take groups; there is one so far.
void check_type(const SerdeConfig& config) {
  if (config.type == "k16v8") return;
  raise_invalid("serde: type \"" + config.type + "\" takes no groups, expected k16v8");
}

class PyMultiSerializer {
 public:
  explicit PyMultiSerializer(nb::handle dict) {
    const SerdeConfig config = read_serde_config(dict, "serde");
    check_type(config);
    serde::ParamReader reader(config.type, config.params);
    const std::string name = reader.text("k_dtype", "bfloat16");
    const std::optional<DType> k_dtype = parse_dtype(name);
    if (!k_dtype) reader.fail("k_dtype", "another text", "the name of a dtype of torch");
    if (const Status status = reader.finish(); !status) raise(status);
    native_ = std::make_unique<serde::K16V8MultiSerializer>(*k_dtype);
  }

  [[nodiscard]] size_t group_size() const { return native_->group_size(); }

  size_t serialize(nb::handle src, nb::handle dst, nb::handle key) const {
    const HeldGroup group(src, Access::read, "src");
    const HeldMemory target = hold_bytes(dst, Access::write, {"dst"});
    group.refuse_overlap_with(target, "dst");
    const SerdeKey native_key = read_serde_key(key, {"key"});
    const ObjectGroup views = group.views<ObjectView>();
    Result<size_t> written = Status();
    {
      const GilReleased released;
      written = native_->serialize(views, target.bytes, native_key);
    }
    if (!written) raise(written.error());
    return *written;
  }

  [[nodiscard]] size_t estimate(nb::handle layouts) const {
    const nb::object sequence = as_sequence(layouts, "layout_descs", "layouts or None");
    LayoutGroup group;
    for (Py_ssize_t i = 0; i < PySequence_Fast_GET_SIZE(sequence.ptr()); ++i) {
      const nb::object slot = nb::borrow(PySequence_Fast_GET_ITEM(sequence.ptr(), i));
      group.push_back(slot.is_none() ? std::nullopt
                                     : std::optional(read_layout(slot, {"layout_descs", i})));
    }
    const Result<size_t> bytes = native_->estimate_serialized_size(group);
    if (!bytes) raise(bytes.error());
    return *bytes;
  }

 private:
  std::unique_ptr<MultiSerializer> native_;
};

class PyMultiDeserializer {
 public:
  explicit PyMultiDeserializer(nb::handle dict) {
    const SerdeConfig config = read_serde_config(dict, "serde");
    check_type(config);
    serde::ParamReader reader(config.type, config.params);
    if (const Status status = reader.finish(); !status) raise(status);
    native_ = std::make_unique<serde::K16V8MultiDeserializer>();
  }

  [[nodiscard]] size_t group_size() const { return native_->group_size(); }

  void deserialize(nb::handle src, nb::handle dst, nb::handle key) const {
    const HeldMemory source = hold_bytes(src, Access::read, {"src"});
    const HeldGroup group(dst, Access::write, "dst");
    group.refuse_overlap_with(source, "dst");
    const SerdeKey native_key = read_serde_key(key, {"key"});
    const MutableObjectGroup views = group.views<MutableObjectView>();
    Status status;
    {
      const GilReleased released;
      status = native_->deserialize(source.bytes, views, native_key);
    }
    if (!status) raise(status);
  }

 private:
  std::unique_ptr<MultiDeserializer> native_;
};

}  // namespace

void bind_serde_groups(nb::module_& module) {
  nb::class_<PyMultiSerializer> serializer(module, "MultiSerializer",
                                           "Turns a group of tensors into bytes.");
  serializer.def(
      "__init__",
      [](PyMultiSerializer* self, nb::handle config) { new (self) PyMultiSerializer(config); },
      nb::arg("config"));
  serializer.def_prop_ro("group_size", &PyMultiSerializer::group_size, "Tensors of a group.");
  serializer.def("serialize", &PyMultiSerializer::serialize, nb::arg("src").none(),
                 nb::arg("dst").none(), nb::arg("key") = nb::none(),
                 "Write the serialized form of the group to the front of dst; returns its bytes.");
  serializer.def("estimate_serialized_size", &PyMultiSerializer::estimate,
                 nb::arg("layout_descs").none(),
                 "An upper bound of what serialize() writes for groups of these layouts.");

  nb::class_<PyMultiDeserializer> deserializer(module, "MultiDeserializer",
                                               "Turns bytes back into a group of tensors.");
  deserializer.def(
      "__init__",
      [](PyMultiDeserializer* self, nb::handle config) { new (self) PyMultiDeserializer(config); },
      nb::arg("config"));
  deserializer.def_prop_ro("group_size", &PyMultiDeserializer::group_size, "Tensors of a group.");
  deserializer.def("deserialize", &PyMultiDeserializer::deserialize, nb::arg("src").none(),
                   nb::arg("dst").none(), nb::arg("key") = nb::none(),
                   "Fill the tensors of the group that are not None.");
}

}  // namespace aerokv::bindings
