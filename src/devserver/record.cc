// SPDX-License-Identifier: Apache-2.0
// Entry of record messages, and requests for one record.
#include <algorithm>

#include "devserver/row_run.h"
#include "devserver/service.h"
#include "wire/result.h"

namespace aerokv::devserver {
namespace {

namespace result = wire::result;

/// While a node that must take part is dead, it is looked at this often.
constexpr milliseconds kLookInterval{2};

}  // namespace

/// A single request whose node or replicas are not there.
class SingleRun : public Continuation {
 public:
  explicit SingleRun(RowRun run) : run_(std::move(run)) {}

  Step step(Answer& out, TimePoint now) override {
    const size_t at = out.begin_frame();
    if (run_.advance(out, now)) {
      out.end_frame(at, wire::MessageType::record);
      return Step::done;
    }
    out.rewind(at);
    wake_at_ = std::min(now + kLookInterval, std::max(now, run_.deadline()));
    return Step::wait;
  }

 private:
  RowRun run_;
};

Namespace* Service::find_namespace(std::string_view name) {
  for (Namespace& ns : namespaces) {
    if (ns.name() == name) return &ns;
  }
  return nullptr;
}

uint8_t Service::permission(const Client& client, RequestKind kind) const {
  const bool writes = kind == RequestKind::put || kind == RequestKind::touch ||
                      kind == RequestKind::remove || kind == RequestKind::operate;
  return users.admit(client.session, writes ? Action::write : Action::read);
}

std::unique_ptr<Continuation> Service::record(Client& client, Request& request, Answer& out) {
  if ((request.header.info1 & wire::info1::kBatch) != 0) return batch(client, request, out);
  if (!request.digest) return query(client, request, out);
  return single(client, request, out);
}

std::unique_ptr<Continuation> Service::single(Client& client, Request& request, Answer& out) {
  const auto refuse = [&](uint8_t code) {
    out.header_only(code);
    return nullptr;
  };
  Namespace* ns = request.ns ? find_namespace(*request.ns) : nullptr;
  if (ns == nullptr) return refuse(result::kNamespace);
  if (!cluster.is_member(client.node)) return refuse(result::kUnavailable);
  if (request.digest->size() != kDigestBytes) return refuse(result::kParameter);
  if (!request.is_read() && !request.is_write()) return refuse(result::kParameter);
  if (request.has_filter || request.has_udf) return refuse(result::kUnsupported);
  if (const uint8_t code = permission(client, kind_of(request))) return refuse(code);

  const size_t at = out.begin_frame();
  RowRun run(cluster, *ns, client.node, request, 0);
  const TimePoint now = run.needs_time() ? SteadyClock::now() : TimePoint{};
  const uint32_t timeout_ms = request.header.transaction_ttl;
  run.set_deadline(now + (timeout_ms == 0 ? options.default_timeout : milliseconds(timeout_ms)));
  if (run.advance(out, now)) {
    out.end_frame(at, wire::MessageType::record);
    return nullptr;
  }
  out.rewind(at);
  auto later = std::make_unique<SingleRun>(std::move(run));
  later->retry_after(now + kLookInterval);
  return later;
}

}  // namespace aerokv::devserver
