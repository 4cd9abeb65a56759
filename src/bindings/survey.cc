// SPDX-License-Identifier: Apache-2.0
// Class Survey and the questions to all nodes, for the commands that look after a cluster.
#include "aerokv/survey.h"

#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <memory>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "bindings/bind.h"
#include "bindings/errors.h"
#include "bindings/fork_guard.h"
#include "bindings/gil.h"
#include "bindings/object_dicts.h"
#include "bindings/store_options.h"

namespace aerokv::bindings {
namespace {

constexpr const char* kName = "Survey";

/// Runs `call` with the GIL released and returns its value, or throws for its error.
template <typename T, typename Call>
T blocking(Call call, During during = During::call) {
  std::optional<Result<T>> result;
  {
    const GilReleased released;
    result.emplace(call());
  }
  if (!result->has_value()) raise(result->error(), during);
  return std::move(*result).value();
}

nb::object answer_of(const NodeAnswer& answer) {
  if (!answer.status.ok()) return exception_of(answer.status);
  return text_of(answer.text);
}

nb::list ask_cluster_py(const nb::dict& options, const std::vector<std::string>& commands) {
  const StoreOptions parsed = parse_store_options(options);
  const auto reports = blocking<std::vector<NodeReport>>(
      [&] { return ask_cluster(parsed, commands); }, During::open);
  nb::list out;
  for (const NodeReport& report : reports) {
    nb::dict answers;
    for (size_t i = 0; i < report.answers.size(); ++i) {
      answers[nb::str(commands[i].c_str())] = answer_of(report.answers[i]);
    }
    nb::dict node;
    node["node"] = report.node;
    node["address"] = report.address;
    node["answers"] = answers;
    out.append(node);
  }
  return out;
}

nb::dict version_dict(const RecordVersion& version) {
  nb::dict out;
  out["digest"] = version.digest;
  out["generation"] = version.generation;
  return out;
}

nb::dict finding_dict(const Finding& finding) {
  nb::dict out = version_dict(finding.record);
  out["kind"] = finding_kind_name(finding.kind);
  out["key"] = finding.key.empty() ? nb::none() : text_of(finding.key);
  out["expires_in"] =
      finding.expires_in < 0 ? nb::none() : nb::object(nb::int_(finding.expires_in));
  out["detail"] = finding.detail;
  nb::list segments;
  for (const RecordVersion& segment : finding.segments) segments.append(version_dict(segment));
  out["segments"] = segments;
  return out;
}

nb::dict report_dict(const SurveyReport& report) {
  nb::dict out;
  out["objects"] = report.objects;
  out["bytes"] = report.bytes;
  out["segment_records"] = report.segment_records;
  out["keyless"] = report.keyless;
  out["unexamined"] = report.unexamined;
  out["can_tell_orphans"] = report.can_tell_orphans;
  nb::dict counts;
  for (size_t i = 0; i < kFindingKinds; ++i) {
    counts[finding_kind_name(static_cast<FindingKind>(i))] = report.counts[i];
  }
  out["counts"] = counts;
  nb::list findings;
  for (const Finding& finding : report.findings) findings.append(finding_dict(finding));
  out["findings"] = findings;
  return out;
}

class PySurvey {
 public:
  PySurvey(const nb::dict& options, size_t findings_max, size_t records_in_memory) {
    StoreOptions parsed = parse_store_options(options);
    survey_ = blocking<std::unique_ptr<Survey>>(
        [&] { return Survey::open(std::move(parsed), {findings_max, records_in_memory}); },
        During::open);
  }

  ~PySurvey() {
    if (guard_.is_child()) {
      [[maybe_unused]] const Survey* leaked = survey_.release();
      return;
    }
    const GilReleased released;
    survey_.reset();
  }

  PySurvey(const PySurvey&) = delete;
  PySurvey& operator=(const PySurvey&) = delete;

  bool step() {
    Survey& target = native();
    return blocking<bool>([&] { return target.step(); });
  }

  double progress() { return native().progress(); }
  nb::dict report() { return report_dict(native().report()); }

  nb::list remove(const nb::list& records) {
    std::vector<RecordVersion> versions;
    for (const nb::handle record : records) {
      const nb::dict fields = nb::cast<nb::dict>(record);
      versions.push_back(
          {nb::cast<std::string>(fields["digest"]), nb::cast<uint32_t>(fields["generation"])});
    }
    Survey& target = native();
    const auto results = blocking<std::vector<ItemResult>>([&] { return target.remove(versions); });
    nb::list out;
    for (const ItemResult& result : results) {
      if (result.outcome == Outcome::error) {
        out.append(exception_of(result.status));
      } else {
        out.append(nb::bool_(result.outcome == Outcome::hit));
      }
    }
    return out;
  }

 private:
  Survey& native() {
    guard_.check(kName);
    return *survey_;
  }

  ForkGuard guard_;
  std::unique_ptr<Survey> survey_;
};

}  // namespace

void bind_survey(nb::module_& module) {
  module.def("ask_cluster", &ask_cluster_py, nb::arg("options"), nb::arg("commands"),
             "Connect without looking at the namespace and ask every node info commands.");
  module.def("record_digest", &record_digest, nb::arg("set_name"), nb::arg("user_key"),
             "The digest of the record that has this user key, 40 hex digits.");
  nb::class_<PySurvey> type(module, kName, "Walks through all records of a set.");
  type.def(nb::init<const nb::dict&, size_t, size_t>(), nb::arg("options"),
           nb::arg("findings_max") = SurveyOptions().findings_max,
           nb::arg("records_in_memory") = SurveyOptions().records_in_memory);
  type.def("step", &PySurvey::step, "Do a part of the work; false when all is done.");
  type.def("progress", &PySurvey::progress, "How far it is, 0 to 1.");
  type.def("report", &PySurvey::report, "What was found.");
  type.def("remove", &PySurvey::remove, nb::arg("records"),
           "Remove records that still have these generations.");
}

}  // namespace aerokv::bindings
