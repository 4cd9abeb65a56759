// SPDX-License-Identifier: Apache-2.0
// Transforms one behind the other: the output of each is the next one's source, as plain bytes.
#include <algorithm>
#include <limits>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "codec/chain_frame.h"
#include "serde/builtin.h"
#include "serde/params.h"
#include "serde/scratch.h"

namespace aerokv::serde {
namespace {

constexpr size_t kTagBytesMax = 255;

struct Stage {
  std::string name;  // "stage 2 (aesgcm)"
  Serde serde;
};

using Stages = std::vector<Stage>;

Layout plain_bytes(uint64_t size) {
  return {{DType::uint8, {static_cast<int64_t>(size)}}};
}

/// The most that each stage makes of an object of `layout`.
Result<std::vector<uint64_t>> bounds_of(const Stages& stages, const Layout& layout) {
  std::vector<uint64_t> bounds;
  for (const Stage& stage : stages) {
    const Result<size_t> estimate = stage.serde.serializer->estimate_serialized_size(
        bounds.empty() ? layout : plain_bytes(bounds.back()));
    if (!estimate) return estimate.error().with_context("chain: " + stage.name);
    bounds.push_back(*estimate);
  }
  return bounds;
}

// Kept between objects by each chain, for both directions.
constexpr uint64_t kIdleScratchBytesMax = 128 << 20;

/// Room for what lies between two stages.
class Scratch {
 public:
  explicit Scratch(ScratchPool& pool) : pool_(pool) {}
  ~Scratch() { pool_.give_back(std::move(loan_)); }
  Scratch(const Scratch&) = delete;
  Scratch& operator=(const Scratch&) = delete;

  Result<MutableBytes> take(uint64_t size) {
    if (size > size_ || loan_.data() == nullptr) {
      pool_.give_back(std::move(loan_));
      loan_ = pool_.borrow(size);
      size_ = size;
    }
    if (loan_.data() != nullptr) return MutableBytes(loan_.data(), static_cast<size_t>(size));
    return Status(Code::overloaded, "chain: no memory for " + std::to_string(size) + " bytes");
  }

 private:
  ScratchPool& pool_;
  ScratchPool::Loan loan_;
  uint64_t size_ = 0;
};

class ChainSerializer final : public Serializer {
 public:
  ChainSerializer(std::shared_ptr<const Stages> stages, std::shared_ptr<ScratchPool> scratch)
      : stages_(std::move(stages)), scratch_(std::move(scratch)) {}

  [[nodiscard]] bool is_exact_size() const override {
    return std::all_of(stages_->begin(), stages_->end(),
                       [](const Stage& stage) { return stage.serde.serializer->is_exact_size(); });
  }

  [[nodiscard]] Result<size_t> estimate_serialized_size(const Layout& layout) const override {
    const Result<std::vector<uint64_t>> bounds = bounds_of(*stages_, layout);
    if (!bounds) return bounds.error();
    return codec::chain_header_bytes(stages_->size()) + bounds->back();
  }

 private:
  Result<size_t> encode(const ObjectView& src, MutableBytes dst, const SerdeKey& key,
                        Parallel& parallel) const override {
    const Result<std::vector<uint64_t>> bounds = bounds_of(*stages_, src.layout);
    if (!bounds) return bounds.error();
    const size_t header = codec::chain_header_bytes(stages_->size());
    if (dst.size() < header) {
      return Status(Code::invalid, "chain: target of " + std::to_string(dst.size()) +
                                       " bytes, expected at least " + std::to_string(header));
    }
    Scratch scratch[2] = {Scratch(*scratch_), Scratch(*scratch_)};
    std::vector<uint64_t> output_bytes;
    Layout layout = src.layout;
    Bytes source = src.bytes;
    for (size_t i = 0; i < stages_->size(); ++i) {
      const Stage& stage = (*stages_)[i];
      const bool is_last = i + 1 == stages_->size();
      const Result<MutableBytes> target =
          is_last ? dst.subspan(header) : scratch[i % 2].take((*bounds)[i]);
      if (!target) return target.error();
      const Result<size_t> written =
          stage.serde.serializer->serialize({layout, source}, *target, key, parallel);
      if (!written) return written.error().with_context("chain: " + stage.name);
      output_bytes.push_back(*written);
      source = target->first(*written);
      layout = plain_bytes(*written);
    }
    codec::write_chain_header(output_bytes, dst);
    return header + output_bytes.back();
  }

  const std::shared_ptr<const Stages> stages_;
  const std::shared_ptr<ScratchPool> scratch_;
};

class ChainDeserializer final : public Deserializer {
 public:
  ChainDeserializer(std::shared_ptr<const Stages> stages, std::shared_ptr<ScratchPool> scratch)
      : stages_(std::move(stages)), scratch_(std::move(scratch)) {}

 private:
  Status decode(Bytes src, const MutableObjectView& dst, const SerdeKey& key,
                Parallel& parallel) const override {
    const Result<std::vector<uint64_t>> bounds = bounds_of(*stages_, dst.layout);
    if (!bounds) return bounds.error();
    const Result<std::vector<uint64_t>> output_bytes = codec::read_chain_header(src, *bounds);
    if (!output_bytes) return output_bytes.error().with_context("chain");
    Scratch scratch[2] = {Scratch(*scratch_), Scratch(*scratch_)};
    Bytes source = src.subspan(codec::chain_header_bytes(stages_->size()), output_bytes->back());
    for (size_t i = stages_->size(); i-- > 0;) {
      const Stage& stage = (*stages_)[i];
      const bool is_first = i == 0;
      const uint64_t size = is_first ? dst.bytes.size() : (*output_bytes)[i - 1];
      const Result<MutableBytes> target = is_first ? dst.bytes : scratch[i % 2].take(size);
      if (!target) return target.error();
      const Layout layout = is_first ? dst.layout : plain_bytes(size);
      const Status status =
          stage.serde.deserializer->deserialize(source, {layout, *target}, key, parallel);
      if (!status) return status.with_context("chain: " + stage.name);
      source = *target;
    }
    return {};
  }

  const std::shared_ptr<const Stages> stages_;
  const std::shared_ptr<ScratchPool> scratch_;
};

}  // namespace

Result<Serde> make_chain(const SerdeParams& params) {
  ParamReader reader("chain", params);
  const std::vector<SerdeConfig> configs = reader.stages("stages");
  if (configs.empty() || configs.size() > codec::kChainStagesMax) {
    reader.fail("stages", std::to_string(configs.size()) + " stages",
                "1 to " + std::to_string(codec::kChainStagesMax));
  }
  AEROKV_TRY(reader.finish());
  auto stages = std::make_shared<Stages>();
  std::string tag;
  for (const SerdeConfig& config : configs) {
    const std::string name =
        "stage " + std::to_string(stages->size() + 1) + " (" + config.type + ")";
    if (config.type == "chain") {
      return Status(Code::invalid, "serde chain: " + name + ": a chain has no chains inside");
    }
    Result<Serde> made = make_serde(config);
    if (!made) return made.error().with_context("serde chain: " + name);
    tag += (tag.empty() ? "chain(" : ",") + made->tag;
    stages->push_back({name, *std::move(made)});
  }
  tag += ')';
  if (tag.size() > kTagBytesMax) {
    return Status(Code::invalid, "serde chain: a tag of " + std::to_string(tag.size()) +
                                     " characters, expected at most " +
                                     std::to_string(kTagBytesMax));
  }
  const auto scratch = std::make_shared<ScratchPool>(kIdleScratchBytesMax);
  return Serde{std::make_shared<ChainSerializer>(stages, scratch),
               std::make_shared<ChainDeserializer>(stages, scratch), tag};
}

}  // namespace aerokv::serde
