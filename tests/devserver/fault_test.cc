// SPDX-License-Identifier: Apache-2.0
// The fault plan: who is hit, by what, and who is not.
#include <gtest/gtest.h>

#include "server_fixture.h"
#include "wire/result.h"

namespace aerokv::devserver_test {
namespace {

namespace result = wire::result;
using devserver::Damage;
using devserver::Fault;
using devserver::FaultAction;
using devserver::RequestKind;

class FaultTest : public ServerTest {
 protected:
  void SetUp() override {
    start();
    RawClient client = connect();
    ASSERT_EQ(ask_code(client, put_of("k", pattern(500, 1))), 0);
  }

  static Fault fault_of(FaultAction action, RequestKind kind = RequestKind::get) {
    Fault fault;
    fault.kinds = devserver::mask_of(kind);
    fault.action = action;
    return fault;
  }

  devserver::FaultCounter counter(uint64_t id) {
    for (const auto& c : server_->fault_counters()) {
      if (c.id == id) return c;
    }
    return {};
  }
};

TEST_F(FaultTest, names_lead_back_to_their_values) {
  for (size_t i = 0; i < devserver::kRequestKinds; ++i) {
    const auto kind = static_cast<RequestKind>(i);
    EXPECT_EQ(devserver::request_kind_from_name(devserver::request_kind_name(kind)), kind);
  }
  for (size_t i = 0; i < devserver::kFaultActions; ++i) {
    const auto action = static_cast<FaultAction>(i);
    EXPECT_EQ(devserver::fault_action_from_name(devserver::fault_action_name(action)), action);
  }
  for (size_t i = 0; i < devserver::kDamages; ++i) {
    const auto damage = static_cast<Damage>(i);
    EXPECT_EQ(devserver::damage_from_name(devserver::damage_name(damage)), damage);
  }
  EXPECT_FALSE(devserver::damage_from_name("none"));
}

TEST_F(FaultTest, hits_the_nth_request_and_so_many_after_it) {
  Fault fault = fault_of(FaultAction::result_code);
  fault.code = result::kDeviceOverload;
  fault.skip = 2;
  fault.count = 2;
  const uint64_t id = server_->add_fault(fault);
  RawClient client = connect();
  std::vector<int> codes;
  for (int i = 0; i < 6; ++i) codes.push_back(ask_code(client, get_of("k")));
  EXPECT_EQ(codes, (std::vector<int>{0, 0, 18, 18, 0, 0}));
  EXPECT_EQ(counter(id).matched, 6U);
  EXPECT_EQ(counter(id).applied, 2U);
  EXPECT_TRUE(server_->await_fault(id, 2, milliseconds(0)));
  EXPECT_EQ(server_->await_fault(id, 3, milliseconds(1)).code(), Code::timeout);
  EXPECT_TRUE(server_->remove_fault(id));
  EXPECT_FALSE(server_->remove_fault(id));
  EXPECT_EQ(server_->await_fault(id, 1, milliseconds(1)).code(), Code::not_found);
}

TEST_F(FaultTest, hits_by_digest_set_key_and_kind) {
  Fault fault = fault_of(FaultAction::result_code);
  fault.code = result::kUnavailable;
  fault.digests = {wire::compute_digest("kv_chunks", "a")};
  server_->add_fault(fault);
  Fault by_key = fault_of(FaultAction::result_code);
  by_key.code = result::kKeyBusy;
  by_key.key_contains = "needle";
  server_->add_fault(by_key);
  Fault by_set = fault_of(FaultAction::result_code, RequestKind::put);
  by_set.code = result::kForbidden;
  by_set.set = "other";
  server_->add_fault(by_set);
  RawClient client = connect();
  EXPECT_EQ(ask_code(client, get_of("a")), result::kUnavailable);
  EXPECT_EQ(ask_code(client, exists_of("a")), result::kNotFound);
  EXPECT_EQ(ask_code(client, get_of("k")), 0);
  RequestParts with_key = get_of("a needle in");
  EXPECT_EQ(ask_code(client, with_key), result::kNotFound);
  with_key.sends_key = true;
  EXPECT_EQ(ask_code(client, with_key), result::kKeyBusy);
  RequestParts other = put_of("x", pattern(5, 1));
  EXPECT_EQ(ask_code(client, other), 0);
  other.set = "other";
  EXPECT_EQ(ask_code(client, other), result::kForbidden);
}

TEST_F(FaultTest, result_code_does_not_execute_and_result_after_execute_does) {
  Fault fault = fault_of(FaultAction::result_code, RequestKind::put);
  fault.code = result::kTimeout;
  fault.count = 1;
  server_->add_fault(fault);
  fault.action = FaultAction::result_after_execute;
  server_->add_fault(fault);
  RawClient client = connect();
  EXPECT_EQ(ask_code(client, put_of("one", pattern(3000, 1))), result::kTimeout);
  EXPECT_EQ(ask_code(client, exists_of("one")), result::kNotFound);
  EXPECT_EQ(ask_code(client, put_of("two", pattern(3000, 1))), result::kTimeout);
  EXPECT_EQ(ask_code(client, exists_of("two")), 0);
}

TEST_F(FaultTest, a_delay_holds_back_its_connection_and_no_other) {
  Fault fault = fault_of(FaultAction::delay);
  fault.delay = milliseconds(150);
  fault.count = 1;
  server_->add_fault(fault);
  RawClient slow = connect();
  RawClient quick = connect();
  const TimePoint begin = SteadyClock::now();
  ByteVector two = get_of("k").build();
  const ByteVector second = exists_of("k").build();
  two.insert(two.end(), second.begin(), second.end());
  slow.send(two);
  for (int i = 0; i < 20; ++i) EXPECT_EQ(ask_code(quick, exists_of("k")), 0);
  EXPECT_LT(SteadyClock::now() - begin, milliseconds(140));
  ASSERT_TRUE(slow.receive_frame());
  EXPECT_GE(SteadyClock::now() - begin, milliseconds(150));
  ASSERT_TRUE(slow.receive_frame());
}

TEST_F(FaultTest, latency_does_not_add_up_over_pipelined_requests) {
  Fault fault = fault_of(FaultAction::latency);
  fault.delay = milliseconds(100);
  server_->add_fault(fault);
  RawClient client = connect();
  ByteVector requests;
  for (int i = 0; i < 20; ++i) {
    const ByteVector one = get_of("k").build();
    requests.insert(requests.end(), one.begin(), one.end());
  }
  const ByteVector last = exists_of("k").build();
  requests.insert(requests.end(), last.begin(), last.end());
  const TimePoint begin = SteadyClock::now();
  client.send(requests);
  for (int i = 0; i < 21; ++i) {
    const auto frame = client.receive_frame();
    ASSERT_TRUE(frame);
    EXPECT_EQ(units_of(*frame).front().ops.size(), i < 20 ? 1U : 0U) << i;
  }
  EXPECT_GE(SteadyClock::now() - begin, milliseconds(100));
  EXPECT_LT(SteadyClock::now() - begin, milliseconds(1000));
}

TEST_F(FaultTest, drop_answers_nothing_and_reads_on) {
  Fault fault = fault_of(FaultAction::drop, RequestKind::put);
  fault.count = 1;
  const uint64_t id = server_->add_fault(fault);
  RawClient client = connect();
  client.set_timeout(milliseconds(100));
  client.send(put_of("dropped", pattern(900000, 1)).build());
  client.send(put_of("behind", pattern(900000, 1)).build());
  ASSERT_TRUE(server_->await_fault(id, 1, std::chrono::seconds(10)));
  EXPECT_FALSE(client.receive_frame());
  RawClient other = connect();
  EXPECT_EQ(ask_code(other, exists_of("dropped")), result::kNotFound);
  EXPECT_EQ(ask_code(other, exists_of("behind")), result::kNotFound);

  fault.action = FaultAction::drop_answer;
  server_->clear_faults();
  const uint64_t second = server_->add_fault(fault);
  RawClient third = connect();
  third.set_timeout(milliseconds(100));
  third.send(put_of("executed", pattern(900000, 1)).build());
  ASSERT_TRUE(server_->await_fault(second, 1, std::chrono::seconds(10)));
  EXPECT_FALSE(third.receive_frame());
  EXPECT_EQ(ask_code(other, exists_of("executed")), 0);
}

TEST_F(FaultTest, close_and_close_after_bytes) {
  Fault fault = fault_of(FaultAction::close, RequestKind::put);
  fault.count = 1;
  server_->add_fault(fault);
  RawClient client = connect();
  client.send(put_of("closed", pattern(10, 1)).build());
  EXPECT_TRUE(client.is_closed_by_server());
  RawClient other = connect();
  EXPECT_EQ(ask_code(other, exists_of("closed")), result::kNotFound);

  ASSERT_EQ(ask_code(other, put_of("large", pattern(300000, 2))), 0);
  for (const uint64_t bytes : {0U, 1U, 7U, 8U, 29U, 30U, 31U, 100000U}) {
    server_->clear_faults();
    Fault cut = fault_of(FaultAction::close_after_bytes);
    cut.bytes = bytes;
    server_->add_fault(cut);
    RawClient victim = connect();
    // More requests behind it must not turn the close into a reset that eats the bytes.
    victim.send(get_of("large").build());
    victim.send(put_of("x", pattern(100000, 3)).build());
    EXPECT_EQ(victim.receive(400000).size(), bytes);
    EXPECT_TRUE(victim.is_closed_by_server());
  }
}

TEST_F(FaultTest, info_and_security_can_fail) {
  Fault fault = fault_of(FaultAction::result_code, RequestKind::info);
  fault.code = result::kNotAuthenticated;
  server_->add_fault(fault);
  RawClient client = connect();
  const auto answer = client.ask(info_request("build\n"));
  ASSERT_TRUE(answer);
  EXPECT_EQ(as_text(Bytes(*answer).subspan(8)), "ERROR:80:injected fault\n");
}

TEST_F(FaultTest, single_rows_of_a_batch_can_fail) {
  Fault fault = fault_of(FaultAction::result_code, RequestKind::batch_row);
  fault.code = result::kKeyBusy;
  fault.digests = {wire::compute_digest("kv_chunks", "b")};
  server_->add_fault(fault);
  Fault lost = fault_of(FaultAction::drop, RequestKind::batch_row);
  lost.digests = {wire::compute_digest("kv_chunks", "c")};
  server_->add_fault(lost);
  RawClient client = connect();
  client.send(batch_exists_of({"k", "b", "c", "k"}));
  ByteVector all = *client.receive_frame();
  const ByteVector final_frame = *client.receive_frame();
  const auto units = units_of(all);
  ASSERT_EQ(units.size(), 3U);
  EXPECT_EQ(units[0].header.result_code, 0);
  EXPECT_EQ(units[1].header.result_code, result::kKeyBusy);
  EXPECT_EQ(units[1].header.transaction_ttl, 1U);
  EXPECT_EQ(units[2].header.transaction_ttl, 3U);
  EXPECT_TRUE(units_of(final_frame).back().is_last());

  server_->clear_faults();
  Fault whole = fault_of(FaultAction::result_code, RequestKind::batch);
  whole.code = result::kBatchQueuesFull;
  server_->add_fault(whole);
  const auto answer = client.ask(batch_exists_of({"k", "b"}));
  ASSERT_TRUE(answer);
  EXPECT_TRUE(units_of(*answer).front().is_last());
  EXPECT_EQ(units_of(*answer).front().header.result_code, result::kBatchQueuesFull);
}

TEST_F(FaultTest, a_node_freezes_or_dies_before_the_nth_request) {
  Fault fault = fault_of(FaultAction::freeze_node, RequestKind::put);
  fault.count = 1;
  const uint64_t id = server_->add_fault(fault);
  RawClient client = connect();
  client.send(put_of("frozen", pattern(10, 1)).build());
  ASSERT_TRUE(server_->await_fault(id, 1, std::chrono::seconds(10)));
  client.set_timeout(milliseconds(80));
  EXPECT_FALSE(client.receive_frame());
  EXPECT_TRUE(server_->stats(0)->frozen);
  RawClient late = connect();  // the kernel accepts
  late.set_timeout(milliseconds(80));
  EXPECT_FALSE(late.ask(exists_of("k").build()));
  ASSERT_TRUE(server_->resume_node(0));
  client.set_timeout(std::chrono::seconds(10));
  late.set_timeout(std::chrono::seconds(10));
  EXPECT_TRUE(client.receive_frame());
  EXPECT_TRUE(late.receive_frame());

  fault.action = FaultAction::stop_node;
  server_->add_fault(fault);
  client.send(put_of("dead", pattern(10, 1)).build());
  EXPECT_TRUE(client.is_closed_by_server());
  await([&] { return !RawClient::try_connect(server_->endpoints()[0]); }, "refused");
}

TEST_F(FaultTest, a_node_that_a_fault_killed_can_be_started_at_once) {
  for (int round = 0; round < 20; ++round) {
    RawClient client = connect();
    Fault fault = fault_of(FaultAction::stop_node, RequestKind::exists);
    fault.count = 1;
    server_->add_fault(fault);
    client.send(exists_of("k").build());
    EXPECT_TRUE(client.is_closed_by_server());
    const Status started = server_->start_node(0);
    ASSERT_TRUE(started) << started.message();
    EXPECT_TRUE(server_->stats(0)->running);
    EXPECT_EQ(server_->stats(0)->records, 0U);
    RawClient again = connect();
    EXPECT_EQ(ask_code(again, exists_of("k")), result::kUnavailable);
    server_->clear_faults();
  }
}

class DamageTest : public FaultTest, public testing::WithParamInterface<size_t> {};

// The damaged answer differs from the good one, the connection survives, the next answer is good.
TEST_P(DamageTest, the_answer_is_damaged_once) {
  const auto damage = static_cast<Damage>(GetParam());
  const bool is_row_damage = damage == Damage::index_out_of_range ||
                             damage == Damage::index_duplicate || damage == Damage::missing_row ||
                             damage == Damage::extra_row || damage == Damage::no_final_unit;
  Fault fault =
      fault_of(FaultAction::damage, is_row_damage ? RequestKind::batch : RequestKind::get);
  fault.damage = damage;
  fault.bytes = 5;
  fault.count = 1;
  RawClient client = connect();
  const ByteVector request = is_row_damage ? batch_exists_of({"k", "b", "c"}) : get_of("k").build();
  const auto ask_all = [&](size_t wanted) {
    client.send(request);
    return client.receive(wanted);
  };
  ByteVector sane = *client.ask(request);
  if (is_row_damage) {
    const ByteVector last = *client.receive_frame();
    sane.insert(sane.end(), last.begin(), last.end());
  }
  ASSERT_GT(sane.size(), 30U);
  server_->add_fault(fault);
  client.set_timeout(milliseconds(100));  // nothing tells how long a damaged answer is
  const ByteVector hurt = ask_all(4096);
  client.set_timeout(milliseconds(10000));
  EXPECT_NE(hurt, sane);
  EXPECT_GE(hurt.size(), damage == Damage::empty_frame ? 8U : 30U);
  const ByteVector again = ask_all(sane.size());
  EXPECT_EQ(again, sane);
}

INSTANTIATE_TEST_SUITE_P(EveryDamage, DamageTest, testing::Range(size_t{0}, devserver::kDamages),
                         [](const auto& param) {
                           return std::string(
                               devserver::damage_name(static_cast<Damage>(param.param)));
                         });

TEST_F(FaultTest, consistent_damage_changes_the_value_only) {
  RawClient client = connect();
  const ByteVector value = pattern(500, 1);
  const auto damaged_value = [&](Damage damage, uint64_t bytes) {
    Fault fault = fault_of(FaultAction::damage);
    fault.damage = damage;
    fault.bytes = bytes;
    fault.count = 1;
    server_->add_fault(fault);
    return ask_unit(client, get_of("k")).ops.at(0).value;
  };
  EXPECT_EQ(damaged_value(Damage::shorter_value, 20).size(), 480U);
  EXPECT_EQ(damaged_value(Damage::shorter_value, 1000).size(), 0U);
  EXPECT_EQ(damaged_value(Damage::longer_value, 70000).size(), 70500U);
  const ByteVector flipped = damaged_value(Damage::flip_value_bit, 0);
  ASSERT_EQ(flipped.size(), value.size());
  size_t different = 0;
  for (size_t i = 0; i < value.size(); ++i) different += flipped[i] != value[i] ? 1 : 0;
  EXPECT_EQ(different, 1U);
}

}  // namespace
}  // namespace aerokv::devserver_test
