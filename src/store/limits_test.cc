// SPDX-License-Identifier: Apache-2.0
#include "store/limits.h"

#include <gtest/gtest.h>

#include <fstream>
#include <iterator>
#include <string>

#include "wire/result.h"

namespace aerokv::store {
namespace {

NamespaceFacts facts_of(std::string_view answer) {
  auto facts = parse_namespace_facts("lmcache", answer);
  EXPECT_TRUE(facts) << answer << ": " << facts.error().message();
  return facts ? *facts : NamespaceFacts{};
}

LimitsFault fault_of(std::string_view answer) {
  const auto facts = parse_namespace_facts("lmcache", answer);
  return facts ? LimitsFault::none : limits_fault(facts.error());
}

TEST(NamespaceFacts, MaxRecordSize) {
  const auto facts = facts_of("namespace/lmcache\tmax-record-size=1048576;nsup-period=120\n");
  EXPECT_EQ(facts.record_bytes_max, 1048576U);
  EXPECT_EQ(facts.record_bytes_source, "max-record-size");
  EXPECT_EQ(facts.nsup_period_s, 120U);
  EXPECT_EQ(facts.name, "lmcache");
}

TEST(NamespaceFacts, WriteBlockSizeUnderItsLongName) {
  const auto facts = facts_of(
      "max-record-size=0;nsup-period=120;default-ttl=0;storage-engine=device;"
      "storage-engine.write-block-size=1048576");
  EXPECT_EQ(facts.record_bytes_max, 1048576U);
  EXPECT_EQ(facts.record_bytes_source, "storage-engine.write-block-size");
}

TEST(NamespaceFacts, OrderOfSources) {
  constexpr std::string_view kLong = "storage-engine.write-block-size=262144";
  constexpr std::string_view kShort = "write-block-size=524288";
  const std::string both = std::string(kLong) + ";" + std::string(kShort);
  EXPECT_EQ(facts_of(both).record_bytes_source, "write-block-size");
  EXPECT_EQ(facts_of(both).record_bytes_max, 524288U);
  EXPECT_EQ(facts_of(both + ";max-record-size=131072").record_bytes_max, 131072U);
  EXPECT_EQ(facts_of("write-block-size=0;" + std::string(kLong)).record_bytes_max, 262144U);
  // A limit below the write block size is the stricter one and comes first.
  EXPECT_EQ(facts_of("max-record-size=131072;write-block-size=8388608").record_bytes_max, 131072U);
}

TEST(NamespaceFacts, NoLimitIsALimitFault) {
  for (const std::string_view answer :
       {"nsup-period=120;replication-factor=1", "max-record-size=0;nsup-period=120",
        "max-record-size=;a=1", "max-record-size=abc", "max-record-size=-1",
        "max-record-size=1048576x", "max-record-size= 1048576", "max-record-size=0x100000",
        "max-record-size=131071", "max-record-size=8388609",
        "max-record-size=99999999999999999999999", "max-record-size=1M"}) {
    EXPECT_EQ(fault_of(answer), LimitsFault::limit) << answer;
  }
  EXPECT_EQ(fault_of("max-record-size=131072"), LimitsFault::none);
  EXPECT_EQ(fault_of("max-record-size=8388608"), LimitsFault::none);
}

TEST(NamespaceFacts, NoUsableAnswerIsAProbeFault) {
  for (const std::string_view answer :
       {"", "\n", "garbage", "ERROR:4:bad namespace", "error:4", "FAIL:20:max-record-size=1048576",
        "type=unknown", "namespace/none\ttype=unknown\n", "namespace/lmcache\t\n", ";;;", "=1;=2",
        "namespace/lmcache\tERROR:20:max-record-size=1048576;a=b"}) {
    EXPECT_EQ(fault_of(answer), LimitsFault::probe) << answer;
  }
}

TEST(NamespaceFacts, ProbeFaultShowsAPrintableStartOfTheAnswer) {
  const auto facts = parse_namespace_facts("lmcache", "ERROR:4:\x01" + std::string(500, 'z'));
  ASSERT_FALSE(facts);
  const std::string& message = facts.error().message();
  EXPECT_NE(message.find("ERROR:4:?zzz"), std::string::npos) << message;
  EXPECT_NE(message.find("lmcache"), std::string::npos);
  EXPECT_LT(message.size(), 250U);
}

TEST(NamespaceFacts, KeysAreComparedWhole) {
  EXPECT_EQ(facts_of("x-max-record-size=5;max-record-size=1048576").record_bytes_max, 1048576U);
  EXPECT_EQ(facts_of("max-record-size-x=5;max-record-size=1048576").record_bytes_max, 1048576U);
  EXPECT_EQ(facts_of("note=max-record-size=5;max-record-size=1048576").record_bytes_max, 1048576U);
  EXPECT_EQ(facts_of("max-record-size=1048576;nsup-period-x=0").nsup_period_s, std::nullopt);
  EXPECT_EQ(fault_of("x-max-record-size=1048576"), LimitsFault::limit);
}

TEST(NamespaceFacts, Flags) {
  const auto off = facts_of("max-record-size=1048576");
  EXPECT_FALSE(off.stop_writes || off.clock_skew_stop_writes || off.strong_consistency ||
               off.allow_ttl_without_nsup);
  EXPECT_EQ(off.replication_factor, 0U);
  const auto on = facts_of(
      "max-record-size=1048576;stop_writes=true;clock_skew_stop_writes=true;"
      "strong-consistency=true;allow-ttl-without-nsup=true;default-ttl=86400;"
      "replication-factor=2;effective_replication_factor=1");
  EXPECT_TRUE(on.stop_writes && on.clock_skew_stop_writes && on.strong_consistency &&
              on.allow_ttl_without_nsup);
  EXPECT_EQ(on.default_ttl_s, 86400U);
  EXPECT_EQ(on.replication_factor, 1U);
}

std::string recorded(const char* file) {
  std::ifstream in(std::string(AEROKV_SOURCE_DIR "/tests/golden/aerospike/") + file);
  EXPECT_TRUE(in) << file;
  return {std::istreambuf_iterator<char>(in), {}};
}

// Complete answers of a real server, Community Edition 8.1.2.0.
TEST(NamespaceFacts, RecordedAnswers) {
  const auto facts = facts_of(recorded("namespace_lmcache.txt"));
  EXPECT_EQ(facts.record_bytes_max, 1048576U);
  EXPECT_EQ(facts.record_bytes_source, "max-record-size");
  EXPECT_EQ(facts.nsup_period_s, 10U);
  EXPECT_EQ(facts.default_ttl_s, 0U);
  EXPECT_EQ(facts.replication_factor, 1U);
  EXPECT_FALSE(facts.allow_ttl_without_nsup);
  EXPECT_FALSE(facts.stop_writes);
  EXPECT_TRUE(check_ttl(86400, facts));
  const auto nsup0 = facts_of(recorded("namespace_nsup0.txt"));
  EXPECT_EQ(nsup0.nsup_period_s, 0U);
  EXPECT_EQ(limits_fault(check_ttl(86400, nsup0).error()), LimitsFault::ttl);
}

NamespaceFacts with_limit(uint64_t record_bytes_max) {
  NamespaceFacts facts;
  facts.name = "lmcache";
  facts.record_bytes_max = record_bytes_max;
  facts.record_bytes_source = "max-record-size";
  return facts;
}

TEST(ResolveLimits, DefaultsUnderOneMebibyteAreSilent) {
  const NamespaceFacts node = with_limit(1048576);
  const auto limits = resolve_limits({}, {&node, 1});
  ASSERT_TRUE(limits);
  EXPECT_EQ(limits->segments.max_bytes, 983040U);
  EXPECT_EQ(limits->segments.target_bytes, 983040U);
  EXPECT_EQ(limits->segments.single_record_bytes, 983040U);
  EXPECT_EQ(limits->segments.min_bytes, 65536U);
  EXPECT_EQ(limits->record_bytes_max, 1048576U);
  EXPECT_TRUE(limits->warnings.empty());
}

TEST(ResolveLimits, DefaultsUnderEightMebibytes) {
  const NamespaceFacts node = with_limit(8388608);
  const auto limits = resolve_limits({}, {&node, 1});
  ASSERT_TRUE(limits);
  EXPECT_EQ(limits->segments.max_bytes, 8323072U);
  EXPECT_EQ(limits->segments.target_bytes, 4194304U);
  EXPECT_EQ(limits->segments.single_record_bytes, 4194304U);
}

TEST(ResolveLimits, SmallestNodeWins) {
  const NamespaceFacts nodes[] = {with_limit(8388608), with_limit(262144), with_limit(1048576)};
  const auto limits = resolve_limits({}, nodes);
  ASSERT_TRUE(limits);
  EXPECT_EQ(limits->record_bytes_max, 262144U);
  EXPECT_EQ(limits->segments.max_bytes, 196608U);
}

TEST(ResolveLimits, OverridesAreClampedWithAWarning) {
  const NamespaceFacts node = with_limit(1048576);
  LimitOverrides overrides;
  overrides.max_segment_bytes = 8388608;
  overrides.target_segment_bytes = 983041;
  overrides.single_record_threshold_bytes = 2000000;
  const auto limits = resolve_limits(overrides, {&node, 1});
  ASSERT_TRUE(limits);
  EXPECT_EQ(limits->segments.max_bytes, 983040U);
  EXPECT_EQ(limits->segments.target_bytes, 983040U);
  EXPECT_EQ(limits->segments.single_record_bytes, 983040U);
  ASSERT_EQ(limits->warnings.size(), 3U);
  EXPECT_NE(limits->warnings[0].find("max_segment_bytes 8388608"), std::string::npos);
  EXPECT_NE(limits->warnings[1].find("target_segment_bytes 983041"), std::string::npos);
  EXPECT_NE(limits->warnings[2].find("single_record_threshold_bytes 2000000"), std::string::npos);
  const auto plan = plan_segments(2097152, limits->segments);
  ASSERT_TRUE(plan);
  EXPECT_EQ(plan->segment_count, 3U);
}

TEST(ResolveLimits, OverridesAtTheLimitAreKept) {
  const NamespaceFacts node = with_limit(1048576);
  LimitOverrides overrides;
  overrides.max_segment_bytes = 983040;
  overrides.target_segment_bytes = 500000;
  overrides.single_record_threshold_bytes = 600000;
  overrides.min_segment_bytes = 0;
  const auto limits = resolve_limits(overrides, {&node, 1});
  ASSERT_TRUE(limits);
  EXPECT_EQ(limits->segments.max_bytes, 983040U);
  EXPECT_EQ(limits->segments.target_bytes, 500000U);
  EXPECT_EQ(limits->segments.single_record_bytes, 600000U);
  EXPECT_EQ(limits->segments.min_bytes, 0U);
  EXPECT_TRUE(limits->warnings.empty());
}

TEST(ResolveLimits, ThresholdFollowsTarget) {
  const NamespaceFacts node = with_limit(1048576);
  LimitOverrides overrides;
  overrides.target_segment_bytes = 300000;
  const auto limits = resolve_limits(overrides, {&node, 1});
  ASSERT_TRUE(limits);
  EXPECT_EQ(limits->segments.single_record_bytes, 300000U);
}

TEST(ResolveLimits, SmallMaximumLowersTheTarget) {
  const NamespaceFacts node = with_limit(1048576);
  LimitOverrides overrides;
  overrides.max_segment_bytes = 200000;
  const auto limits = resolve_limits(overrides, {&node, 1});
  ASSERT_TRUE(limits);
  EXPECT_EQ(limits->segments.target_bytes, 200000U);
  EXPECT_TRUE(limits->warnings.empty());
  const auto plan = plan_segments(1000000, limits->segments);
  ASSERT_TRUE(plan);
  EXPECT_EQ(plan->segment_count, 5U);
  overrides.target_segment_bytes = 300000;
  const auto clamped = resolve_limits(overrides, {&node, 1});
  ASSERT_TRUE(clamped);
  ASSERT_EQ(clamped->warnings.size(), 1U);
}

TEST(ResolveLimits, Faults) {
  EXPECT_EQ(limits_fault(resolve_limits({}, {}).error()), LimitsFault::probe);
  const NamespaceFacts small = with_limit(131071);
  EXPECT_EQ(limits_fault(resolve_limits({}, {&small, 1}).error()), LimitsFault::limit);
  const NamespaceFacts node = with_limit(1048576);
  LimitOverrides target;
  target.target_segment_bytes = 0;
  LimitOverrides max;
  max.max_segment_bytes = 0;
  LimitOverrides single;
  single.single_record_threshold_bytes = 0;
  for (const LimitOverrides& overrides : {target, max, single}) {
    const auto limits = resolve_limits(overrides, {&node, 1});
    ASSERT_FALSE(limits);
    EXPECT_EQ(limits_fault(limits.error()), LimitsFault::option);
  }
}

// The warning, or the error's message so that a comparison shows it.
std::string warning_of(int64_t ttl_s, const NamespaceFacts& facts) {
  const auto warning = check_ttl(ttl_s, facts);
  return warning ? *warning : "refused: " + warning.error().message();
}

TEST(CheckTtl, WithoutNsup) {
  const auto facts = facts_of("max-record-size=1048576;nsup-period=0");
  const auto refused = check_ttl(86400, facts);
  ASSERT_FALSE(refused);
  EXPECT_EQ(refused.error().code(), Code::denied);
  EXPECT_EQ(refused.error().server_result(), wire::result::kForbidden);
  EXPECT_EQ(limits_fault(refused.error()), LimitsFault::ttl);
  EXPECT_NE(refused.error().message().find("nsup-period"), std::string::npos);
  EXPECT_NE(refused.error().message().find("lmcache"), std::string::npos);
  for (const int64_t ttl : {0, -1, -2}) {
    EXPECT_EQ(warning_of(ttl, facts), "") << ttl;
  }
}

TEST(CheckTtl, WithoutNsupButAllowed) {
  const auto facts = facts_of("max-record-size=1048576;nsup-period=0;allow-ttl-without-nsup=true");
  const auto warning = check_ttl(1, facts);
  ASSERT_TRUE(warning);
  EXPECT_NE(warning->find("never purged"), std::string::npos);
  EXPECT_EQ(warning_of(0, facts), "");
}

TEST(CheckTtl, WithNsupOrUnknown) {
  EXPECT_EQ(warning_of(86400, facts_of("max-record-size=1048576;nsup-period=120")), "");
  EXPECT_EQ(warning_of(86400, facts_of("max-record-size=1048576")), "");
}

TEST(CheckTtl, Range) {
  const auto facts = facts_of("max-record-size=1048576;nsup-period=120");
  EXPECT_TRUE(check_ttl(315360000, facts));
  for (const int64_t ttl :
       {int64_t{315360001}, int64_t{-3}, int64_t{4294967295}, INT64_MIN, INT64_MAX}) {
    const auto refused = check_ttl(ttl, facts);
    ASSERT_FALSE(refused) << ttl;
    EXPECT_EQ(limits_fault(refused.error()), LimitsFault::option);
  }
}

}  // namespace
}  // namespace aerokv::store
