// SPDX-License-Identifier: Apache-2.0
// Tensors and bytes as Python hands them to serdes: whatever says where its memory is.
#pragma once

#include <nanobind/nanobind.h>

#include <cstddef>
#include <memory>
#include <string>

#include "aerokv/bytes.h"
#include "aerokv/serde.h"
#include "aerokv/tensor.h"

namespace aerokv::bindings {

namespace nb = nanobind;

/// What errors call a value: "src", or "src_objs[3]".
struct ValueName {
  const char* name;
  ptrdiff_t index = -1;
  [[nodiscard]] std::string text() const;
};

enum class Access { read, write };

/// The memory of a Python object, which stays where it is as long as this lives. Moving needs no
/// GIL, everything else does.
class HeldMemory {
 public:
  Layout layout;       ///< of tensors; empty for bytes
  MutableBytes bytes;  ///< read-only if it was asked for Access::read

 private:
  friend class MemoryFinder;
  struct ReleaseView {
    void operator()(Py_buffer* view) const noexcept;
  };

  nb::object owner_;
  std::unique_ptr<Py_buffer, ReleaseView> view_;
  std::shared_ptr<void> dlpack_;
};

/// Holds a tensor: its bytes, element type and shape. Taken are
/// - objects with get_shapes(), get_dtypes() and byte_array (LMCache's memory objects, Tensor),
/// - tensors with data_ptr(), as torch's,
/// - buffers, as of NumPy,
/// - `__array_interface__`, and
/// - DLPack.
/// Throws TypeError for other objects; InvalidArgumentError for memory that is not contiguous, not
/// the CPU's, or read-only and shall be written, and for unknown element types.
HeldMemory hold_tensor(nb::handle value, Access access, const ValueName& name);

/// As hold_tensor(), for the bytes alone, whatever their element type. A memory object that shall
/// be written counts in full, also if a part of it was in use before.
HeldMemory hold_bytes(nb::handle value, Access access, const ValueName& name);

/// From an object with `chunk_hash` and `cache_salt`, as LMCache's keys; None = an empty key.
SerdeKey read_serde_key(nb::handle key, const ValueName& name);

/// "bfloat16", "torch.bfloat16", or an object that is written like that (torch, NumPy, ml_dtypes).
DType read_dtype(nb::handle value, const ValueName& name);

/// From an object with `shapes` and `dtypes` (LMCache's MemoryLayoutDesc), a list of pairs (shape,
/// dtype), or one object with `shape` and `dtype`.
Layout read_layout(nb::handle value, const ValueName& name);

/// From two sequences of one length.
Layout read_layout(nb::handle shapes, nb::handle dtypes, const ValueName& name);

/// From the attributes `shape` and `dtype`.
TensorLayout read_tensor_layout(nb::handle value, const ValueName& name);

/// Throws InvalidArgumentError if the two share a byte.
void refuse_overlap(const HeldMemory& src, const HeldMemory& dst, const ValueName& dst_name);

}  // namespace aerokv::bindings
