// SPDX-License-Identifier: Apache-2.0
// The survey of a set: what it finds, what it forgives, and what happens to it when nodes fail.
#include "aerokv/survey.h"

#include <algorithm>
#include <atomic>
#include <map>
#include <thread>

#include "tests/integration/cluster_fixture.h"

namespace aerokv {
namespace {

using testing::Buffer;
using testing::open_store;
using testing::options_for;
using testing::put_item;
using testing::random_bytes;
using testing::run;
using testing::start_server;

constexpr size_t kBig = 3 * 983040 + 7;  // four segments

class SurveyTest : public ::testing::Test {
 protected:
  SurveyTest() {
    devserver::Options server;
    server.nodes = 3;
    server.replication = 2;
    server_ = start_server(std::move(server));
    options_ = options_for(*server_);
    store_ = open_store(options_);
  }

  void put(const std::string& key, size_t bytes, uint64_t seed = 1) {
    const Buffer payload = random_bytes(bytes, seed);
    const auto results = run(*store_, Operation::put, {put_item(key, payload)});
    ASSERT_EQ(testing::bits_of(results), "1") << results[0].status.message();
  }

  std::vector<RecordVersion> records_of(const std::string& key) {
    Result<ObjectDetails> details = store_->inspect(key);
    EXPECT_TRUE(details) << key;
    std::vector<RecordVersion> out;
    if (!details) return out;
    for (const RecordInfo& record : details->records) {
      out.push_back({record.digest, record.generation});
    }
    return out;
  }

  std::unique_ptr<Survey> survey(SurveyOptions limits = {}) {
    Result<std::unique_ptr<Survey>> opened = Survey::open(options_, limits);
    EXPECT_TRUE(opened);
    std::unique_ptr<Survey> out = *std::move(opened);
    while (true) {
      const Result<bool> more = out->step();
      EXPECT_TRUE(more) << more.error().message();
      if (!more || !*more) return out;
    }
  }

  static std::map<std::string, uint64_t> found(const Survey& survey) {
    std::map<std::string, uint64_t> out;
    for (size_t i = 0; i < kFindingKinds; ++i) {
      const uint64_t count = survey.report().counts[i];
      if (count > 0) out[finding_kind_name(static_cast<FindingKind>(i))] = count;
    }
    return out;
  }

  void remove(const RecordVersion& record) {
    const auto results = survey()->remove({record});
    ASSERT_TRUE(results);
    ASSERT_EQ(testing::bits_of(*results), "1");
  }

  using Counts = std::map<std::string, uint64_t>;

  std::unique_ptr<devserver::DevServer> server_;
  StoreOptions options_;
  std::unique_ptr<Store> store_;
};

TEST_F(SurveyTest, CountsWhatBelongsTogether) {
  for (int i = 0; i < 10; ++i) put("key" + std::to_string(i), i % 2 == 0 ? kBig : 10);
  const std::unique_ptr<Survey> done = survey();
  EXPECT_EQ(found(*done), Counts{});
  EXPECT_EQ(done->report().objects, 10U);
  EXPECT_EQ(done->report().segment_records, 5U * 4);
  EXPECT_EQ(done->report().bytes, 5 * kBig + 5 * 10);
  EXPECT_EQ(done->progress(), 1.0);
  EXPECT_FALSE(*done->step());
}

TEST_F(SurveyTest, FindsOrphansAndHolesInEveryPart) {
  for (int i = 0; i < 12; ++i) put(std::to_string(i), kBig, static_cast<uint64_t>(i));
  for (int i = 0; i < 4; ++i) remove(records_of(std::to_string(i))[0]);
  for (int i = 4; i < 6; ++i) remove(records_of(std::to_string(i))[3]);
  for (const size_t in_memory : {size_t{1}, size_t{10}, size_t{1} << 20}) {
    SurveyOptions limits;
    limits.findings_max = 3;
    limits.records_in_memory = in_memory;
    const std::unique_ptr<Survey> done = survey(limits);
    EXPECT_EQ(found(*done), (Counts{{"orphan", 16}, {"segment_missing", 2}})) << in_memory;
    EXPECT_EQ(done->report().findings.size(), 5U);
    EXPECT_EQ(done->report().objects, 8U);
  }
}

TEST_F(SurveyTest, RemovesOnlyTheGenerationThatWasSeen) {
  put("key", kBig);
  const std::vector<RecordVersion> before = records_of("key");
  put("key", kBig, 2);
  const std::unique_ptr<Survey> done = survey();
  Result<std::vector<ItemResult>> results = done->remove(before);
  ASSERT_TRUE(results);
  EXPECT_EQ(testing::bits_of(*results), "00000");
  results = done->remove(records_of("key"));
  ASSERT_TRUE(results);
  EXPECT_EQ(testing::bits_of(*results), "11111");
  EXPECT_EQ(survey()->report().objects, 0U);
}

TEST_F(SurveyTest, RefusesRecordsThatAreNone) {
  const std::unique_ptr<Survey> done = survey();
  const std::string digest(40, 'a');
  for (const RecordVersion& record : std::vector<RecordVersion>{
           {"", 1}, {digest, 0}, {std::string(40, 'G'), 1}, {digest + "a", 1}}) {
    const auto results = done->remove({record});
    ASSERT_FALSE(results) << record.digest;
    EXPECT_EQ(results.error().code(), Code::invalid);
  }
}

TEST_F(SurveyTest, SumsTellWhoseSegmentsAreWithoutKeys) {
  options_.send_key = false;
  const std::unique_ptr<Store> silent = open_store(options_);
  const Buffer payload = random_bytes(kBig, 7);
  ASSERT_EQ(testing::bits_of(run(*silent, Operation::put, {put_item("silent", payload)})), "1");
  put("lost", kBig, 8);
  remove(records_of("lost")[0]);
  const std::unique_ptr<Survey> done = survey();
  EXPECT_EQ(found(*done), (Counts{{"orphan", 4}}));
  EXPECT_EQ(done->report().keyless, 1U);
  EXPECT_TRUE(done->report().can_tell_orphans);
}

TEST_F(SurveyTest, ANodeThatDiesMeanwhileIsReplaced) {
  for (int i = 0; i < 20; ++i) put("key" + std::to_string(i), kBig);
  Result<std::unique_ptr<Survey>> opened = Survey::open(options_, {});
  ASSERT_TRUE(opened);
  Survey& walk = **opened;
  for (int i = 0; i < 3; ++i) ASSERT_TRUE(*walk.step());
  ASSERT_TRUE(server_->stop_node(1).ok());
  Result<bool> more = true;
  while (more && *more) more = walk.step();
  ASSERT_TRUE(more) << more.error().message();
  EXPECT_EQ(found(walk), Counts{});
  EXPECT_EQ(walk.report().objects, 20U);
}

TEST_F(SurveyTest, WithoutNodesItEndsWithAnError) {
  put("key", kBig);
  options_.connect_timeout = std::chrono::milliseconds(200);
  Result<std::unique_ptr<Survey>> opened = Survey::open(options_, {});
  ASSERT_TRUE(opened);
  for (int node = 0; node < 3; ++node) ASSERT_TRUE(server_->stop_node(node).ok());
  const Result<bool> step = (*opened)->step();
  ASSERT_FALSE(step);
  EXPECT_EQ(step.error().code(), Code::unavailable);
}

TEST_F(SurveyTest, ARefusedQueryIsAskedAgain) {
  for (int i = 0; i < 5; ++i) put("key" + std::to_string(i), kBig);
  devserver::Fault fault;
  fault.kinds = devserver::mask_of(devserver::RequestKind::query);
  fault.action = devserver::FaultAction::close_after_bytes;
  fault.bytes = 100;
  fault.count = 3;
  server_->add_fault(fault);
  const std::unique_ptr<Survey> done = survey();
  EXPECT_EQ(found(*done), Counts{});
  EXPECT_EQ(done->report().segment_records, 5U * 4);
}

TEST_F(SurveyTest, RunsBesideWriters) {
  std::atomic<bool> stop{false};
  std::vector<std::thread> writers;
  for (uint64_t writer = 0; writer < 2; ++writer) {
    writers.emplace_back([this, writer, &stop] {
      for (uint64_t i = 0; !stop.load(); ++i) {
        const std::string key = std::to_string(writer) + "/" + std::to_string(i % 5);
        const Buffer payload = random_bytes(1 + kBig / (1 + i % 3), i);
        run(*store_, Operation::put, {put_item(key, payload)});
      }
    });
  }
  for (int i = 0; i < 5; ++i) {
    const std::unique_ptr<Survey> done = survey();
    EXPECT_EQ(done->report().unexamined, 0U);
  }
  stop.store(true);
  for (std::thread& writer : writers) writer.join();
  EXPECT_EQ(found(*survey()), Counts{});
}

TEST_F(SurveyTest, NodesAreAskedWithoutTheNamespace) {
  options_.ns = "nowhere";
  const Result<std::vector<NodeReport>> reports =
      ask_cluster(options_, {"build", "namespace/nowhere", "no-such-command"});
  ASSERT_TRUE(reports) << reports.error().message();
  ASSERT_EQ(reports->size(), 3U);
  for (const NodeReport& report : *reports) {
    ASSERT_EQ(report.answers.size(), 3U);
    EXPECT_TRUE(report.answers[0].status.ok());
    EXPECT_FALSE(report.answers[0].text.empty());
    EXPECT_EQ(report.answers[1].text, "type=unknown");
    EXPECT_FALSE(report.answers[2].status.ok());
  }
  EXPECT_EQ(ask_cluster(options_, {"build\nnode"}).error().code(), Code::invalid);
  options_.hosts = "127.0.0.1:1";
  EXPECT_EQ(ask_cluster(options_, {"build"}).error().code(), Code::unavailable);
}

TEST(RecordDigest, IsThatOfTheFormatPage) {
  EXPECT_EQ(record_digest("kv_chunks", "demo|m"), "daa7f13ff39642c1eb286f379cc85c806c687afa");
  EXPECT_EQ(record_digest("kv_chunks", "demo|s|1"), "00d46ef1aa383cb441f02cb927114a61d4a67bb1");
}

}  // namespace
}  // namespace aerokv
