// SPDX-License-Identifier: Apache-2.0
// A node whose answers to record requests lie: about sizes, counts, rows and bins, without end, or
// unasked. Whatever it says, operations end in time with clean misses or errors.
#include "store/meta_record.h"
#include "store/sums.h"
#include "tests/fault/world.h"
#include "tests/hostile/scripted_node.h"

namespace aerokv::testing {
namespace {

namespace bin = store::bin;
using std::chrono::milliseconds;
using std::chrono::seconds;
using wire::OpType;
using wire::Particle;

/// Builds a record answer op by op; counts and sizes are what the test says.
class Lie {
 public:
  Lie() { writer_.header({}); }

  Lie& code(uint8_t code) {
    header_.result_code = code;
    return *this;
  }
  Lie& info3(uint8_t bits) {
    header_.info3 = bits;
    return *this;
  }
  Lie& row(uint32_t index) {
    header_.transaction_ttl = index;
    return *this;
  }
  Lie& claims(uint16_t fields, uint16_t ops) {
    claimed_ = true;
    header_.field_count = fields;
    header_.op_count = ops;
    return *this;
  }
  Lie& integer(std::string_view name, int64_t value) {
    writer_.op_integer(OpType::read, name, value);
    ++ops_;
    return *this;
  }
  Lie& text(std::string_view name, std::string_view value) {
    writer_.op(OpType::read, Particle::string, name, as_bytes(value));
    ++ops_;
    return *this;
  }
  Lie& blob(std::string_view name, Bytes value) {
    writer_.op(OpType::read, Particle::blob, name, value);
    ++ops_;
    return *this;
  }
  /// An op that claims a value of `bytes` bytes that is not there.
  Lie& claimed_blob(std::string_view name, size_t bytes) {
    writer_.op_header(OpType::read, Particle::blob, name, bytes);
    ++ops_;
    return *this;
  }
  Lie& raw(Bytes bytes) {
    writer_.bytes(bytes);
    return *this;
  }
  [[nodiscard]] ByteVector unit() {
    if (!claimed_) header_.op_count = ops_;
    wire::encode_message_header(header_, bytes_.data());
    return bytes_;
  }
  [[nodiscard]] ByteVector frame() { return frame_of(wire::MessageType::record, unit()); }
  /// A frame that claims `more` bytes more than there are.
  [[nodiscard]] ByteVector frame(uint64_t more) {
    ByteVector out = frame();
    store_be<uint64_t>(out.data(), load_be<uint64_t>(out.data()) + more);
    return out;
  }

 private:
  wire::MessageHeader header_;
  bool claimed_ = false;
  uint16_t ops_ = 0;
  ByteVector bytes_;
  wire::UnitWriter writer_{bytes_};
};

/// The bins of a right meta record of an inline object of `bytes` bytes.
Lie inline_meta(size_t bytes) {
  Lie lie;
  lie.integer(bin::kVersion, 1).text(bin::kState, "ready").integer(bin::kSegmentCount, 1);
  lie.integer(bin::kSegmentBytes, static_cast<int64_t>(bytes));
  lie.integer(bin::kTotalBytes, static_cast<int64_t>(bytes));
  return lie;
}

ByteVector joined(std::initializer_list<ByteVector> parts) {
  ByteVector all;
  for (const ByteVector& part : parts) all.insert(all.end(), part.begin(), part.end());
  return all;
}

struct Case {
  std::string name;
  Reply reply;
};

constexpr uint8_t kLast = wire::info3::kLast;

std::vector<Case> record_lies() {
  const Buffer payload = random_bytes(1000, 1);
  const Bytes value(payload);
  const ByteVector small(200, std::byte{7});
  std::vector<Case> all = {
      {"op count 65535", {Lie().claims(0, 65535).integer("a", 1).frame()}},
      {"field count 65535", {Lie().claims(65535, 0).integer("a", 1).frame()}},
      {"payload twice", {inline_meta(1000).blob("b", value).blob("b", value).frame()}},
      {"payload of another size", {inline_meta(1000).blob("b", value.first(999)).frame()}},
      {"payload of 5000 bytes", {inline_meta(5000).blob("b", ByteVector(5000)).frame()}},
      {"payload missing", {inline_meta(1000).frame()}},
      {"payload is text", {inline_meta(10).text("b", "0123456789").frame()}},
      {"payload without a header", {Lie().blob("b", value).frame()}},
      {"segments that are not there",
       {Lie()
            .integer(bin::kVersion, 1)
            .text(bin::kState, "ready")
            .integer(bin::kSegmentCount, 65536)
            .integer(bin::kSegmentBytes, 1)
            .integer(bin::kTotalBytes, 1000)
            .frame()}},
      {"value of 2 GiB", {Lie().claimed_blob("b", 0x7FFFFFF0).frame()}},
      {"value of 2 GiB in a larger frame", {Lie().claimed_blob("b", 0x7FFFFFF0).frame(1 << 26)}},
      {"value without end",
       {Lie().claimed_blob("x", 100 << 20).frame(100 << 20), false, true, small}},
      {"payload without end",
       {Lie().claimed_blob("b", 100 << 20).frame(100 << 20), false, true, small}},
      {"copied bin of 100 MB",
       {Lie().claimed_blob("md", 100 << 20).frame(100 << 20), false, true, small}},
      {"copied bin of 1 MB, many times", {[] {
         Lie lie;
         const ByteVector mega(1 << 20, std::byte{1});
         for (int i = 0; i < 40; ++i) lie.blob("md", mega);
         return lie.frame();
       }()}},
      {"ten thousand foreign bins", {[] {
         Lie lie = inline_meta(4);
         for (int i = 0; i < 10000; ++i) lie.integer("f" + std::to_string(i), i);
         return lie.frame();
       }()}},
      {"op shorter than its name",
       {Lie()
            .claims(0, 1)
            .raw(ByteVector({std::byte{0}, std::byte{0}, std::byte{0}, std::byte{5}, std::byte{1},
                             std::byte{1}, std::byte{0}, std::byte{200}}))
            .frame()}},
      {"bytes behind the record", {joined({Lie().code(2).frame(), small})}},
      {"two answers", {joined({Lie().code(2).frame(), Lie().code(2).frame()})}},
      {"answers without end", {Lie().code(2).frame(), false, true, Lie().code(2).frame()}},
      {"two units",
       {frame_of(wire::MessageType::record, joined({Lie().code(2).unit(), Lie().code(2).unit()}))}},
      {"empty frame", {frame_of(wire::MessageType::record, {})}},
      {"empty frames without end", {{}, false, true, frame_of(wire::MessageType::record, {})}},
      {"info frame", {info_frame("node\tx\n")}},
      {"compressed frame", {frame_of(wire::MessageType::compressed, small)}},
      {"one byte at a time",
       {inline_meta(1000).blob("b", value).frame(), false, false, {}, milliseconds(5)}},
      {"silence", {}},
      {"closed", {{}, true}},
  };
  for (int code : {1, 3, 7, 9, 11, 14, 18, 27, 66, 80, 83, 99, 152, 255}) {
    all.push_back({"code " + std::to_string(code), {header_frame(static_cast<uint8_t>(code))}});
  }
  return all;
}

std::vector<Case> batch_lies() {
  const auto row = [](uint32_t index) { return Lie().row(index).integer("nseg", 65536); };
  const auto frames = [](std::initializer_list<ByteVector> units) {
    return frame_of(wire::MessageType::record, joined(units));
  };
  const ByteVector end = Lie().info3(kLast).unit();
  return {
      {"no rows", {frames({end})}},
      {"row out of range", {frames({row(3).unit(), end})}},
      {"row far out of range", {frames({row(0xFFFFFFFF).unit(), end})}},
      {"row twice", {frames({row(0).unit(), row(0).unit(), end})}},
      {"one row missing", {frames({row(0).unit(), row(2).unit(), end})}},
      {"rows in another order", {frames({row(2).unit(), row(1).unit(), row(0).unit(), end})}},
      {"no end", {frames({row(0).unit(), row(1).unit(), row(2).unit()})}},
      {"rows without end", {frames({row(0).unit()}), false, true, frames({row(1).unit()})}},
      {"empty frames without end", {{}, false, true, frame_of(wire::MessageType::record, {})}},
      {"units behind the end", {frames({end, row(0).unit()})}},
      {"end with ops", {frames({Lie().info3(kLast).integer("a", 1).unit()})}},
      {"end with an error", {frames({row(0).unit(), Lie().info3(kLast).code(4).unit()})}},
      {"huge op",
       {Lie().row(0).claimed_blob("nseg", 100 << 20).frame(100 << 20), false, true,
        ByteVector(4096)}},
      {"record answer", {header_frame(0)}},
      {"wrong type", {info_frame("x")}},
      {"one byte at a time",
       {frames({row(0).unit(), row(1).unit(), row(2).unit(), end}),
        false,
        false,
        {},
        milliseconds(5)}},
      {"silence", {}},
      {"closed", {{}, true}},
  };
}

/// Most cases are waiting for a time limit: several are tried at a time.
void for_each_case(const std::vector<Case>& cases, const std::function<void(const Case&)>& check) {
  std::atomic<size_t> next{0};
  std::vector<std::thread> threads;
  for (int i = 0; i < 8; ++i) {
    threads.emplace_back([&] {
      for (size_t at = next++; at < cases.size(); at = next++) {
        SCOPED_TRACE(cases[at].name);
        check(cases[at]);
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
}

class HostileAnswers : public ::testing::Test {
 protected:
  /// Runs one batch on a node that answers everything with `reply`.
  void run_against(const Case& lie, Operation operation, bool may_succeed) {
    ScriptedNode node;
    node.on_record = [&](Bytes) { return borrowed(lie.reply); };
    StoreOptions options = hostile_options(node.host());
    options.read_timeout = options.write_timeout = milliseconds(250 * kSlowness);
    Result<std::unique_ptr<Connector>> connector = Connector::create(open_store(options));
    Guarded targets[3] = {Guarded(1000), Guarded(3 * kSegment), Guarded(0)};
    const Buffer payload = random_bytes(2 * kSegment, 1);
    std::vector<Item> items;
    for (size_t i = 0; i < 3; ++i) {
      Item item = operation == Operation::get ? get_into(std::to_string(i), targets[i])
                                              : key_item(std::to_string(i));
      if (operation == Operation::put) item.payload = payload;
      items.push_back(item);
    }
    const auto begun = std::chrono::steady_clock::now();
    const Completion completion = complete(**connector, operation, std::move(items));
    EXPECT_LT(std::chrono::steady_clock::now() - begun, seconds(4 * kSlowness)) << lie.name;
    for (const Guarded& target : targets) EXPECT_TRUE(target.is_intact()) << lie.name;
    EXPECT_TRUE(may_succeed || text_of(completion.bits) == "000") << lie.name;
    EXPECT_EQ((*connector)->store()->stats().bytes_in_flight, 0U) << lie.name;
  }

  const size_t peak_before_ = peak_resident_bytes();
};

TEST_F(HostileAnswers, ToLoads) {
  for_each_case(record_lies(), [&](const Case& lie) {
    // The payload arrives in time, or says what it is.
    const bool is_true = lie.name == "one byte at a time" || lie.name == "payload of 5000 bytes";
    run_against(lie, Operation::get, is_true);
  });
  EXPECT_LT(peak_resident_bytes(), peak_before_ + (size_t{400} << 20) * kSlowness);
}

TEST_F(HostileAnswers, ToStores) {
  for_each_case(record_lies(), [&](const Case& lie) { run_against(lie, Operation::put, true); });
  EXPECT_LT(peak_resident_bytes(), peak_before_ + (size_t{400} << 20) * kSlowness);
}

TEST_F(HostileAnswers, ToLookupsRemovalsAndTouches) {
  for (const Operation operation : {Operation::exists, Operation::remove, Operation::touch}) {
    for_each_case(batch_lies(), [&](const Case& lie) { run_against(lie, operation, true); });
  }
  EXPECT_LT(peak_resident_bytes(), peak_before_ + (size_t{400} << 20) * kSlowness);
}

TEST_F(HostileAnswers, ToListingsAndInspections) {
  std::vector<Case> lies = record_lies();
  for (Case& lie : batch_lies()) lies.push_back(std::move(lie));
  for_each_case(lies, [&](const Case& lie) {
    // A listing may lawfully take its time.
    if (lie.reply.endless || lie.reply.drip.count() > 0 || lie.reply.bytes.empty()) return;
    ScriptedNode node;
    node.on_record = [&](Bytes) { return borrowed(lie.reply); };
    const std::unique_ptr<Store> store = open_store(hostile_options(node.host()));
    static_cast<void>(store->inspect("k"));
    if (lie.name.find("2 GiB") != std::string::npos || lie.name == "no end") return;
    uint32_t cursor = 0;
    static_cast<void>(store->list(cursor, 1));
  });
  EXPECT_LT(peak_resident_bytes(), peak_before_ + (size_t{400} << 20) * kSlowness);
}

}  // namespace
}  // namespace aerokv::testing
