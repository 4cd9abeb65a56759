// SPDX-License-Identifier: Apache-2.0
#include "store/survey.h"

#include <algorithm>
#include <cstring>

#include "base/hex.h"
#include "store/meta_wait.h"
#include "store/record_commands.h"
#include "store/row_batch.h"

namespace aerokv {

const char* finding_kind_name(FindingKind kind) {
  switch (kind) {
    case FindingKind::orphan:
      return "orphan";
    case FindingKind::foreign:
      return "foreign";
    case FindingKind::bad_meta:
      return "bad_meta";
    case FindingKind::segment_missing:
      return "segment_missing";
    case FindingKind::segment_sum:
      return "segment_sum";
    case FindingKind::expires_early:
      return "expires_early";
    case FindingKind::expires_never:
      return "expires_never";
    case FindingKind::no_expiry:
      return "no_expiry";
  }
  return "unknown";
}

Result<std::unique_ptr<Survey>> Survey::open(StoreOptions options, SurveyOptions survey) {
  auto opened = store::ChunkStore::open(std::move(options));
  if (!opened) return opened.error();
  return std::unique_ptr<Survey>(std::make_unique<store::SetSurvey>(*std::move(opened), survey));
}

std::string record_digest(const std::string& set_name, const std::string& user_key) {
  return to_hex(wire::compute_digest(set_name, user_key));
}

namespace store {
namespace {

constexpr uint32_t kPartitionsPerStep = 256;
constexpr size_t kSuspectsPerStep = 64;
constexpr size_t kSuspectsMax = 1 << 20;
constexpr size_t kRowsPerStep = 10'000;
constexpr uint32_t kToleranceSeconds = 1;  // two writes of one store fall into different seconds

constexpr std::array kSegmentBins = {bin::kSum, bin::kCrc32, bin::kState};
constexpr std::array kMetaBins = {bin::kVersion,      bin::kState,      bin::kSegmentCount,
                                  bin::kSegmentBytes, bin::kTotalBytes, bin::kCreatedAt,
                                  bin::kPin,          bin::kCrc32,      bin::kSums,
                                  bin::kSerde,        bin::kRawBytes};

std::optional<uint64_t> integer_of(const ScannedRecord& record, std::string_view name) {
  for (const ScannedRecord::Bin& found : record.bins) {
    if (found.name == name && found.value.size() == 8) {
      return load_be<uint64_t>(found.value.data());
    }
  }
  return std::nullopt;
}

bool has_bin(const ScannedRecord& record, std::string_view name) {
  return std::any_of(record.bins.begin(), record.bins.end(),
                     [name](const ScannedRecord::Bin& found) { return found.name == name; });
}

RecordVersion version_of(const wire::Digest& digest, uint32_t generation) {
  return {to_hex(digest), generation};
}

std::optional<wire::Digest> parse_digest(std::string_view text) {
  wire::Digest digest{};
  const std::optional<std::string> bytes = from_hex(text);
  if (!bytes || bytes->size() != digest.size()) return std::nullopt;
  std::memcpy(digest.data(), bytes->data(), digest.size());
  return digest;
}

std::vector<RowResult> run_rows(Context& context, RowBatch::Template::Kind kind,
                                std::string_view bin, std::vector<RowBatch::Row> rows,
                                TimePoint deadline) {
  Latch latch(1);
  std::vector<RowResult> results;
  RowBatch::start(*context.client, {kind, context.options.ns, context.options.set_name, bin},
                  std::move(rows), deadline, [&](std::vector<RowResult> found) {
                    results = std::move(found);
                    latch.count_down();
                  });
  latch.wait();
  return results;
}

/// Deadline of a look at many records.
TimePoint patient_deadline(const Context& context) {
  return SteadyClock::now() +
         std::max<milliseconds>(context.options.write_timeout, milliseconds(10'000));
}

std::string count_text(size_t part, size_t whole, const char* what) {
  return std::to_string(part) + " of " + std::to_string(whole) + " segments " + what;
}

}  // namespace

SetSurvey::SetSurvey(std::unique_ptr<ChunkStore> store, const SurveyOptions& limits)
    : store_(std::move(store)), context_(store_->context()), limits_(limits) {}

double SetSurvey::progress() const {
  if (phase_ == Phase::done) return 1;
  // Of each partition the records are half of the work, the claims of all meta records the other.
  const double whole = 2.0 * kPartitionCount;
  double done = part_from_ + part_to_;
  if (phase_ == Phase::metas) {
    done += (part_to_ - part_from_) * static_cast<double>(meta_next_) / kPartitionCount;
  }
  return std::min(0.99, done / whole);
}

Result<bool> SetSurvey::step() {
  switch (phase_) {
    case Phase::records: {
      if (Status status = read_records(); !status.ok()) return status;
      const bool is_full = entries_.size() >= limits_.records_in_memory;
      if (is_full || part_to_ == kPartitionCount) {
        phase_ = Phase::metas;
        meta_next_ = 0;
        std::sort(entries_.begin(), entries_.end(),
                  [](const Entry& a, const Entry& b) { return a.digest < b.digest; });
      }
      return true;
    }
    case Phase::metas:
      if (Status status = read_metas(); !status.ok()) return status;
      if (meta_next_ < kPartitionCount) return true;
      close_part();
      part_from_ = part_to_;
      phase_ = part_to_ == kPartitionCount ? Phase::suspects : Phase::records;
      return true;
    case Phase::suspects: {
      const size_t end = std::min(suspect_next_ + kSuspectsPerStep, suspects_.size());
      for (; suspect_next_ < end; ++suspect_next_) examine(suspects_[suspect_next_]);
      if (suspect_next_ == suspects_.size()) phase_ = Phase::done;
      return phase_ != Phase::done;
    }
    case Phase::done:
      break;
  }
  return false;
}

/// Segments by the bins that name them, then all records by their headers: what has no bin of ours
/// is seen by the second look alone.
Status SetSurvey::read_records() {
  std::vector<uint16_t> partitions;
  const uint32_t end = std::min(part_to_ + kPartitionsPerStep, kPartitionCount);
  for (uint32_t p = part_to_; p < end; ++p) partitions.push_back(static_cast<uint16_t>(p));
  std::map<wire::Digest, Entry> found;
  std::unordered_set<std::string> metas;
  AEROKV_TRY(scan_partitions(*context_, partitions, {kSegmentBins, false, 8},
                             [&](const ScannedRecord& record) {
                               if (has_bin(record, bin::kState)) {
                                 metas.insert(std::string(as_text(record.digest)));
                                 return;
                               }
                               const std::optional<uint64_t> sum = integer_of(record, bin::kSum);
                               found[record.digest] = {record.digest,
                                                       record.generation,
                                                       record.void_time,
                                                       sum.value_or(0),
                                                       sum.has_value(),
                                                       true,
                                                       false};
                             }));
  AEROKV_TRY(scan_partitions(
      *context_, std::move(partitions), {{}, true, 0}, [&](const ScannedRecord& record) {
        if (metas.count(std::string(as_text(record.digest))) > 0) return;
        found.try_emplace(record.digest, Entry{record.digest, record.generation, record.void_time,
                                               0, false, false, false});
      }));
  entries_.reserve(entries_.size() + found.size());
  for (const auto& [digest, entry] : found) entries_.push_back(entry);
  part_to_ = end;
  return {};
}

Status SetSurvey::read_metas() {
  std::vector<uint16_t> partitions;
  const uint32_t end = std::min(meta_next_ + kPartitionsPerStep, kPartitionCount);
  for (uint32_t p = meta_next_; p < end; ++p) partitions.push_back(static_cast<uint16_t>(p));
  meta_next_ = end;
  return scan_partitions(*context_, std::move(partitions),
                         {kMetaBins, false, wire::kCopiedValueBytesMax},
                         [&](const ScannedRecord& record) { visit_meta(record); });
}

void SetSurvey::visit_meta(const ScannedRecord& record) {
  const bool is_meta = has_bin(record, bin::kState) || has_bin(record, bin::kSegmentCount) ||
                       has_bin(record, bin::kTotalBytes);
  if (!is_meta) return;
  if (Entry* entry = find(record.digest)) entry->is_claimed = true;
  const bool is_first_part = part_from_ == 0;
  const std::optional<RecordName> name = parse_user_key(record.user_key);
  const std::string key =
      name && name->kind == RecordKind::meta ? std::string(name->logical_key) : std::string();
  const Result<MetaRecord> meta = decode_meta_record(record.views(), PayloadBin::not_requested);
  bool is_suspect = !meta.has_value();
  if (meta) {
    if (is_first_part) {
      ++report_.objects;
      report_.bytes += meta->plan.total_bytes;
      if (record.void_time == 0 && !meta->pin && context_->options.default_ttl_seconds > 0) {
        add({FindingKind::no_expiry,
             key,
             version_of(record.digest, record.generation),
             -1,
             "never expires",
             {}});
      }
    }
    if (!meta->plan.is_inline()) {
      if (!key.empty()) {
        is_suspect = claim_segments(key, *meta, record.void_time);
      } else if (is_first_part) {
        ++report_.keyless;
        report_.can_tell_orphans = report_.can_tell_orphans && !meta->sums.empty();
        keyless_sums_.insert(meta->sums.begin(), meta->sums.end());
      }
    }
  }
  if (!is_suspect) return;
  if (suspects_.size() >= kSuspectsMax) return note_unread();
  if (suspected_.insert(std::string(as_text(record.digest))).second) {
    suspects_.push_back({record.digest, key});
  }
}

bool SetSurvey::claim_segments(const std::string& key, const MetaRecord& meta, uint32_t void_time) {
  bool is_suspect = false;
  const std::vector<wire::Digest> digests = context_->segment_digests(key, meta.plan.segment_count);
  for (size_t i = 0; i < digests.size(); ++i) {
    const uint32_t partition = wire::partition_of(digests[i]);
    if (partition < part_from_ || partition >= part_to_) continue;
    Entry* const entry = find(digests[i]);
    if (entry == nullptr) {
      is_suspect = true;
      continue;
    }
    if (!entry->is_claimed) ++report_.segment_records;
    entry->is_claimed = true;
    const bool sum_differs = !meta.sums.empty() && (!entry->has_sum || entry->sum != meta.sums[i]);
    const bool ends_otherwise =
        (entry->void_time == 0) != (void_time == 0) ||
        uint64_t{entry->void_time} + kToleranceSeconds < uint64_t{void_time};
    is_suspect = is_suspect || sum_differs || ends_otherwise;
  }
  return is_suspect;
}

SetSurvey::Entry* SetSurvey::find(const wire::Digest& digest) {
  const auto at = std::lower_bound(
      entries_.begin(), entries_.end(), digest,
      [](const Entry& entry, const wire::Digest& wanted) { return entry.digest < wanted; });
  return at == entries_.end() || at->digest != digest ? nullptr : &*at;
}

void SetSurvey::close_part() {
  for (const Entry& entry : entries_) {
    if (entry.is_claimed) continue;
    if (entry.has_sum && keyless_sums_.count(entry.sum) > 0) continue;
    // Whose it is cannot be told while an object may own any segment.
    if (entry.is_segment && !report_.can_tell_orphans) continue;
    add({entry.is_segment ? FindingKind::orphan : FindingKind::foreign,
         "",
         version_of(entry.digest, entry.generation),
         expires_in(entry.void_time),
         "",
         {}});
  }
  entries_.clear();
}

/// Reads a suspect once more, the meta record first: what was stored or renewed meanwhile is fine.
void SetSurvey::examine(const Suspect& suspect) {
  MetaWait look(*context_);
  look.get.prepare(suspect.digest, false, patient_deadline(*context_), 0);
  look.run(*context_->client);
  if (look.get.is_missing()) return;
  if (!look.get.outcome("survey").ok()) return note_unread();
  const Result<MetaRecord> meta = look.get.decode();
  const wire::MessageHeader& header = look.get.header();
  if (meta) return judge(suspect, *meta, header);
  add({FindingKind::bad_meta,
       suspect.key,
       version_of(suspect.digest, header.generation),
       expires_in(header.record_ttl),
       meta.error().message(),
       {}});
}

void SetSurvey::judge(const Suspect& suspect, const MetaRecord& meta,
                      const wire::MessageHeader& header) {
  if (meta.plan.is_inline() || suspect.key.empty()) return;
  const std::vector<wire::Digest> digests =
      context_->segment_digests(suspect.key, meta.plan.segment_count);
  std::vector<RowBatch::Row> rows;
  for (const wire::Digest& digest : digests) rows.push_back({digest, 0, 0});
  const std::vector<RowResult> found =
      run_rows(*context_, RowBatch::Template::Kind::read_integer, bin::kSum, std::move(rows),
               patient_deadline(*context_));
  Finding finding{
      FindingKind::orphan,           suspect.key, version_of(suspect.digest, header.generation),
      expires_in(header.record_ttl), "",          {}};
  size_t missing = 0;
  size_t other = 0;
  size_t early = 0;
  size_t never = 0;
  for (size_t i = 0; i < found.size(); ++i) {
    if (found[i].is_missing()) {
      ++missing;
      continue;
    }
    if (!found[i].is_found()) return note_unread();
    finding.segments.push_back(version_of(digests[i], found[i].generation));
    const auto sum = found[i].integer;
    if (!meta.sums.empty() && (!sum || sum_from_bin(*sum) != meta.sums[i])) ++other;
    const uint32_t end = found[i].void_time;
    if (end == 0 && header.record_ttl != 0) ++never;
    if (end != 0 && (header.record_ttl == 0 || end + kToleranceSeconds < header.record_ttl)) {
      ++early;
    }
  }
  if (missing > 0) {
    finding.kind = FindingKind::segment_missing;
    finding.detail = count_text(missing, found.size(), "are missing");
  } else if (other > 0) {
    finding.kind = FindingKind::segment_sum;
    finding.detail = count_text(other, found.size(), "are of another write");
  } else if (early > 0) {
    finding.kind = FindingKind::expires_early;
    finding.detail = count_text(early, found.size(), "expire before the object");
  } else if (never > 0) {
    finding.kind = FindingKind::expires_never;
    finding.detail = count_text(never, found.size(), "never expire, the object does");
  } else {
    return;
  }
  add(std::move(finding));
}

void SetSurvey::add(Finding finding) {
  const auto kind = static_cast<size_t>(finding.kind);
  ++report_.counts[kind];
  if (kept_[kind] >= limits_.findings_max) return;
  ++kept_[kind];
  report_.findings.push_back(std::move(finding));
}

Result<std::vector<ItemResult>> SetSurvey::remove(const std::vector<RecordVersion>& records) {
  std::vector<ItemResult> results(records.size());
  for (size_t from = 0; from < records.size(); from += kRowsPerStep) {
    const size_t to = std::min(from + kRowsPerStep, records.size());
    std::vector<RowBatch::Row> rows;
    for (size_t i = from; i < to; ++i) {
      const std::optional<wire::Digest> digest = parse_digest(records[i].digest);
      if (!digest || records[i].generation == 0) {
        return Status(Code::invalid, "remove: record " + std::to_string(i) +
                                         ": expected 40 hex digits and a generation above 0");
      }
      rows.push_back({*digest, 0, records[i].generation});
    }
    const std::vector<RowResult> removed = run_rows(*context_, RowBatch::Template::Kind::remove, {},
                                                    std::move(rows), patient_deadline(*context_));
    for (size_t i = from; i < to; ++i) {
      const RowResult& row = removed[i - from];
      const bool is_other = row.status.ok() && row.code == wire::result::kGeneration;
      if (row.is_found()) {
        results[i].outcome = Outcome::hit;
      } else if (row.is_missing() || is_other) {
        results[i].outcome = Outcome::miss;
      } else {
        results[i].status =
            row.status.ok() ? wire::status_from_result(row.code, "remove") : row.status;
      }
    }
  }
  return results;
}

}  // namespace store
}  // namespace aerokv
