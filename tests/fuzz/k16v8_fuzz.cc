// SPDX-License-Identifier: Apache-2.0
// Containers of K and V that strangers wrote. The first byte chooses the target: which slots of a
// group are wanted, or one object of several tensors. What is read lies within the input, and an
// error leaves the target as it was.
#include <algorithm>
#include <vector>

#include "aerokv/serde.h"
#include "codec/crc32.h"
#include "codec/k16v8.h"
#include "fuzz.h"
#include "serde/builtin.h"
#include "serde/k16v8.h"

using aerokv::Bytes;
using aerokv::Code;
using aerokv::DType;
using aerokv::Layout;
using aerokv::MutableBytes;
using aerokv::fuzz::require;
namespace codec = aerokv::codec;
namespace serde = aerokv::serde;

namespace {

constexpr std::byte kCanary{0xa5};

bool is_within(Bytes part, Bytes whole) {
  return part.empty() ||
         (part.data() >= whole.data() && part.data() + part.size() <= whole.data() + whole.size());
}

void check_container(Bytes input) {
  const auto container = codec::read_kv_container(input);
  if (!container) {
    require(container.error().code() == Code::corruption ||
            container.error().code() == Code::invalid);
    return;
  }
  require(container->bytes <= input.size());
  for (const Bytes part : {container->k, container->v, container->payload}) {
    require(is_within(part, input.first(container->bytes)));
  }
  require(container->k.size() + container->v.size() <= container->payload.size());
}

void check_group(Bytes input, uint8_t choice) {
  const DType types[] = {DType::bfloat16, DType::float16, DType::float32, DType::uint8};
  const Layout k_layout = {{types[choice % 4], {2, 5, 3, 8}}};
  const Layout v_layout = {{types[choice / 4 % 4], {240}}};
  std::vector<std::byte> k(*aerokv::layout_bytes(k_layout), kCanary);
  std::vector<std::byte> v(*aerokv::layout_bytes(v_layout), kCanary);
  aerokv::MutableObjectGroup group(2);
  if ((choice & 16) != 0) group[0].emplace(aerokv::MutableObjectView{k_layout, k});
  if ((choice & 32) != 0) group[1].emplace(aerokv::MutableObjectView{v_layout, v});
  const bool is_ok = serde::K16V8MultiDeserializer().deserialize(input, group, {}).ok();
  const auto is_untouched = [](const std::vector<std::byte>& bytes) {
    return std::all_of(bytes.begin(), bytes.end(), [](std::byte byte) { return byte == kCanary; });
  };
  require((is_ok && group[0]) || is_untouched(k));
  require((is_ok && group[1]) || is_untouched(v));
}

void check_object(Bytes input) {
  static const Layout layout = {{DType::bfloat16, {2, 240}}, {DType::int8, {3}}};
  const auto made = serde::make_k16v8({});
  require(made.has_value());
  std::vector<std::byte> object(*aerokv::layout_bytes(layout), kCanary);
  if (made->deserializer->deserialize(input, {layout, object})) {
    const auto first = codec::read_kv_container(input);
    require(first && codec::crc32(first->payload) == first->crc);
    require(std::equal(first->k.begin(), first->k.end(), object.begin()));
  }
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  Bytes input = aerokv::fuzz::input(data, size);
  const uint8_t choice = aerokv::fuzz::take(input);
  check_container(input);
  if ((choice & 64) != 0) {
    check_object(input);
  } else {
    check_group(input, choice);
  }
  return 0;
}
