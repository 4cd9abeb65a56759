// SPDX-License-Identifier: Apache-2.0
#include "codec/k16v8.h"

#include <array>
#include <bit>
#include <cstring>
#include <optional>
#include <string>
#include <string_view>

#include "codec/fp8_scalar.h"

namespace aerokv::codec {
namespace {

constexpr std::string_view kMagic("LMCKV\x01\x00\x01", 8);
constexpr uint16_t kVersion = 1;
constexpr uint16_t kPerTensor = 0;
constexpr int64_t kUnset = -1;
constexpr size_t kPlaces = 6;  // layer, chunk, tokens of chunk and page, heads, their size
constexpr uint64_t kDimensionsMax = 8;
constexpr std::array<std::string_view, 6> kTexts = {"model_id",          "model_revision_hash",
                                                    "tokenizer_hash",    "rope_config_hash",
                                                    "attention_backend", "kv_layout"};

// Numbers of types; 1 is another name of float16.
constexpr std::array<std::optional<DType>, 9> kNumbers = {
    std::nullopt,   DType::float16, DType::float16,       DType::bfloat16,   DType::float32,
    DType::float64, DType::uint8,   DType::float8_e4m3fn, DType::float8_e5m2};

std::optional<uint16_t> number_of(DType dtype) {
  for (size_t i = kNumbers.size(); i-- > 0;) {
    if (kNumbers[i] == dtype) return static_cast<uint16_t>(i);
  }
  return std::nullopt;
}

class Writer {
 public:
  explicit Writer(std::byte* to) : to_(to) {}
  template <typename T>
  void put(T value) {
    store_le<T>(to_, value);
    to_ += sizeof(T);
  }
  void put(std::string_view text) {
    std::memcpy(to_, text.data(), text.size());
    to_ += text.size();
  }

 private:
  std::byte* to_;
};

// Takes fields from the front. After the first that is not there, all are 0 and `is_short`.
class Reader {
 public:
  explicit Reader(Bytes rest) : rest_(rest) {}
  template <typename T>
  T take() {
    const Bytes field = take_bytes(sizeof(T));
    return field.empty() ? T{0} : load_le<T>(field.data());
  }
  Bytes take_bytes(uint64_t count) {
    if (is_short_ || count > rest_.size()) {
      is_short_ = true;
      return {};
    }
    const Bytes taken = rest_.first(static_cast<size_t>(count));
    rest_ = rest_.subspan(taken.size());
    return taken;
  }
  [[nodiscard]] bool is_short() const { return is_short_; }
  [[nodiscard]] size_t left() const { return rest_.size(); }

 private:
  Bytes rest_;
  bool is_short_ = false;
};

Status damaged(const std::string& what) {
  return {Code::corruption, "k16v8: " + what};
}
Status foreign(const std::string& what) {
  return {Code::invalid, "k16v8: " + what};
}

struct Head {
  uint16_t version = 0;
  uint16_t scope = 0;
  uint16_t k_number = 0;
  uint16_t v_number = 0;
  uint16_t scale_number = 0;
  bool is_one_scale = true;  ///< by its shape
  uint64_t k_bytes = 0;
  uint64_t v_bytes = 0;
  uint64_t scale_bytes = 0;
  uint32_t crc = 0;
};

// The texts say for which model the writer wrote. They are left to readers that know theirs.
void skip_texts(Reader& reader) {
  const auto pairs = reader.take<uint16_t>();
  for (uint32_t i = 0; i < 2U * pairs && !reader.is_short(); ++i) {
    reader.take_bytes(reader.take<uint16_t>());
  }
}

Result<Head> read_head(Reader& reader) {
  Head head;
  if (as_text(reader.take_bytes(kMagic.size())) != kMagic) return damaged("no container");
  head.version = reader.take<uint16_t>();
  if (!reader.is_short() && head.version != kVersion) {
    return foreign("version " + std::to_string(head.version) + ", expected 1");
  }
  head.scope = reader.take<uint16_t>();
  head.k_number = reader.take<uint16_t>();
  head.v_number = reader.take<uint16_t>();
  head.scale_number = reader.take<uint16_t>();
  reader.take<uint16_t>();  // reserved
  reader.take_bytes(8 * kPlaces);
  const auto dimensions = reader.take<uint64_t>();
  if (dimensions > kDimensionsMax) {
    return damaged("scales of " + std::to_string(dimensions) + " dimensions, expected at most 8");
  }
  for (uint64_t i = 0; i < dimensions; ++i) {
    if (reader.take<uint64_t>() != 1) head.is_one_scale = false;
  }
  head.k_bytes = reader.take<uint64_t>();
  head.v_bytes = reader.take<uint64_t>();
  head.scale_bytes = reader.take<uint64_t>();
  skip_texts(reader);
  head.crc = reader.take<uint32_t>();
  if (reader.is_short()) return damaged("truncated head");
  return head;
}

Result<DType> type_of(uint16_t number, const char* of) {
  if (number < kNumbers.size() && kNumbers[number]) return *kNumbers[number];
  return foreign("type " + std::to_string(number) + " of " + of + ", expected 1 to 8");
}

Status check(const Head& head, DType scale_type) {
  if (head.scope != kPerTensor || !head.is_one_scale) {
    return foreign("scales of kind " + std::to_string(head.scope) +
                   ", expected one for the whole of V");
  }
  if (head.v_number != number_of(DType::float8_e4m3fn)) {
    return foreign("type " + std::to_string(head.v_number) + " of V, expected float8_e4m3fn");
  }
  if (scale_type != DType::float32 && scale_type != DType::float16) {
    return foreign("scale of " + std::string(dtype_name(scale_type)) +
                   ", expected float32 or float16");
  }
  if (head.scale_bytes != dtype_bytes(scale_type)) {
    return damaged(std::to_string(head.scale_bytes) + " bytes of scale, expected " +
                   std::to_string(dtype_bytes(scale_type)));
  }
  return {};
}

}  // namespace

DType kv_tag(DType dtype) {
  return number_of(dtype) ? dtype : DType::uint8;
}

void write_kv_head(std::byte* to, DType k_tag, size_t k_bytes, size_t v_bytes, uint32_t crc) {
  Writer writer(to);
  writer.put(kMagic);
  writer.put(kVersion);
  writer.put(kPerTensor);
  writer.put(number_of(k_tag).value_or(0));
  writer.put(number_of(DType::float8_e4m3fn).value_or(0));
  writer.put(number_of(DType::float32).value_or(0));
  writer.put(uint16_t{0});
  for (size_t i = 0; i < kPlaces; ++i) writer.put(static_cast<uint64_t>(kUnset));
  writer.put(uint64_t{0});
  writer.put(uint64_t{k_bytes});
  writer.put(uint64_t{v_bytes});
  writer.put(uint64_t{kKvScaleBytes});
  writer.put(static_cast<uint16_t>(kTexts.size()));
  for (const std::string_view name : kTexts) {
    writer.put(static_cast<uint16_t>(name.size()));
    writer.put(name);
    writer.put(uint16_t{0});
  }
  writer.put(crc);
}

Result<KvContainer> read_kv_container(Bytes src) {
  Reader reader(src);
  const Result<Head> head = read_head(reader);
  if (!head) return head.error();
  const Result<DType> k_tag = type_of(head->k_number, "K");
  if (!k_tag) return k_tag.error();
  const Result<DType> scale_type = type_of(head->scale_number, "scales");
  if (!scale_type) return scale_type.error();
  AEROKV_TRY(check(*head, *scale_type));
  const size_t head_bytes = src.size() - reader.left();
  KvContainer container;
  container.k_tag = *k_tag;
  container.crc = head->crc;
  container.k = reader.take_bytes(head->k_bytes);
  container.v = reader.take_bytes(head->v_bytes);
  const Bytes scale = reader.take_bytes(head->scale_bytes);
  if (reader.is_short()) {
    return damaged(std::to_string(src.size() - head_bytes) + " bytes of payload, expected " +
                   std::to_string(head->k_bytes) + " + " + std::to_string(head->v_bytes) + " + " +
                   std::to_string(head->scale_bytes));
  }
  container.bytes = src.size() - reader.left();
  container.payload = src.subspan(head_bytes, container.bytes - head_bytes);
  container.scale = std::bit_cast<float>(*scale_type == DType::float32
                                             ? load_le<uint32_t>(scale.data())
                                             : f16_to_f32_bits(load_le<uint16_t>(scale.data())));
  return container;
}

}  // namespace aerokv::codec
