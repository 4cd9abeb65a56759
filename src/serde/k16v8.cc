// SPDX-License-Identifier: Apache-2.0
#include "serde/k16v8.h"

#include <algorithm>
#include <bit>
#include <cstring>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "codec/crc32.h"
#include "codec/fp8.h"
#include "codec/k16v8.h"
#include "serde/builtin.h"
#include "serde/params.h"

namespace aerokv::serde {
namespace {

using codec::KvContainer;

// A slice is written and then summed, which costs little while a cache holds it.
constexpr size_t kSliceBytes = size_t{512} << 10;

Status wrong(const std::string& what) {
  return {Code::invalid, "k16v8: " + what};
}

// ---------------------------------------------------------------------------------------------
// What lies in one container

/// Sizes of one container. Without V everything is stored as K.
struct Part {
  DType type = DType::bfloat16;   ///< of the elements of K and V
  DType k_tag = DType::bfloat16;  ///< as the container names it
  size_t k_bytes = 0;
  size_t v_count = 0;  ///< elements

  [[nodiscard]] size_t v_bytes() const { return v_count * dtype_bytes(type); }
  [[nodiscard]] size_t container_bytes() const {
    return codec::kv_container_bytes(k_bytes, v_count);
  }
};

/// The tensors of an object, each in a container of its own. Those that begin with a dimension of 2
/// and have a type of more than 8 bits are K and V; others, such as latents and states, are stored
/// as they are.
Result<std::vector<Part>> parts_of(const Layout& layout) {
  const Result<uint64_t> total = layout_bytes(layout);
  if (!total) return total.error();
  std::vector<Part> parts;
  for (const TensorLayout& tensor : layout) {
    const auto count = static_cast<size_t>(*element_count(tensor));
    Part part{tensor.dtype, codec::kv_tag(tensor.dtype), count * dtype_bytes(tensor.dtype), 0};
    if (codec::is_fp8_source(tensor.dtype) && !tensor.shape.empty() && tensor.shape[0] == 2) {
      part.v_count = count / 2;
      part.k_bytes = part.k_bytes / 2;
    }
    parts.push_back(part);
  }
  return parts;
}

size_t total_bytes(const std::vector<Part>& parts) {
  size_t total = 0;
  for (const Part& part : parts) total += part.container_bytes();
  return total;
}

// ---------------------------------------------------------------------------------------------
// Slices

/// Cuts runs of bytes into slices: index i of all of them is slice `at(i)` of one run.
class Slices {
 public:
  struct Slice {
    size_t run;
    size_t offset;
    size_t count;
  };

  void add(size_t run, size_t bytes) {
    for (size_t offset = 0; offset < bytes; offset += kSliceBytes) {
      slices_.push_back({run, offset, std::min(kSliceBytes, bytes - offset)});
    }
  }
  [[nodiscard]] size_t size() const { return slices_.size(); }
  [[nodiscard]] const Slice& at(size_t index) const { return slices_[index]; }

 private:
  std::vector<Slice> slices_;
};

// ---------------------------------------------------------------------------------------------
// Encode

struct EncodeJob {
  Part part;
  Bytes k;
  Bytes v;
  MutableBytes out;  ///< the container
  float scale = 1.0F;
};

void find_scales(std::vector<EncodeJob>& jobs, Parallel& parallel) {
  Slices slices;
  for (size_t i = 0; i < jobs.size(); ++i) slices.add(i, jobs[i].v.size());
  std::vector<uint32_t> largest(slices.size());  // as bits, whose order has NaN above all
  parallel.run(slices.size(), [&](size_t i) {
    const Slices::Slice& slice = slices.at(i);
    const EncodeJob& job = jobs[slice.run];
    largest[i] = std::bit_cast<uint32_t>(
        codec::abs_max(job.part.type, job.v.subspan(slice.offset, slice.count)));
  });
  std::vector<uint32_t> of_job(jobs.size(), 0);
  for (size_t i = 0; i < slices.size(); ++i) {
    uint32_t& known = of_job[slices.at(i).run];
    known = std::max(known, largest[i]);
  }
  for (size_t i = 0; i < jobs.size(); ++i) {
    jobs[i].scale = codec::fp8_scale(std::bit_cast<float>(of_job[i]));
  }
}

// Runs 2i and 2i + 1 are K and V of job i.
void encode_slice(const EncodeJob& job, bool is_v, const Slices::Slice& slice, uint32_t& crc) {
  const MutableBytes payload = job.out.subspan(codec::kKvHeadBytes);
  MutableBytes to;
  if (is_v) {
    const size_t element = dtype_bytes(job.part.type);
    to = payload.subspan(job.part.k_bytes + slice.offset / element, slice.count / element);
    codec::fp8_encode_scaled(job.part.type, job.scale, job.v.subspan(slice.offset, slice.count), to,
                             codec::Stores::cached, codec::active_kernel());
  } else {
    to = payload.subspan(slice.offset, slice.count);
    std::memcpy(to.data(), job.k.data() + slice.offset, slice.count);
  }
  crc = codec::crc32(to);
}

void encode_jobs(std::vector<EncodeJob>& jobs, Parallel& parallel) {
  find_scales(jobs, parallel);
  Slices slices;
  for (size_t i = 0; i < jobs.size(); ++i) {
    slices.add(2 * i, jobs[i].k.size());
    slices.add(2 * i + 1, jobs[i].v.size());
  }
  std::vector<uint32_t> sums(slices.size());
  parallel.run(slices.size(), [&](size_t i) {
    const Slices::Slice& slice = slices.at(i);
    encode_slice(jobs[slice.run / 2], slice.run % 2 != 0, slice, sums[i]);
  });
  std::vector<uint32_t> crcs(jobs.size(), 0);
  for (size_t i = 0; i < slices.size(); ++i) {
    const Slices::Slice& slice = slices.at(i);
    const size_t element = slice.run % 2 != 0 ? dtype_bytes(jobs[slice.run / 2].part.type) : 1;
    uint32_t& crc = crcs[slice.run / 2];
    crc = codec::crc32_join(crc, sums[i], slice.count / element);
  }
  for (size_t i = 0; i < jobs.size(); ++i) {
    const EncodeJob& job = jobs[i];
    std::byte* scale = job.out.data() + job.out.size() - codec::kKvScaleBytes;
    store_le<uint32_t>(scale, std::bit_cast<uint32_t>(job.scale));
    codec::write_kv_head(job.out.data(), job.part.k_tag, job.part.k_bytes, job.part.v_count,
                         codec::crc32({scale, codec::kKvScaleBytes}, crcs[i]));
  }
}

Status check_target(MutableBytes dst, size_t expected) {
  if (dst.size() >= expected) return {};
  return wrong("target of " + std::to_string(dst.size()) + " bytes, expected " +
               std::to_string(expected));
}

// ---------------------------------------------------------------------------------------------
// Decode

/// Targets that are empty are not wanted.
struct DecodeJob {
  KvContainer container;
  DType v_type = DType::bfloat16;
  MutableBytes k;
  MutableBytes v;
};

/// Errors: corruption (a payload is not what its sum says).
Status check_sums(const std::vector<DecodeJob>& jobs, Parallel& parallel) {
  Slices slices;
  for (size_t i = 0; i < jobs.size(); ++i) slices.add(i, jobs[i].container.payload.size());
  std::vector<uint32_t> sums(slices.size());
  parallel.run(slices.size(), [&](size_t i) {
    const Slices::Slice& slice = slices.at(i);
    sums[i] = codec::crc32(jobs[slice.run].container.payload.subspan(slice.offset, slice.count));
  });
  std::vector<uint32_t> crcs(jobs.size(), 0);
  for (size_t i = 0; i < slices.size(); ++i) {
    uint32_t& crc = crcs[slices.at(i).run];
    crc = codec::crc32_join(crc, sums[i], slices.at(i).count);
  }
  for (size_t i = 0; i < jobs.size(); ++i) {
    if (crcs[i] != jobs[i].container.crc) {
      return {Code::corruption, "k16v8: the payload does not have the sum of its head"};
    }
  }
  return {};
}

void decode_slice(const DecodeJob& job, bool is_v, const Slices::Slice& slice) {
  if (!is_v) {
    std::memcpy(job.k.data() + slice.offset, job.container.k.data() + slice.offset, slice.count);
    return;
  }
  const size_t element = dtype_bytes(job.v_type);
  codec::fp8_decode_scaled(job.v_type, job.container.scale,
                           job.container.v.subspan(slice.offset / element, slice.count / element),
                           job.v.subspan(slice.offset, slice.count),
                           codec::stores_for(job.v.size()), codec::active_kernel());
}

Status decode_jobs(const std::vector<DecodeJob>& jobs, Parallel& parallel) {
  AEROKV_TRY(check_sums(jobs, parallel));
  Slices slices;
  for (size_t i = 0; i < jobs.size(); ++i) {
    slices.add(2 * i, jobs[i].k.size());
    slices.add(2 * i + 1, jobs[i].v.size());
  }
  parallel.run(slices.size(), [&](size_t i) {
    const Slices::Slice& slice = slices.at(i);
    decode_slice(jobs[slice.run / 2], slice.run % 2 != 0, slice);
  });
  return {};
}

Status check_tag(const KvContainer& container, DType type) {
  if (container.k_tag == codec::kv_tag(type)) return {};
  return wrong("K of " + std::string(dtype_name(container.k_tag)) + ", expected " +
               std::string(dtype_name(codec::kv_tag(type))));
}

Status check_sizes(const KvContainer& container, size_t k_bytes, size_t v_count) {
  if (container.k.size() == k_bytes && container.v.size() == v_count) return {};
  return wrong(std::to_string(container.k.size()) + " + " + std::to_string(container.v.size()) +
               " bytes of K and V, expected " + std::to_string(k_bytes) + " + " +
               std::to_string(v_count));
}

// ---------------------------------------------------------------------------------------------
// One object, cut into its tensors

class K16V8Serializer final : public Serializer {
 public:
  [[nodiscard]] Result<size_t> estimate_serialized_size(const Layout& layout) const override {
    const Result<std::vector<Part>> parts = parts_of(layout);
    if (!parts) return parts.error();
    return total_bytes(*parts);
  }

 private:
  Result<size_t> encode(const ObjectView& src, MutableBytes dst, const SerdeKey& /*key*/,
                        Parallel& parallel) const override {
    const Result<std::vector<Part>> parts = parts_of(src.layout);
    if (!parts) return parts.error();
    const size_t total = total_bytes(*parts);
    AEROKV_TRY(check_target(dst, total));
    std::vector<EncodeJob> jobs;
    Bytes rest = src.bytes;
    for (const Part& part : *parts) {
      jobs.push_back({part, rest.first(part.k_bytes), rest.subspan(part.k_bytes, part.v_bytes()),
                      dst.first(part.container_bytes())});
      rest = rest.subspan(part.k_bytes + part.v_bytes());
      dst = dst.subspan(part.container_bytes());
    }
    encode_jobs(jobs, parallel);
    return total;
  }
};

class K16V8Deserializer final : public Deserializer {
  Status decode(Bytes src, const MutableObjectView& dst, const SerdeKey& /*key*/,
                Parallel& parallel) const override {
    const Result<std::vector<Part>> parts = parts_of(dst.layout);
    if (!parts) return parts.error();
    std::vector<DecodeJob> jobs;
    MutableBytes rest = dst.bytes;
    for (const Part& part : *parts) {
      const Result<KvContainer> container = codec::read_kv_container(src);
      if (!container) return container.error();
      AEROKV_TRY(check_tag(*container, part.type));
      AEROKV_TRY(check_sizes(*container, part.k_bytes, part.v_count));
      jobs.push_back({*container, part.type, rest.first(part.k_bytes),
                      rest.subspan(part.k_bytes, part.v_bytes())});
      rest = rest.subspan(part.k_bytes + part.v_bytes());
      src = src.subspan(container->bytes);
    }
    return decode_jobs(jobs, parallel);
  }
};

// ---------------------------------------------------------------------------------------------
// Groups

Status check_group(size_t size) {
  return size == 2 ? Status() : wrong("a group of " + std::to_string(size) + ", expected 2");
}

/// The one tensor of a slot. Errors: invalid (another number of tensors).
Result<TensorLayout> tensor_of(const Layout& layout, const char* slot) {
  if (layout.size() == 1) return layout[0];
  return wrong(std::string(slot) + " of " + std::to_string(layout.size()) + " tensors, expected 1");
}

/// Errors: invalid (V is absent, a slot is not one tensor, types and shapes that do not go
/// together).
Result<Part> part_of(const Layout* k, const Layout* v, DType k_tag) {
  if (v == nullptr) return wrong("slot 1 (V) is absent, expected a tensor");
  const Result<TensorLayout> v_tensor = tensor_of(*v, "V");
  if (!v_tensor) return v_tensor.error();
  const Result<uint64_t> count = element_count(*v_tensor);
  if (!count) return count.error();
  if (!codec::is_fp8_source(v_tensor->dtype)) {
    return wrong("V of " + std::string(dtype_name(v_tensor->dtype)) +
                 ", expected bfloat16, float16 or float32");
  }
  Part part{v_tensor->dtype, codec::kv_tag(k_tag), 0, static_cast<size_t>(*count)};
  if (k == nullptr) return part;
  const Result<TensorLayout> k_tensor = tensor_of(*k, "K");
  if (!k_tensor) return k_tensor.error();
  if (k_tensor->shape != v_tensor->shape) {
    return wrong("K is " + layout_text(*k) + ", V is " + layout_text(*v) +
                 ", expected the same shape");
  }
  part.k_tag = codec::kv_tag(k_tensor->dtype);
  part.k_bytes = part.v_count * dtype_bytes(k_tensor->dtype);
  return part;
}

template <typename View>
Status check_slot(const std::optional<View>& slot, const char* name) {
  if (!slot) return {};
  const Result<uint64_t> expected = layout_bytes(slot->layout);
  if (!expected) return expected.error();
  if (*expected == slot->bytes.size()) return {};
  return wrong(std::string(name) + " of " + std::to_string(slot->bytes.size()) +
               " bytes, expected " + std::to_string(*expected));
}

const Layout* layout_of(const std::optional<ObjectView>& slot) {
  return slot ? &slot->layout : nullptr;
}

/// Errors: invalid (the container has no such K, or one of another type or size).
Status take_k(const MutableObjectView& slot, DecodeJob& job) {
  const Result<TensorLayout> tensor = tensor_of(slot.layout, "K");
  if (!tensor) return tensor.error();
  const KvContainer& container = job.container;
  if (container.k.empty() && !slot.bytes.empty()) return wrong("the container has no K");
  AEROKV_TRY(check_tag(container, tensor->dtype));
  AEROKV_TRY(check_sizes(container, slot.bytes.size(), container.v.size()));
  job.k = slot.bytes;
  return {};
}

Status take_v(const MutableObjectView& slot, DecodeJob& job) {
  const Result<TensorLayout> tensor = tensor_of(slot.layout, "V");
  if (!tensor) return tensor.error();
  if (!codec::is_fp8_source(tensor->dtype)) {
    return wrong("V of " + std::string(dtype_name(tensor->dtype)) +
                 ", expected bfloat16, float16 or float32");
  }
  const KvContainer& container = job.container;
  if (container.v.empty() && !slot.bytes.empty()) return wrong("the container has no V");
  AEROKV_TRY(
      check_sizes(container, container.k.size(), slot.bytes.size() / dtype_bytes(tensor->dtype)));
  job.v_type = tensor->dtype;
  job.v = slot.bytes;
  return {};
}

}  // namespace

Result<size_t> K16V8MultiSerializer::serialize(const ObjectGroup& src, MutableBytes dst,
                                               const SerdeKey& /*key*/) const {
  AEROKV_TRY(check_group(src.size()));
  const Result<Part> part = part_of(layout_of(src[0]), layout_of(src[1]), k_tag_);
  if (!part) return part.error();
  AEROKV_TRY(check_slot(src[0], "K"));
  AEROKV_TRY(check_slot(src[1], "V"));
  AEROKV_TRY(check_target(dst, part->container_bytes()));
  std::vector<EncodeJob> jobs = {
      {*part, src[0] ? src[0]->bytes : Bytes(), src[1]->bytes, dst.first(part->container_bytes())}};
  encode_jobs(jobs, serial());
  return part->container_bytes();
}

Result<size_t> K16V8MultiSerializer::estimate_serialized_size(const LayoutGroup& layouts) const {
  AEROKV_TRY(check_group(layouts.size()));
  const Result<Part> part =
      part_of(layouts[0] ? &*layouts[0] : nullptr, layouts[1] ? &*layouts[1] : nullptr, k_tag_);
  if (!part) return part.error();
  return part->container_bytes();
}

Status K16V8MultiDeserializer::deserialize(Bytes src, const MutableObjectGroup& dst,
                                           const SerdeKey& /*key*/) const {
  AEROKV_TRY(check_group(dst.size()));
  if (!dst[0] && !dst[1]) return {};
  AEROKV_TRY(check_slot(dst[0], "K"));
  AEROKV_TRY(check_slot(dst[1], "V"));
  const Result<KvContainer> container = codec::read_kv_container(src);
  if (!container) return container.error();
  DecodeJob job{*container, DType::bfloat16, {}, {}};
  if (dst[0]) AEROKV_TRY(take_k(*dst[0], job));
  if (dst[1]) AEROKV_TRY(take_v(*dst[1], job));
  return decode_jobs({job}, serial());
}

Result<Serde> make_k16v8(const SerdeParams& params) {
  ParamReader reader("k16v8", params);
  reader.choice("fp8_dtype", {"float8_e4m3fn"}, 0);
  AEROKV_TRY(reader.finish());
  return Serde{std::make_shared<K16V8Serializer>(), std::make_shared<K16V8Deserializer>(), "k16v8"};
}

}  // namespace aerokv::serde
