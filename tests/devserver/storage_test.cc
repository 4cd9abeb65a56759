// SPDX-License-Identifier: Apache-2.0
// Limits, expiry, truncation, settings, and what happens on the socket.
#include "devserver/storage.h"

#include <gtest/gtest.h>

#include <atomic>
#include <cstring>
#include <random>
#include <thread>

#include "devserver/answer.h"
#include "server_fixture.h"
#include "wire/result.h"

namespace aerokv::devserver_test {
namespace {

namespace result = wire::result;
using devserver::Options;

class StorageTest : public ServerTest {};

ByteVector value_of(const Unit& unit) {
  const Unit::Op* op = unit.op("b");
  return op == nullptr ? ByteVector{} : op->value;
}

TEST_F(StorageTest, a_full_namespace_answers_code_8_until_something_is_removed) {
  Options options;
  options.namespaces[0].size_bytes = 4 << 20;
  start(std::move(options));
  RawClient client = connect();
  int stored = 0;
  uint8_t code = 0;
  for (; stored < 100; ++stored) {
    code = ask_code(client, put_of("k" + std::to_string(stored), pattern(500000, 1)));
    if (code != 0) break;
  }
  EXPECT_EQ(code, result::kOutOfSpace);
  EXPECT_EQ(stored, 8);
  EXPECT_EQ(ask_code(client, get_of("k0")), 0);
  EXPECT_EQ(ask_code(client, put_of("k0", pattern(500000, 2))), 0);  // overwriting still fits
  EXPECT_EQ(ask_code(client, remove_of("k1")), 0);
  EXPECT_EQ(ask_code(client, put_of("new", pattern(500000, 1))), 0);
  EXPECT_LE(server_->stats(0)->used_bytes, 4U << 20);
  EXPECT_EQ(server_->stats(0)->records, 8U);
}

TEST_F(StorageTest, expired_records_are_gone_at_once_and_their_space_within_the_period) {
  Options options;
  options.namespaces[0].nsup_period_s = 1;
  start(std::move(options));
  RawClient client = connect();
  RequestParts put = put_of("short", pattern(1000, 1));
  put.ttl = 1;
  ASSERT_EQ(ask_code(client, put), 0);
  ASSERT_EQ(ask_code(client, put_of("long", pattern(1000, 1))), 0);
  await([&] { return ask_code(client, exists_of("short")) == result::kNotFound; }, "expiry");
  await([&] { return server_->stats(0)->records == 1; }, "removal");
  EXPECT_EQ(ask_code(client, exists_of("long")), 0);
}

TEST_F(StorageTest, truncation_hides_older_records_at_once_and_removes_them) {
  start();
  RawClient client = connect();
  RequestParts other = put_of("k", pattern(10, 1));
  other.set = "other";
  ASSERT_EQ(ask_code(client, put_of("k", pattern(10, 1))), 0);
  ASSERT_EQ(ask_code(client, other), 0);
  EXPECT_EQ(client.info("truncate:namespace=lmcache;set=kv_chunks"), "ok");
  EXPECT_EQ(ask_code(client, exists_of("k")), result::kNotFound);
  ASSERT_EQ(ask_code(client, put_of("k", pattern(10, 1))), 0);
  await([&] { return server_->stats(0)->records == 2; }, "removal");
  EXPECT_EQ(ask_code(client, exists_of("k")), 0);
  EXPECT_EQ(client.info("truncate-namespace:namespace=lmcache"), "ok");
  await([&] { return server_->stats(0)->records == 0; }, "removal");
}

TEST_F(StorageTest, settings_change_by_info_command_for_the_node_asked) {
  start_cluster(2);
  RawClient client = connect();
  EXPECT_EQ(ask_code(client, put_of("k", pattern(1 << 20, 1))), result::kRecordTooBig);
  const std::string set_config = "set-config:context=namespace;namespace=lmcache;";
  for (int node = 0; node < 2; ++node) {
    RawClient each = connect(node);
    EXPECT_EQ(each.info(set_config + "max-record-size=8M"), "ok");
  }
  EXPECT_EQ(ask_code(client, put_of("k", pattern(1 << 20, 1))), 0);
  EXPECT_TRUE(client.info(set_config + "max-record-size=8388609").starts_with("ERROR:4:"));
  EXPECT_TRUE(client.info(set_config + "no-such-thing=1").starts_with("ERROR:4:"));
  EXPECT_EQ(client.info(set_config + "nsup-period=0"), "ok");
  const std::string mine = client.info("namespace/lmcache");
  EXPECT_NE(mine.find(";max-record-size=8388608;"), std::string::npos);
  EXPECT_NE(mine.find(";nsup-period=0;"), std::string::npos);
  RawClient peer = connect(1);
  EXPECT_NE(peer.info("namespace/lmcache").find(";nsup-period=120;"), std::string::npos);
}

TEST_F(StorageTest, a_request_may_arrive_in_any_pieces) {
  start();
  const uint64_t seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937_64 random(seed);
  RawClient client = connect();
  for (const size_t size : {0U, 1U, 2000U, 16000U, 16384U, 70000U, 300000U}) {
    const ByteVector value = pattern(size, size);
    ByteVector stream;
    for (const ByteVector& part :
         {put_of("k", value).build(), get_of("k").build(), info_request("build\n"),
          batch_exists_of(std::vector<std::string>(900, "k"))}) {
      stream.insert(stream.end(), part.begin(), part.end());
    }
    for (size_t at = 0; at < stream.size();) {
      const size_t limit = random() % 4 == 0 ? 3 : 60000;
      const size_t count = std::min<size_t>(stream.size() - at, 1 + random() % limit);
      client.send(Bytes(stream).subspan(at, count));
      at += count;
    }
    EXPECT_EQ(units_of(*client.receive_frame())[0].header.result_code, 0);
    EXPECT_EQ(value_of(units_of(*client.receive_frame())[0]), value);
    EXPECT_EQ(client.receive_frame()->at(1), std::byte{1});
    size_t rows = 0;
    for (bool last = false; !last;) {
      for (const Unit& unit : units_of(*client.receive_frame())) {
        rows += unit.is_last() ? 0 : 1;
        last = unit.is_last();
      }
    }
    EXPECT_EQ(rows, 900U);
  }
}

TEST_F(StorageTest, long_answers_wait_for_a_slow_reader) {
  start();
  RawClient client = connect();
  ASSERT_EQ(ask_code(client, put_of("k", pattern(1000000, 3))), 0);
  ByteVector requests;
  for (int i = 0; i < 64; ++i) {
    const ByteVector one = get_of("k").build();
    requests.insert(requests.end(), one.begin(), one.end());
  }
  client.send(requests);
  const ByteVector value = pattern(1000000, 3);
  int whole = 0;
  for (int i = 0; i < 64; ++i) {
    const auto frame = client.receive_frame();
    if (i == 0) {
      RawClient other = connect();
      EXPECT_EQ(ask_code(other, remove_of("k")), 0);  // answers on their way keep their bytes
    }
    ASSERT_TRUE(frame);
    const Unit unit = units_of(*frame).front();
    if (unit.header.result_code == 0) {
      ASSERT_EQ(value_of(unit), value);
      ++whole;
    } else {
      EXPECT_EQ(unit.header.result_code, result::kNotFound);
    }
  }
  EXPECT_GE(whole, 1);
}

TEST_F(StorageTest, readers_see_whole_values_while_writers_replace_them) {
  start_cluster(2);
  std::atomic<bool> stop{false};
  std::vector<std::thread> threads;
  std::atomic<int> torn{0};
  std::atomic<int> reads{0};
  for (uint64_t writer = 0; writer < 2; ++writer) {
    threads.emplace_back([&, writer] {
      RawClient client = connect(static_cast<int>(writer));
      for (uint64_t i = 0; !stop; ++i) {
        ByteVector value(100000 + i % 7, static_cast<std::byte>(writer * 100 + i % 50));
        if (ask_code(client, put_of("k", std::move(value))) != 0) ++torn;
      }
    });
  }
  for (int reader = 0; reader < 2; ++reader) {
    threads.emplace_back([&, reader] {
      RawClient client = connect(reader);
      while (reads < 300) {
        const ByteVector value = value_of(ask_unit(client, get_of("k")));
        if (value.empty()) continue;
        // All bytes are one: so is what follows each.
        torn += std::memcmp(value.data(), value.data() + 1, value.size() - 1) != 0 ? 1 : 0;
        ++reads;
      }
      stop = true;
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(torn, 0);
}

TEST_F(StorageTest, a_query_larger_than_one_piece_comes_whole) {
  start();
  RawClient client = connect();
  for (int i = 0; i < 60; ++i) {
    ASSERT_EQ(ask_code(client, put_of("q" + std::to_string(i), pattern(100000, 1))), 0);
  }
  ByteVector ids;
  for (uint16_t p = 0; p < kPartitionCount; ++p) {
    ids.push_back(static_cast<std::byte>(p & 0xFF));
    ids.push_back(static_cast<std::byte>(p >> 8));
  }
  ByteVector query;
  wire::UnitWriter writer(query);
  const size_t at = writer.begin_frame();
  wire::MessageHeader header;
  header.info1 = wire::info1::kRead;
  header.info3 = wire::info3::kPartitionDone;
  header.field_count = 3;
  writer.header(header);
  writer.field(wire::FieldType::ns, as_bytes("lmcache"));
  writer.field(wire::FieldType::set, as_bytes("kv_chunks"));
  writer.field(wire::FieldType::partition_ids, ids);
  writer.end_frame(at, wire::MessageType::record);
  client.send(query);
  size_t records = 0;
  size_t frames = 0;
  for (bool last = false; !last; ++frames) {
    const auto frame = client.receive_frame();
    ASSERT_TRUE(frame);
    for (const Unit& unit : units_of(*frame)) {
      last = unit.is_last();
      if (last) continue;
      EXPECT_EQ(value_of(unit).size(), 100000U);
      ++records;
    }
  }
  EXPECT_EQ(records, 60U);
  EXPECT_GT(frames, 3U);
}

TEST_F(StorageTest, bad_options_are_refused_by_name) {
  const auto message = [](const std::function<void(Options&)>& change) {
    Options options;
    change(options);
    const auto server = devserver::DevServer::start(std::move(options));
    return server ? std::string("started") : server.error().message();
  };
  EXPECT_NE(message([](Options& o) { o.nodes = 0; }).find("nodes"), std::string::npos);
  EXPECT_NE(message([](Options& o) { o.namespaces.clear(); }).find("namespaces"),
            std::string::npos);
  EXPECT_NE(message([](Options& o) {
              o.namespaces[0].max_record_bytes = 9 << 20;
            }).find("max_record_bytes"),
            std::string::npos);
  EXPECT_NE(message([](Options& o) { o.node_ids = {"XYZ"}; }).find("node id"), std::string::npos);
  EXPECT_NE(message([](Options& o) { o.host = "nowhere"; }).find("host"), std::string::npos);
  start();
  EXPECT_EQ(server_->stop_node(1).code(), Code::invalid);
  EXPECT_EQ(server_->start_node(0).code(), Code::invalid);
  EXPECT_FALSE(server_->stats(-1));
}

TEST(TableTest, keeps_what_a_map_keeps) {
  const uint64_t seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937_64 random(seed);
  devserver::Table table;
  std::map<wire::Digest, uint16_t> expected;
  for (int step = 0; step < 20000; ++step) {
    wire::Digest digest{};
    digest[0] = static_cast<std::byte>(random() % 64);
    digest[8] = static_cast<std::byte>(random() % 16);  // few homes: long runs
    if (random() % 2 == 0) {
      if (table.find(digest) != nullptr) continue;
      auto record = std::make_unique<devserver::Record>();
      record->digest = digest;
      record->generation = static_cast<uint16_t>(step & 0xFFFF);
      expected[digest] = record->generation;
      table.insert(std::move(record));
    } else {
      EXPECT_EQ(table.remove(digest) != nullptr, expected.erase(digest) == 1);
    }
    ASSERT_EQ(table.size(), expected.size());
    ASSERT_EQ(table.find(digest) != nullptr, expected.contains(digest));
  }
  for (const auto& [digest, generation] : expected) {
    ASSERT_NE(table.find(digest), nullptr);
    EXPECT_EQ(table.find(digest)->generation, generation);
  }
}

TEST(AnswerTest, sent_in_any_pieces_it_is_the_same_bytes) {
  const uint64_t seed = std::random_device{}();
  SCOPED_TRACE("seed " + std::to_string(seed));
  std::mt19937_64 random(seed);
  devserver::BufferPool pool(1 << 20);
  for (int round = 0; round < 200; ++round) {
    devserver::Answer answer;
    ByteVector expected;
    const auto add_some = [&] {
      const ByteVector bytes = pattern(random() % 5000, random());
      expected.insert(expected.end(), bytes.begin(), bytes.end());
      if (random() % 2 == 0) {
        answer.append(Bytes(bytes));
        return;
      }
      devserver::BufferRef buffer = pool.allocate(bytes.size() + 1);
      std::copy(bytes.begin(), bytes.end(), buffer.data());
      answer.append(devserver::Slice{buffer, buffer.data(), static_cast<uint32_t>(bytes.size())});
    };
    ByteVector sent;
    for (int part = 0; part < 6; ++part) {
      add_some();
      if (random() % 3 == 0) answer.compact();
      if (part == 3) {
        devserver::Answer tail;
        std::swap(tail, answer);
        answer.append(std::move(tail));
      }
      std::array<iovec, 3> parts{};
      const size_t count = answer.next_parts(parts.data(), parts.size());
      uint64_t budget = random() % 4000;
      uint64_t taken = 0;
      for (size_t i = 0; i < count && budget > 0; ++i) {
        const auto bytes = std::min<uint64_t>(budget, parts[i].iov_len);
        const auto* at = static_cast<const std::byte*>(parts[i].iov_base);
        sent.insert(sent.end(), at, at + bytes);
        budget -= bytes;
        taken += bytes;
      }
      if (part != 2) {
        answer.mark_sent(taken);
      } else {
        sent.resize(sent.size() - taken);
      }
    }
    const auto rest = [&] {
      std::array<iovec, 8> parts{};
      while (!answer.empty()) {
        const size_t count = answer.next_parts(parts.data(), parts.size());
        uint64_t taken = 0;
        for (size_t i = 0; i < count; ++i) {
          const auto* at = static_cast<const std::byte*>(parts[i].iov_base);
          sent.insert(sent.end(), at, at + parts[i].iov_len);
          taken += parts[i].iov_len;
        }
        answer.mark_sent(taken);
      }
    };
    rest();
    ASSERT_EQ(sent, expected);
  }
}

TEST_F(StorageTest, a_limited_link_carries_no_more_and_loses_nothing) {
  Options options;
  options.link_bytes_per_second = 20'000'000;
  start(std::move(options));
  RawClient client = connect();
  RawClient other = connect();
  const ByteVector value = pattern(900'000, 3);
  const TimePoint begin = SteadyClock::now();
  for (int i = 0; i < 4; ++i) {
    RawClient& either = i % 2 == 0 ? client : other;
    ASSERT_EQ(ask_code(either, put_of("k" + std::to_string(i), value)), 0);
  }
  const TimePoint stored = SteadyClock::now();
  for (int i = 0; i < 4; ++i) {
    EXPECT_EQ(value_of(ask_unit(client, get_of("k" + std::to_string(i)))), value);
  }
  // 3.6 MB at 20 MB/s are 180 ms each way; the first 64 KiB and the catching up are free.
  EXPECT_GE(stored - begin, milliseconds(150));
  EXPECT_GE(SteadyClock::now() - stored, milliseconds(150));
}

}  // namespace
}  // namespace aerokv::devserver_test
