// SPDX-License-Identifier: Apache-2.0
#include "aerokv/status.h"

namespace aerokv {

std::string_view code_name(Code code) {
  switch (code) {
    case Code::ok:
      return "ok";
    case Code::not_found:
      return "not_found";
    case Code::conflict:
      return "conflict";
    case Code::too_big:
      return "too_big";
    case Code::timeout:
      return "timeout";
    case Code::unavailable:
      return "unavailable";
    case Code::overloaded:
      return "overloaded";
    case Code::corruption:
      return "corruption";
    case Code::protocol:
      return "protocol";
    case Code::denied:
      return "denied";
    case Code::invalid:
      return "invalid";
    case Code::closed:
      return "closed";
    case Code::internal:
      return "internal";
  }
  return "internal";
}

Status Status::with_context(std::string_view context) const {
  Status copy = *this;
  copy.message_ = std::string(context) + ": " + message_;
  return copy;
}

}  // namespace aerokv
