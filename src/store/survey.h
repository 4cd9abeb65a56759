// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <map>
#include <unordered_set>

#include "aerokv/survey.h"
#include "store/chunk_store.h"
#include "store/partition_scan.h"

namespace aerokv::store {

/// See Survey. For each part of the set: its records, then all meta records, which claim theirs;
/// what is left over belongs to nobody. At the end the suspects are examined one by one.
class SetSurvey final : public Survey {
 public:
  SetSurvey(std::unique_ptr<ChunkStore> store, const SurveyOptions& limits);

  Result<bool> step() override;
  [[nodiscard]] double progress() const override;
  [[nodiscard]] const SurveyReport& report() const override { return report_; }
  Result<std::vector<ItemResult>> remove(const std::vector<RecordVersion>& records) override;

 private:
  enum class Phase : uint8_t { records, metas, suspects, done };

  /// A record of the present part that is not known for a meta record yet.
  struct Entry {
    wire::Digest digest{};
    uint32_t generation = 0;
    uint32_t void_time = 0;
    uint64_t sum = 0;
    bool has_sum = false;
    bool is_segment = false;  ///< has one of the bins that only segments of ours have
    bool is_claimed = false;
  };

  /// An object that something seems to be wrong with.
  struct Suspect {
    wire::Digest digest{};
    std::string key;
  };

  Status read_records();
  Status read_metas();
  void visit_meta(const ScannedRecord& record);
  /// Whether something seems to be wrong with the segments that lie in the present part.
  bool claim_segments(const std::string& key, const MetaRecord& meta, uint32_t void_time);
  void close_part();
  void examine(const Suspect& suspect);
  void judge(const Suspect& suspect, const MetaRecord& meta, const wire::MessageHeader& header);
  void add(Finding finding);
  void note_unread() { ++report_.unexamined; }

  [[nodiscard]] Entry* find(const wire::Digest& digest);

  const std::unique_ptr<ChunkStore> store_;
  const std::shared_ptr<Context> context_;
  const SurveyOptions limits_;
  SurveyReport report_;

  Phase phase_ = Phase::records;
  uint32_t part_from_ = 0;  // the present part is partitions part_from_ .. part_to_ - 1
  uint32_t part_to_ = 0;
  uint32_t meta_next_ = 0;
  std::vector<Entry> entries_;
  std::vector<Suspect> suspects_;
  std::unordered_set<std::string> suspected_;  // digests of suspects_
  size_t suspect_next_ = 0;
  std::unordered_set<uint64_t> keyless_sums_;
  std::array<size_t, kFindingKinds> kept_{};
};

}  // namespace aerokv::store
