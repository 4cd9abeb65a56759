// SPDX-License-Identifier: Apache-2.0
// A conversation with the development server, without sockets: any bytes of a client, framed.
// Whatever it answers, the engine's own decoder must be able to read.
#include <algorithm>

#include "devserver/service.h"
#include "fuzz.h"
#include "wire/collecting_sink.h"
#include "wire/message.h"

using aerokv::Bytes;
using aerokv::fuzz::require;
namespace devserver = aerokv::devserver;
namespace wire = aerokv::wire;

namespace {

constexpr uint64_t kNamespaceBytes = 4 << 20;
constexpr int kStepsMax = 10000;

// One server for all inputs, because its partition map takes long to make; each input meets fresh
// namespaces.
devserver::Service& fresh_service() {
  static devserver::Service* const service = [] {
    devserver::Options options;
    options.replication = 1;
    options.node_ids = {"A1"};
    devserver::NamespaceOptions kept, never_purged;
    kept.size_bytes = never_purged.size_bytes = kNamespaceBytes;
    never_purged.name = "nsup0";
    never_purged.nsup_period_s = 0;
    options.namespaces = {kept, never_purged};
    devserver::NodeAddresses addresses;
    addresses[static_cast<size_t>(devserver::AddressKind::clear)] =
        devserver::Endpoint{"127.0.0.1", 3000};
    return new devserver::Service(options, {addresses});
  }();
  service->namespaces.clear();
  for (const devserver::NamespaceOptions& ns : service->options.namespaces) {
    service->namespaces.emplace_back(ns, service->options.nodes, service->pool);
  }
  return *service;
}

// The kind of answer that a client expects for this request.
wire::ReplyKind kind_of(const devserver::Request& request) {
  if ((request.header.info1 & wire::info1::kBatch) != 0) return wire::ReplyKind::batch;
  return request.digest ? wire::ReplyKind::record : wire::ReplyKind::query;
}

void require_readable(const devserver::Answer& answer, wire::ReplyKind kind) {
  const std::vector<std::byte> bytes = answer.flat();
  require(bytes.size() == answer.size());
  wire::CollectingSink sink(wire::ValueTarget::Action::receive_into);
  wire::ReplyDecoder decoder;
  decoder.expect(kind, sink);
  Bytes stream(bytes);
  const auto progress = feed(decoder, stream, [] { return SIZE_MAX; });
  require(progress && *progress == wire::ReplyDecoder::Progress::complete);
  require(stream.empty() && decoder.buffered() == 0);
}

void serve_record(devserver::Service& service, devserver::Client& client, Bytes body) {
  devserver::Request request;
  devserver::Answer answer;
  if (!parse_request(body, request)) return;  // answered by the connection with code 4
  const wire::ReplyKind kind = kind_of(request);
  auto continuation = service.record(client, request, answer);
  for (int steps = 0; continuation != nullptr; ++steps) {
    require(steps < kStepsMax);
    const auto step = continuation->step(answer, aerokv::SteadyClock::now());
    if (step == devserver::Continuation::Step::done) break;
  }
  require_readable(answer, kind);
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  devserver::Service& service = fresh_service();
  devserver::Client client;
  Bytes stream = aerokv::fuzz::input(data, size);
  while (stream.size() >= wire::kFrameHeaderBytes) {
    const auto frame = wire::decode_frame_header(stream);
    if (!frame) return 0;
    stream = stream.subspan(wire::kFrameHeaderBytes);
    const Bytes body = stream.first(std::min<size_t>(stream.size(), frame->body_bytes));
    stream = stream.subspan(body.size());
    devserver::Answer answer;
    if (frame->type == wire::MessageType::info) {
      service.info(client, body, answer);
      require_readable(answer, wire::ReplyKind::info);
    } else if (frame->type == wire::MessageType::security) {
      service.users.handle(body, client.certificate_name, client.session, answer);
      require_readable(answer, wire::ReplyKind::security);
    } else if (frame->type == wire::MessageType::record) {
      serve_record(service, client, body);
    }
  }
  service.housekeeping();
  return 0;
}
