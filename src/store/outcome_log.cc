// SPDX-License-Identifier: Apache-2.0
#include "store/outcome_log.h"

#include <string>
#include <string_view>

#include "base/log.h"
#include "wire/result.h"

namespace aerokv::store {
namespace {

std::string_view verb_of(Operation operation) {
  switch (operation) {
    case Operation::get:
      return "load";
    case Operation::put:
      return "store";
    case Operation::exists:
      return "lookup";
    case Operation::remove:
      return "delete";
    case Operation::touch:
      return "touch";
  }
  return "operation";
}

std::string_view remedy_of_server_result(uint8_t result) {
  namespace codes = wire::result;
  switch (result) {
    case codes::kOutOfSpace:
      return "the namespace takes no more writes: give it room, or let objects live shorter "
             "(default_ttl_seconds)";
    case codes::kKeyBusy:
      return "many clients write the same object at once";
    case codes::kDeviceOverload:
      return "the server's disks do not keep up: lower max_bytes_in_flight, or add devices or "
             "nodes";
    case codes::kNamespace:
      return "add the namespace to the configuration of every node";
    case codes::kForbidden:
      return "the namespace refuses it, most likely the TTL: set its nsup-period above 0, or "
             "default_ttl_seconds to -1";
    case codes::kRoleViolation:
      return "give the user the role read-write for the namespace";
    case codes::kNotWhitelisted:
      return "add this machine to the whitelist of the user's role";
    case codes::kQuotaExceeded:
      return "raise the quota of the user's role";
    default:
      return {};
  }
}

std::string_view remedy_of(Operation operation, const Status& status) {
  if (const auto remedy = remedy_of_server_result(status.server_result()); !remedy.empty()) {
    return remedy;
  }
  const bool is_read = operation == Operation::get || operation == Operation::exists;
  switch (status.code()) {
    case Code::timeout:
      return is_read ? "look for a slow node or a full network; read_timeout_ms is the deadline"
                     : "look for a slow node or a full network; write_timeout_ms is the deadline";
    case Code::unavailable:
      return "look for a node that is down or cannot be reached from here";
    case Code::overloaded:
      return "the server's queues are full: send less at once, or add nodes";
    case Code::denied:
      return "check username, password and the roles of the user";
    case Code::too_big:
      return "max-record-size of the namespace is smaller than it was; it is asked for again";
    case Code::corruption:
    case Code::protocol:
      return "what arrived is no valid answer: look for a proxy or a defect on the way";
    case Code::invalid:
      return "an argument or option does not fit the object";
    case Code::internal:
      return "a defect of this library: please report it";
    default:
      return "see docs/reference/errors.md";
  }
}

std::string_view remedy_of(MissReason reason) {
  switch (reason) {
    case MissReason::not_found:
    case MissReason::too_large:
      return "the reader's buffer is for another layout: model, chunk size and serde must agree";
    case MissReason::not_ready:
    case MissReason::bad_meta:
      return "another program writes to this set, or the record is damaged; storing it again heals";
    case MissReason::segment_missing:
    case MissReason::segment_size:
    case MissReason::segment_sum:
      return "its writer was interrupted, or parts were evicted or belong to another write; "
             "storing "
             "it again heals";
    case MissReason::payload_hash:
      return "damaged on the server or on the way; storing it again heals";
    case MissReason::other_serde:
      return "give readers and writers of a set the same serde, or each serde its own set_name";
    case MissReason::undecodable:
      return "damaged, or encrypted with another key; storing it again heals";
  }
  return {};
}

}  // namespace

void log_error(const StoreOptions& options, Operation operation, const Status& status) {
  const Code code = status.code();
  if (code == Code::closed || code == Code::not_found) return;
  // A namespace that takes no stores has its own line, see Admission.
  if (operation == Operation::put && status.server_result() == wire::result::kOutOfSpace) return;
  const std::string_view verb = verb_of(operation);
  std::string cause(verb);
  cause += ' ';
  cause += code_name(code);
  cause += ' ';
  cause += std::to_string(status.server_result());
  const bool is_defect = code == Code::internal || code == Code::protocol;
  log(is_defect ? LogLevel::error : LogLevel::warning, cause, [&] {
    std::string line = "namespace " + options.ns + ", set " + options.set_name + ": ";
    line += verb;
    line += " failed: " + status.message() + "; ";
    line += remedy_of(operation, status);
    return line;
  });
}

void log_miss(const StoreOptions& options, MissReason reason, const Status& why) {
  if (reason == MissReason::not_found) return;
  const std::string_view name = miss_reason_name(reason);
  // Callers that do not know the size ask with a buffer that may be too small.
  const bool is_usual = reason == MissReason::too_large;
  log(is_usual ? LogLevel::debug : LogLevel::warning, name, [&] {
    std::string line = "namespace " + options.ns + ", set " + options.set_name;
    line += ": an object that is there was not loaded (";
    line += name;
    line += "): " + why.message() + "; ";
    line += remedy_of(reason);
    return line;
  });
}

}  // namespace aerokv::store
