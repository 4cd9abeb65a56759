// SPDX-License-Identifier: Apache-2.0
#include "bindings/serde_buffers.h"

#include <nanobind/ndarray.h>

#include <bit>
#include <cstdlib>
#include <cstring>
#include <optional>
#include <string_view>
#include <utility>

#include "bindings/errors.h"

namespace aerokv::bindings {
namespace {

// Formats of the struct module and type strings of NumPy mean: a kind, and bytes for each element.
std::optional<DType> dtype_of_kind(char kind, size_t itemsize) {
  switch (kind) {
    case 'b':  // boolean
      return itemsize == 1 ? std::optional(DType::boolean) : std::nullopt;
    case 'u':
      return itemsize == 1 ? std::optional(DType::uint8) : std::nullopt;
    case 'i':
      if (itemsize == 1) return DType::int8;
      if (itemsize == 2) return DType::int16;
      if (itemsize == 4) return DType::int32;
      return itemsize == 8 ? std::optional(DType::int64) : std::nullopt;
    case 'f':
      if (itemsize == 2) return DType::float16;
      if (itemsize == 4) return DType::float32;
      return itemsize == 8 ? std::optional(DType::float64) : std::nullopt;
    default:
      return std::nullopt;
  }
}

bool is_foreign_order(char order) {
  return order == (std::endian::native == std::endian::little ? '>' : '<') ||
         (order == '!' && std::endian::native == std::endian::little);
}

char kind_of_format(char format) {
  constexpr std::string_view kSigned = "bhilqn";
  if (format == '?') return 'b';
  if (format == 'B' || format == 'c') return 'u';
  if (format == 'e' || format == 'f' || format == 'd') return 'f';
  return kSigned.find(format) == std::string_view::npos ? '\0' : 'i';
}

std::optional<DType> dtype_of_dlpack(const nb::dlpack::dtype& type) {
  using Code = nb::dlpack::dtype_code;
  if (type.lanes != 1 || type.bits % 8 != 0) return std::nullopt;
  const size_t itemsize = type.bits / 8;
  switch (static_cast<Code>(type.code)) {
    case Code::Bool:
      return dtype_of_kind('b', itemsize);
    case Code::UInt:
      return dtype_of_kind('u', itemsize);
    case Code::Int:
      return dtype_of_kind('i', itemsize);
    case Code::Float:
      return dtype_of_kind('f', itemsize);
    case Code::Bfloat:
      return itemsize == 2 ? std::optional(DType::bfloat16) : std::nullopt;
    case Code::Float8_E4M3FN:
      return DType::float8_e4m3fn;
    case Code::Float8_E4M3FNUZ:
      return DType::float8_e4m3fnuz;
    case Code::Float8_E5M2:
      return DType::float8_e5m2;
    case Code::Float8_E5M2FNUZ:
      return DType::float8_e5m2fnuz;
    default:
      return std::nullopt;
  }
}

bool is_row_major(const std::vector<int64_t>& shape, const std::vector<int64_t>& strides,
                  int64_t item) {
  for (const int64_t size : shape) {
    if (size == 0) return true;
  }
  int64_t expected = item;
  for (size_t i = shape.size(); i-- > 0;) {
    if (shape[i] != 1 && strides[i] != expected) return false;
    expected *= shape[i];
  }
  return true;
}

// Shapes and types of a memory object. Those of LMCache have one of each if not several.
std::pair<nb::object, nb::object> layout_of_memory_object(nb::handle value) {
  try {
    return {value.attr("get_shapes")(), value.attr("get_dtypes")()};
  } catch (nb::python_error&) {
    if (!nb::hasattr(value, "get_shape") || !nb::hasattr(value, "get_dtype")) throw;
  }
  return {nb::make_tuple(value.attr("get_shape")()), nb::make_tuple(value.attr("get_dtype")())};
}

}  // namespace

void HeldMemory::ReleaseView::operator()(Py_buffer* view) const noexcept {
  PyBuffer_Release(view);
  delete view;
}

/// Looks for the memory of one value.
class MemoryFinder {
 public:
  MemoryFinder(nb::handle value, Access access, bool typed, const ValueName& name)
      : value_(nb::borrow(value)), access_(access), typed_(typed), name_(name) {}

  HeldMemory find() {
    held_.owner_ = value_;
    if (nb::hasattr(value_, "get_shapes")) {
      from_memory_object();
    } else if (nb::hasattr(value_, "data_ptr") && nb::hasattr(value_, "element_size")) {
      from_torch();
    } else if (!from_buffer(value_, typed_) && !from_array_interface() && !from_dlpack()) {
      from_attributes();
    }
    return std::move(held_);
  }

 private:
  [[noreturn]] void fail(const std::string& seen, const std::string& expected) const {
    raise_invalid(name_.text() + ": " + seen + ", expected " + expected);
  }

  [[noreturn]] void fail_dtype(const std::string& seen) const {
    fail("elements of type " + seen,
         "a number type of torch; wrap the bytes in Tensor(buffer, shape, dtype) to say what "
         "they are");
  }

  void check_writable(bool readonly) const {
    if (readonly && access_ == Access::write) fail("read-only memory", "writable memory");
  }

  void set_address(uintptr_t address, uint64_t bytes) {
    if (address == 0 && bytes > 0) fail("no memory behind it", "memory that the CPU can reach");
    held_.bytes = {reinterpret_cast<std::byte*>(address), static_cast<size_t>(bytes)};
  }

  uint64_t bytes_of(const Layout& layout) const {
    const Result<uint64_t> bytes = layout_bytes(layout);
    if (!bytes) raise(bytes.error().with_context(name_.text()));
    return *bytes;
  }

  [[noreturn]] void fail_kind() const {
    throw nb::type_error(
        (name_.text() + ": " + type_name_of(value_) + ", expected a tensor, an array or a buffer")
            .c_str());
  }

  void from_memory_object();
  void from_attributes();
  void set_plain_bytes();
  void from_torch();
  bool from_buffer(nb::handle exporter, bool typed);
  bool from_array_interface();
  bool from_dlpack();
  void set_dlpack(nb::ndarray<nb::ro> array);
  DType dtype_of_typestr(const std::string& typestr) const;

  nb::object value_;
  Access access_;
  bool typed_;
  bool is_inner_ = false;  // of an object that wraps it
  const ValueName& name_;
  HeldMemory held_;
};

void MemoryFinder::from_memory_object() {
  if (nb::hasattr(value_, "is_valid") && !nb::cast<bool>(value_.attr("is_valid")())) {
    fail("a memory object that was invalidated", "a valid one");
  }
  const nb::object bytes = nb::getattr(value_, "byte_array", nb::none());
  if (bytes.is_none()) fail_kind();
  if (!from_buffer(bytes, false)) {
    throw nb::type_error(
        (name_.text() + ".byte_array: " + type_name_of(bytes) + ", expected a buffer").c_str());
  }
  const bool may_be_narrowed = !typed_ && access_ == Access::write;
  if (!typed_ && !may_be_narrowed) return;
  const auto [shapes, dtypes] = layout_of_memory_object(value_);
  // Objects of plain bytes say that their type is None.
  for (const nb::handle dtype : dtypes) {
    if (dtype.is_none()) return set_plain_bytes();
  }
  Layout layout = read_layout(shapes, dtypes, name_);
  if (typed_) {
    held_.layout = std::move(layout);
    return;
  }
  // What was written into it before may have narrowed it.
  const uint64_t full = bytes_of(layout);
  if (held_.bytes.size() >= full || !nb::hasattr(value_, "get_physical_size")) return;
  if (nb::cast<uint64_t>(value_.attr("get_physical_size")()) < full) return;
  const nb::object address = nb::getattr(value_, "data_ptr", nb::none());
  if (!address.is_none()) set_address(nb::cast<uintptr_t>(address), full);
}

void MemoryFinder::set_plain_bytes() {
  if (typed_) held_.layout = {{DType::uint8, {static_cast<int64_t>(held_.bytes.size())}}};
}

// Objects that only wrap something: a tensor, or bytes.
void MemoryFinder::from_attributes() {
  const nb::object inner = nb::getattr(value_, "tensor", nb::none());
  if (!inner.is_none() && !is_inner_) {
    MemoryFinder finder(inner, access_, typed_, name_);
    finder.is_inner_ = true;
    held_ = finder.find();
    held_.owner_ = nb::make_tuple(value_, held_.owner_);
    return;
  }
  const nb::object bytes = nb::getattr(value_, "byte_array", nb::none());
  if (bytes.is_none() || !from_buffer(bytes, false)) fail_kind();
  set_plain_bytes();
}

void MemoryFinder::from_torch() {
  const nb::str device = nb::str(value_.attr("device").attr("type"));
  if (std::string_view(device.c_str()) != "cpu") {
    fail(std::string("a tensor on device ") + device.c_str(), "one in CPU memory");
  }
  if (const nb::str layout = nb::str(nb::getattr(value_, "layout", nb::str("torch.strided")));
      std::string_view(layout.c_str()) != "torch.strided") {
    fail(std::string("a tensor of layout ") + layout.c_str(), "a strided one");
  }
  if (!nb::cast<bool>(value_.attr("is_contiguous")())) {
    fail("a tensor that is not contiguous", "one in row-major order");
  }
  if (nb::hasattr(value_, "is_neg") && nb::cast<bool>(value_.attr("is_neg")())) {
    fail("a tensor with a pending negation", "one that was resolved with resolve_neg()");
  }
  uint64_t bytes = 0;
  if (typed_) {
    held_.layout = {read_tensor_layout(value_, name_)};
    bytes = bytes_of(held_.layout);
  } else {
    bytes = nb::cast<uint64_t>(value_.attr("numel")()) *
            nb::cast<uint64_t>(value_.attr("element_size")());
  }
  set_address(nb::cast<uintptr_t>(value_.attr("data_ptr")()), bytes);
}

bool MemoryFinder::from_buffer(nb::handle exporter, bool typed) {
  if (PyObject_CheckBuffer(exporter.ptr()) == 0) return false;
  auto view = std::make_unique<Py_buffer>();
  if (PyObject_GetBuffer(exporter.ptr(), view.get(), PyBUF_FULL_RO) != 0) {
    // NumPy cannot describe the types of ml_dtypes in this way.
    if (!nb::hasattr(value_, "__array_interface__")) throw nb::python_error();
    PyErr_Clear();
    return false;
  }
  held_.view_.reset(view.release());
  const Py_buffer& buffer = *held_.view_;
  if (PyBuffer_IsContiguous(&buffer, 'C') == 0) {
    fail("memory that is not contiguous", "row-major order");
  }
  check_writable(buffer.readonly != 0);
  if (typed) {
    const char* format = buffer.format == nullptr ? "B" : buffer.format;
    const bool ordered = std::strchr("@=<>!", format[0]) != nullptr;
    if (ordered && buffer.itemsize > 1 && is_foreign_order(format[0])) {
      fail("elements in foreign byte order", "this machine's order");
    }
    const char* code = ordered && format[0] != '\0' ? format + 1 : format;
    const std::optional<DType> dtype =
        std::strlen(code) == 1
            ? dtype_of_kind(kind_of_format(*code), static_cast<size_t>(buffer.itemsize))
            : std::nullopt;
    if (!dtype) fail_dtype(std::string("'") + format + "'");
    held_.layout = {{*dtype, {buffer.shape, buffer.shape + buffer.ndim}}};
  }
  set_address(reinterpret_cast<uintptr_t>(buffer.buf), static_cast<uint64_t>(buffer.len));
  return true;
}

DType MemoryFinder::dtype_of_typestr(const std::string& typestr) const {
  if (typestr.size() < 3) fail_dtype("'" + typestr + "'");
  if (typestr[1] == 'V' && nb::hasattr(value_, "dtype")) {
    return read_dtype(value_.attr("dtype"), name_);
  }
  const size_t itemsize = std::strtoul(typestr.c_str() + 2, nullptr, 10);
  if (itemsize > 1 && is_foreign_order(typestr[0])) {
    fail("elements in foreign byte order", "this machine's order");
  }
  const std::optional<DType> dtype = dtype_of_kind(typestr[1], itemsize);
  if (!dtype) fail_dtype("'" + typestr + "'");
  return *dtype;
}

bool MemoryFinder::from_array_interface() {
  if (!nb::hasattr(value_, "__array_interface__")) return false;
  const nb::object interface = value_.attr("__array_interface__");
  const nb::object get = interface.attr("get");
  const nb::object data = get("data");
  if (!PyTuple_Check(data.ptr()) || nb::len(data) != 2) return false;
  check_writable(nb::cast<bool>(data[1]));
  const nb::str typestr = nb::str(interface.attr("__getitem__")("typestr"));
  TensorLayout tensor{dtype_of_typestr(typestr.c_str()), {}};
  const nb::object shape = interface.attr("__getitem__")("shape");
  for (const nb::handle size : shape) tensor.shape.push_back(nb::cast<int64_t>(size));
  if (const nb::object strides = get("strides"); !strides.is_none()) {
    std::vector<int64_t> steps;
    for (const nb::handle step : strides) steps.push_back(nb::cast<int64_t>(step));
    if (steps.size() != tensor.shape.size() ||
        !is_row_major(tensor.shape, steps, static_cast<int64_t>(dtype_bytes(tensor.dtype)))) {
      fail("an array that is not contiguous", "one in row-major order");
    }
  }
  set_address(nb::cast<uintptr_t>(data[0]), bytes_of({tensor}));
  held_.owner_ = nb::make_tuple(value_, interface);
  if (typed_) held_.layout = {std::move(tensor)};
  return true;
}

bool MemoryFinder::from_dlpack() {
  if (!nb::hasattr(value_, "__dlpack__")) return false;
  constexpr int kCpu = 1;
  constexpr int kCudaHost = 3;
  constexpr int kRocmHost = 11;
  if (nb::hasattr(value_, "__dlpack_device__")) {
    const nb::object device = value_.attr("__dlpack_device__")();
    const int type = nb::cast<int>(nb::int_(device[0]));
    if (type != kCpu && type != kCudaHost && type != kRocmHost) {
      fail("a tensor on DLPack device " + std::to_string(type), "one in CPU memory");
    }
  }
  nb::ndarray<> writable;
  if (nb::try_cast(value_, writable, false)) {
    set_dlpack(nb::ndarray<nb::ro>(writable));
    return true;
  }
  nb::ndarray<nb::ro> readable;
  if (!nb::try_cast(value_, readable, false)) {
    fail("a tensor that DLPack does not export", "one that it does");
  }
  check_writable(true);
  set_dlpack(std::move(readable));
  return true;
}

void MemoryFinder::set_dlpack(nb::ndarray<nb::ro> array) {
  const std::optional<DType> dtype = dtype_of_dlpack(array.dtype());
  if (!dtype) fail_dtype("DLPack code " + std::to_string(array.dtype().code));
  TensorLayout tensor{*dtype, {}};
  std::vector<int64_t> strides;
  for (size_t i = 0; i < array.ndim(); ++i) {
    tensor.shape.push_back(static_cast<int64_t>(array.shape(i)));
    strides.push_back(array.stride(i));
  }
  if (!is_row_major(tensor.shape, strides, 1)) {
    fail("a tensor that is not contiguous", "one in row-major order");
  }
  set_address(reinterpret_cast<uintptr_t>(array.data()), bytes_of({tensor}));
  if (typed_) held_.layout = {std::move(tensor)};
  held_.dlpack_ = std::make_shared<nb::ndarray<nb::ro>>(std::move(array));
}

HeldMemory hold_tensor(nb::handle value, Access access, const ValueName& name) {
  return MemoryFinder(value, access, true, name).find();
}

HeldMemory hold_bytes(nb::handle value, Access access, const ValueName& name) {
  return MemoryFinder(value, access, false, name).find();
}

void refuse_overlap(const HeldMemory& src, const HeldMemory& dst, const ValueName& dst_name) {
  const auto* const src_end = src.bytes.data() + src.bytes.size();
  const auto* const dst_end = dst.bytes.data() + dst.bytes.size();
  if (src.bytes.empty() || dst.bytes.empty()) return;
  if (src.bytes.data() < dst_end && dst.bytes.data() < src_end) {
    raise_invalid(dst_name.text() + ": shares memory with its source, expected memory of its own");
  }
}

}  // namespace aerokv::bindings
