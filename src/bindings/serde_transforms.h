// SPDX-License-Identifier: Apache-2.0
// The transforms as Python objects.
#pragma once

#include <nanobind/nanobind.h>

#include <memory>
#include <string>

#include "aerokv/serde.h"

namespace aerokv::bindings {

/// Class Serializer of the extension module.
class PySerializer {
 public:
  explicit PySerializer(nanobind::handle config);

  size_t serialize(nanobind::handle src, nanobind::handle dst, nanobind::handle key) const;
  [[nodiscard]] size_t estimate(nanobind::handle layout) const;
  [[nodiscard]] const std::string& tag() const { return tag_; }
  [[nodiscard]] const std::shared_ptr<const Serializer>& native() const { return native_; }

 private:
  std::shared_ptr<const Serializer> native_;
  std::string tag_;
};

/// Class Deserializer of the extension module.
class PyDeserializer {
 public:
  explicit PyDeserializer(nanobind::handle config);

  void deserialize(nanobind::handle src, nanobind::handle dst, nanobind::handle key) const;
  [[nodiscard]] const std::string& tag() const { return tag_; }
  [[nodiscard]] const std::shared_ptr<const Deserializer>& native() const { return native_; }

 private:
  std::shared_ptr<const Deserializer> native_;
  std::string tag_;
};

/// Binds class SerdeProcessor.
void bind_serde_processor(nanobind::module_& module);

/// Binds classes MultiSerializer and MultiDeserializer.
void bind_serde_groups(nanobind::module_& module);

}  // namespace aerokv::bindings
