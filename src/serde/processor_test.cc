// SPDX-License-Identifier: Apache-2.0
#include <fcntl.h>
#include <gtest/gtest.h>
#include <poll.h>
#include <sys/resource.h>
#include <sys/wait.h>
#include <unistd.h>

#include <atomic>
#include <set>
#include <thread>

#include "serde/serdes_testing.h"

namespace aerokv::serde {
namespace {

using Processor = std::unique_ptr<SerdeProcessor>;

Processor make(size_t workers, Gate* gate = nullptr) {
  auto made = make_async_serde_processor(test_serde(gate), workers);
  EXPECT_TRUE(made.has_value());
  return *std::move(made);
}

/// Waits until `fd` is readable; the test's own time limit ends a wait for ever.
uint64_t read_counter(int fd) {
  pollfd waiting{fd, POLLIN, 0};
  while (::poll(&waiting, 1, -1) < 0) {
  }
  uint64_t count = 0;
  return ::read(fd, &count, sizeof count) == sizeof count ? count : 0;
}

void await_signals(int fd, uint64_t count) {
  for (uint64_t seen = 0; seen < count;) seen += read_counter(fd);
}

bool is_readable(int fd) {
  pollfd waiting{fd, POLLIN, 0};
  return ::poll(&waiting, 1, 0) == 1;
}

SerdeResult serialize(SerdeProcessor& processor, std::vector<SerializeItem> items) {
  const auto id = processor.submit_serialize(std::move(items));
  EXPECT_TRUE(id.has_value());
  await_signals(processor.serialize_event_fd(), 1);
  auto result = processor.query_serialize_result(*id);
  EXPECT_TRUE(result.has_value()) << "signalled before the result could be taken";
  return result.value_or(SerdeResult());
}

TEST(Processor, DescriptorsAreDistinctNonBlockingAndCloseOnExec) {
  const Processor processor = make(1);
  const int fds[] = {processor->serialize_event_fd(), processor->deserialize_event_fd()};
  EXPECT_NE(fds[0], fds[1]);
  for (const int fd : fds) {
    EXPECT_NE(::fcntl(fd, F_GETFL) & O_NONBLOCK, 0);
    EXPECT_NE(::fcntl(fd, F_GETFD) & FD_CLOEXEC, 0);
    EXPECT_FALSE(is_readable(fd));
  }
  processor->close();
  for (const int fd : fds) EXPECT_EQ(::fcntl(fd, F_GETFD), -1);
  EXPECT_EQ(processor->serialize_event_fd(), -1);
  EXPECT_EQ(processor->deserialize_event_fd(), -1);
}

TEST(Processor, ATaskHasOneResultInItsDirection) {
  const Processor processor = make(2);
  TestObjects objects(3, 1000);
  const auto before = objects.plain;
  const auto id = processor->submit_serialize(objects.to_serialize());
  EXPECT_EQ(read_counter(processor->serialize_event_fd()), 1U);
  EXPECT_FALSE(processor->query_deserialize_result(*id));
  const auto result = processor->query_serialize_result(*id);
  ASSERT_TRUE(result);
  EXPECT_TRUE(result->ok);
  EXPECT_EQ(result->bytes, std::vector<uint64_t>(3, 1001));
  EXPECT_FALSE(processor->query_serialize_result(*id));
  EXPECT_FALSE(processor->query_serialize_result(*id + 1));

  for (auto& object : objects.plain) std::fill(object.begin(), object.end(), std::byte{0});
  const auto back = processor->submit_deserialize(objects.to_deserialize());
  EXPECT_NE(*back, *id);
  EXPECT_EQ(read_counter(processor->deserialize_event_fd()), 1U);
  EXPECT_FALSE(is_readable(processor->serialize_event_fd()));
  EXPECT_FALSE(processor->query_serialize_result(*back));
  const auto loaded = processor->query_deserialize_result(*back);
  ASSERT_TRUE(loaded);
  EXPECT_TRUE(loaded->ok);
  EXPECT_TRUE(loaded->bytes.empty());
  EXPECT_EQ(objects.plain, before);
  EXPECT_TRUE(processor->last_errors().empty());
}

TEST(Processor, ATaskOfNoObjectsIsDone) {
  const Processor processor = make(1);
  const SerdeResult result = serialize(*processor, {});
  EXPECT_TRUE(result.ok);
  EXPECT_TRUE(result.bytes.empty());
}

TEST(Processor, BytesDoNotDependOnTheNumberOfWorkers) {
  std::vector<std::vector<std::vector<std::byte>>> outcomes;
  for (const size_t workers : {1U, 2U, 8U}) {
    const Processor processor = make(workers);
    TestObjects objects(9, 123'457);
    EXPECT_TRUE(serialize(*processor, objects.to_serialize()).ok);
    outcomes.push_back(std::move(objects.stored));
  }
  EXPECT_EQ(outcomes[0], outcomes[1]);
  EXPECT_EQ(outcomes[0], outcomes[2]);
}

TEST(Processor, OneBadObjectFailsItsTaskAlone) {
  const struct {
    Trouble trouble;
    Code code;
    const char* words;
  } cases[] = {
      {kFails, Code::invalid, "told to fail"},     {kThrowsBadAlloc, Code::internal, "bad_alloc"},
      {kThrowsError, Code::internal, "told to"},   {kThrowsInt, Code::internal, "unknown type"},
      {kThrowsInPart, Code::internal, "part fai"}, {kLies, Code::internal, "1002 bytes"},
  };
  for (const size_t workers : {1U, 4U}) {
    for (const auto& expected : cases) {
      const Processor processor = make(workers);
      TestObjects objects(5, 1000);
      objects.plain[3][0] = static_cast<std::byte>(expected.trouble);
      const SerdeResult result = serialize(*processor, objects.to_serialize());
      EXPECT_FALSE(result.ok);
      EXPECT_TRUE(result.bytes.empty());
      const auto errors = processor->last_errors();
      ASSERT_EQ(errors.size(), 1U) << expected.words;
      EXPECT_EQ(errors[0].task, 1U);
      EXPECT_EQ(errors[0].index, 3U);
      EXPECT_EQ(errors[0].status.code(), expected.code);
      EXPECT_NE(errors[0].status.message().find(expected.words), std::string::npos)
          << errors[0].status.message();
      TestObjects good(5, 1000);
      EXPECT_TRUE(serialize(*processor, good.to_serialize()).ok) << "a worker was lost";
    }
  }
}

TEST(Processor, DamagedSourcesAndMissingLayoutsFail) {
  const Processor processor = make(2);
  TestObjects objects(2, 100);
  auto items = objects.to_deserialize();
  items[1].source = items[1].source.first(100);
  const auto id = processor->submit_deserialize(std::move(items));
  await_signals(processor->deserialize_event_fd(), 1);
  EXPECT_FALSE(processor->query_deserialize_result(*id)->ok);
  EXPECT_EQ(processor->last_errors().back().status.code(), Code::corruption);
  auto no_layout = objects.to_serialize();
  no_layout[0].layout = nullptr;
  EXPECT_FALSE(serialize(*processor, std::move(no_layout)).ok);
  EXPECT_EQ(processor->last_errors().back().status.code(), Code::invalid);
}

TEST(Processor, TheNewestErrorsAreKept) {
  const Processor processor = make(1);
  TestObjects objects(1, 10);
  objects.plain[0][0] = static_cast<std::byte>(kFails);
  for (int i = 0; i < 100; ++i) EXPECT_FALSE(serialize(*processor, objects.to_serialize()).ok);
  const auto errors = processor->last_errors();
  ASSERT_EQ(errors.size(), 64U);
  EXPECT_EQ(errors.front().task, 37U);
  EXPECT_EQ(errors.back().task, 100U);
}

TEST(Processor, HundredThousandSubmitsAreEachAnsweredOnce) {
  constexpr size_t kThreads = 8;
  constexpr size_t kEach = 12'500;
  const Processor processor = make(4);
  const int fds[] = {processor->serialize_event_fd(), processor->deserialize_event_fd()};
  std::atomic<uint64_t> submitted[2] = {0, 0};
  std::vector<std::vector<SerdeTaskId>> ids(kThreads);
  std::atomic<size_t> unanswered{0};
  const auto layout = std::make_shared<Layout>(Layout{{DType::uint8, {0}}});
  const auto client = [&](size_t number) {
    std::byte stored[1];
    std::byte loaded_from[1] = {};
    std::vector<std::pair<SerdeTaskId, bool>> pending;
    const auto take = [&](size_t allowed) {
      while (pending.size() > allowed) {
        std::erase_if(pending, [&](const auto& task) {
          const auto result = task.second ? processor->query_serialize_result(task.first)
                                          : processor->query_deserialize_result(task.first);
          if (result && !result->ok) ++unanswered;
          return result.has_value();
        });
        if (pending.size() > allowed) std::this_thread::yield();
      }
    };
    for (size_t i = 0; i < kEach; ++i) {
      const bool is_serialize = (i + number) % 3 != 0;
      const bool is_empty = i % 5 == 0;
      Result<SerdeTaskId> id = Status();
      if (is_serialize) {
        std::vector<SerializeItem> items;
        if (!is_empty) items.push_back({layout, Bytes(), stored, {}});
        id = processor->submit_serialize(std::move(items));
      } else {
        std::vector<DeserializeItem> items;
        if (!is_empty) items.push_back({Bytes(loaded_from), layout, MutableBytes(), {}});
        id = processor->submit_deserialize(std::move(items));
      }
      ++submitted[is_serialize ? 0 : 1];
      ids[number].push_back(*id);
      pending.emplace_back(*id, is_serialize);
      // One at a time, so that the target is written by one task only.
      take(is_serialize && !is_empty ? 0 : 16);
    }
    take(0);
  };
  std::vector<std::thread> clients;
  for (size_t i = 0; i < kThreads; ++i) clients.emplace_back(client, i);
  for (std::thread& thread : clients) thread.join();
  EXPECT_EQ(unanswered.load(), 0U);
  for (size_t i = 0; i < 2; ++i) {
    await_signals(fds[i], submitted[i]);
    EXPECT_FALSE(is_readable(fds[i])) << "signalled more often than tasks ended";
  }
  std::set<SerdeTaskId> unique;
  for (const auto& some : ids) unique.insert(some.begin(), some.end());
  EXPECT_EQ(unique.size(), kThreads * kEach);
  for (const SerdeTaskId id : unique) {
    ASSERT_FALSE(processor->query_serialize_result(id));
    ASSERT_FALSE(processor->query_deserialize_result(id));
  }
}

TEST(Processor, CloseCancelsWhatHasNotBegunAndWaitsForTheRest) {
  Gate gate;
  const Processor processor = make(1, &gate);
  TestObjects waiting(1, 10);
  waiting.plain[0][0] = static_cast<std::byte>(kWaits);
  TestObjects half(2, 10);
  half.plain[0][0] = static_cast<std::byte>(kWaits);
  TestObjects later(2, 10);
  const auto under_way = processor->submit_serialize(waiting.to_serialize());
  gate.await_arrivals(1);
  const auto not_begun = processor->submit_serialize(later.to_serialize());
  const auto empty = processor->submit_deserialize({});
  std::atomic<bool> closed{false};
  std::thread closer([&] {
    processor->close();
    closed = true;
  });
  // close() fails the second task before it waits for the first.
  std::optional<SerdeResult> cancelled;
  while (!(cancelled = processor->query_serialize_result(*not_begun))) std::this_thread::yield();
  EXPECT_FALSE(cancelled->ok);
  EXPECT_TRUE(cancelled->bytes.empty());
  EXPECT_FALSE(closed.load());
  EXPECT_FALSE(processor->query_serialize_result(*under_way));
  EXPECT_EQ(processor->submit_serialize({}).error().code(), Code::closed);
  gate.open();
  processor->close();
  closer.join();
  EXPECT_TRUE(processor->query_serialize_result(*under_way)->ok);
  EXPECT_FALSE(processor->query_deserialize_result(*empty)->ok);
  const auto errors = processor->last_errors();
  ASSERT_EQ(errors.size(), 2U);
  for (const SerdeFailure& error : errors) EXPECT_EQ(error.status.code(), Code::closed);
  EXPECT_EQ(gate.arrived(), 1U);
}

TEST(Processor, CloseFailsATaskThatWasHalfDone) {
  Gate gate;
  const Processor processor = make(1, &gate);
  TestObjects objects(3, 10);
  objects.plain[0][0] = static_cast<std::byte>(kWaits);
  objects.plain[1][0] = static_cast<std::byte>(kWaits);
  const auto id = processor->submit_serialize(objects.to_serialize());
  gate.await_arrivals(1);
  std::thread closer([&] { processor->close(); });
  while (processor->last_errors().empty()) std::this_thread::yield();
  EXPECT_FALSE(processor->query_serialize_result(*id)) << "one object is under way";
  gate.open();
  closer.join();
  const auto result = processor->query_serialize_result(*id);
  ASSERT_TRUE(result);
  EXPECT_FALSE(result->ok);
  EXPECT_EQ(processor->last_errors()[0].index, 1U);
  EXPECT_EQ(gate.arrived(), 1U);
}

TEST(Processor, CloseDuringFlightFromManyThreads) {
  for (int round = 0; round < 30; ++round) {
    const Processor processor = make(3);
    std::atomic<size_t> answered{0};
    std::atomic<size_t> submitted{0};
    std::vector<std::thread> threads;
    for (size_t i = 0; i < 3; ++i) {
      threads.emplace_back([&] {
        TestObjects objects(2, 700);
        while (true) {
          const auto id = processor->submit_serialize(objects.to_serialize());
          if (!id) {
            EXPECT_EQ(id.error().code(), Code::closed);
            return;
          }
          ++submitted;
          while (!processor->query_serialize_result(*id)) std::this_thread::yield();
          ++answered;
        }
      });
    }
    for (size_t i = 0; i < 2; ++i) {
      threads.emplace_back([&] {
        while (submitted.load() < 20) std::this_thread::yield();
        processor->close();
        EXPECT_EQ(processor->serialize_event_fd(), -1);
      });
    }
    for (std::thread& thread : threads) thread.join();
    EXPECT_EQ(answered.load(), submitted.load());
  }
}

TEST(Processor, DestructionWithPendingTasksReturns) {
  std::vector<TestObjects> tasks(50, TestObjects(8, 10'000));
  Processor processor = make(2);
  for (TestObjects& objects : tasks) {
    ASSERT_TRUE(processor->submit_deserialize(objects.to_deserialize()).has_value());
  }
  ASSERT_TRUE(processor->submit_serialize({}).has_value());
  processor.reset();
}

TEST(Processor, AForkedChildIsRefusedAndCanEnd) {
  Gate gate;
  Processor processor = make(2, &gate);
  TestObjects objects(1, 10);
  objects.plain[0][0] = static_cast<std::byte>(kWaits);
  const auto id = processor->submit_serialize(objects.to_serialize());
  gate.await_arrivals(1);
  const pid_t child = ::fork();
  ASSERT_GE(child, 0);
  if (child == 0) {
    const auto refused = processor->submit_serialize({});
    bool good = !refused && refused.error().code() == Code::closed;
    good = good && !processor->query_serialize_result(*id) && processor->last_errors().empty();
    processor->close();
    processor.reset();
    ::_exit(good ? 0 : 1);
  }
  int status = 0;
  ASSERT_EQ(::waitpid(child, &status, 0), child);
  EXPECT_TRUE(WIFEXITED(status) && WEXITSTATUS(status) == 0);
  gate.open();
  await_signals(processor->serialize_event_fd(), 1);
  EXPECT_TRUE(processor->query_serialize_result(*id)->ok);
}

TEST(Processor, ArgumentsAreChecked) {
  EXPECT_EQ(make_async_serde_processor(test_serde(), 0).error().code(), Code::invalid);
  EXPECT_EQ(make_async_serde_processor(test_serde(), 257).error().code(), Code::invalid);
  EXPECT_EQ(make_async_serde_processor({}, 1).error().code(), Code::invalid);
  const Processor processor = make(256);
  EXPECT_EQ(*processor->estimate_serialized_size({{DType::float32, {3}}}), 13U);
}

/// In a child, whose limits end with it.
int exit_code_under_limit(__rlimit_resource resource, rlim_t limit) {
  const pid_t child = ::fork();
  if (child == 0) {
    const rlimit small{limit, limit};
    ::setrlimit(resource, &small);
    const auto made = make_async_serde_processor(test_serde(), 256);
    ::_exit(!made && made.error().code() == Code::overloaded ? 0 : 1);
  }
  int status = 0;
  ::waitpid(child, &status, 0);
  return WIFEXITED(status) ? WEXITSTATUS(status) : -1;
}

#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__)
#define AEROKV_TEST_SANITIZED 1
#elif defined(__has_feature)
#if __has_feature(address_sanitizer) || __has_feature(thread_sanitizer)
#define AEROKV_TEST_SANITIZED 1
#endif
#endif

TEST(Processor, NoDescriptorsAndNoThreadsAreOverload) {
#ifdef AEROKV_TEST_SANITIZED
  GTEST_SKIP() << "sanitizers need descriptors and address space for themselves";
#endif
  EXPECT_EQ(exit_code_under_limit(RLIMIT_NOFILE, 1), 0);
  EXPECT_EQ(exit_code_under_limit(RLIMIT_AS, rlim_t{300} << 20), 0);
}

}  // namespace
}  // namespace aerokv::serde
