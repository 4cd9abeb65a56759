// SPDX-License-Identifier: Apache-2.0
// Frames, then the units in them, read as a server or a test would read a complete message.
#include "fuzz.h"
#include "wire/message.h"

using aerokv::Bytes;
namespace wire = aerokv::wire;

namespace {

bool read_unit(wire::UnitReader& reader) {
  const auto header = reader.header();
  if (!header) return false;
  for (int i = 0; i < header->field_count; ++i) {
    const size_t before = reader.rest().size();
    const auto field = reader.field();
    if (!field) return false;
    aerokv::fuzz::require(field->value.size() + 5 == before - reader.rest().size());
  }
  for (int i = 0; i < header->op_count; ++i) {
    const size_t before = reader.rest().size();
    const auto op = reader.op();
    if (!op) return false;
    aerokv::fuzz::require(op->value.size() + op->name.size() + 8 == before - reader.rest().size());
  }
  return true;
}

}  // namespace

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  Bytes stream = aerokv::fuzz::input(data, size);
  while (stream.size() >= wire::kFrameHeaderBytes) {
    const auto frame = wire::decode_frame_header(stream);
    if (!frame) return 0;
    stream = stream.subspan(wire::kFrameHeaderBytes);
    const Bytes body = stream.first(std::min<size_t>(stream.size(), frame->body_bytes));
    stream = stream.subspan(body.size());
    wire::UnitReader reader(body);
    while (!reader.rest().empty() && read_unit(reader)) {
    }
  }
  return 0;
}
