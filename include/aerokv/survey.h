// SPDX-License-Identifier: Apache-2.0
// Looking after what is stored: questions to the nodes, and a survey of all records of a set.
// For people and tools, not for the hot path.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <string>
#include <vector>

#include "aerokv/store.h"

namespace aerokv {

/// What one node said to several info commands.
struct NodeReport {
  std::string node;     ///< its name
  std::string address;  ///< where it was asked
  /// One for each command that was asked, in order; none behind the first that got no answer.
  std::vector<NodeAnswer> answers;
};

/// Connects as a Store with these options would, without looking at the namespace, and asks every
/// node the commands. Blocks. Errors: those of connecting (invalid, unavailable, denied).
Result<std::vector<NodeReport>> ask_cluster(const StoreOptions& options,
                                            const std::vector<std::string>& commands);

/// The digest of the record that has this user key, 40 hex digits.
std::string record_digest(const std::string& set_name, const std::string& user_key);

/// A record as a survey saw it. A write changes the generation.
struct RecordVersion {
  std::string digest;  ///< 40 hex digits
  uint32_t generation = 0;
  bool operator==(const RecordVersion&) const = default;
};

enum class FindingKind : uint8_t {
  orphan,           ///< a segment that no object names
  foreign,          ///< a record that no object names and that is not known for a segment
  bad_meta,         ///< a meta record that is no valid one, or is not ready
  segment_missing,  ///< an object lacks segments
  segment_sum,      ///< segments belong to another write of the object
  expires_early,    ///< segments expire before their object
  expires_never,    ///< segments stay for ever behind an object that expires
  no_expiry,        ///< an object never expires, though default_ttl_seconds is above 0
};
inline constexpr size_t kFindingKinds = 8;
const char* finding_kind_name(FindingKind kind);

struct Finding {
  FindingKind kind = FindingKind::orphan;
  std::string key;       ///< empty if it is not known
  RecordVersion record;  ///< the meta record, or the segment itself
  int64_t expires_in = -1;
  std::string detail;
  std::vector<RecordVersion> segments;  ///< of a damaged object: those that are there
};

struct SurveyOptions {
  size_t findings_max = 100'000;       ///< of each kind; more are counted only
  size_t records_in_memory = 4 << 20;  ///< 40 bytes each; a larger set is walked through in parts
};

struct SurveyReport {
  uint64_t objects = 0;          ///< valid meta records
  uint64_t bytes = 0;            ///< that they name
  uint64_t segment_records = 0;  ///< that belong to them
  uint64_t keyless = 0;          ///< objects of several segments whose key is not known
  uint64_t unexamined = 0;       ///< suspects that could not be read
  /// Objects without key and sums may own any segment: then orphans cannot be told.
  bool can_tell_orphans = true;
  std::array<uint64_t, kFindingKinds> counts{};
  std::vector<Finding> findings;
};

/// Walks through all records of a set, by headers and small bins only, in steps.
///
/// Segments are read before the meta records, and what looks wrong is looked at once more, so that
/// stores which end meanwhile are no findings. One that is under way all the time is: compare two
/// surveys some minutes apart before you remove anything. Memory is bounded by the options. Not
/// thread-safe.
class Survey {
 public:
  /// Errors: as Store::open().
  static Result<std::unique_ptr<Survey>> open(StoreOptions options, SurveyOptions survey);
  virtual ~Survey() = default;

  /// Does a part of the work; false when all is done. Blocks. After an error the survey is void.
  virtual Result<bool> step() = 0;
  /// How far it is, 0 to 1.
  [[nodiscard]] virtual double progress() const = 0;
  /// What was found; complete when step() has said so.
  [[nodiscard]] virtual const SurveyReport& report() const = 0;

  /// Removes records that still have these generations. One result each: hit = removed, miss = gone
  /// or written again. Blocks.
  virtual Result<std::vector<ItemResult>> remove(const std::vector<RecordVersion>& records) = 0;
};

}  // namespace aerokv
