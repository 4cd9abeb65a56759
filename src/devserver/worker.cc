// SPDX-License-Identifier: Apache-2.0
#include "devserver/worker.h"

#include <sys/epoll.h>
#include <sys/timerfd.h>

#include <array>
#include <cerrno>
#include <condition_variable>

#include "devserver/connection.h"

namespace aerokv::devserver {
namespace {

constexpr uint64_t kWakeId = 0;
constexpr uint64_t kTimerId = 1;
constexpr uint64_t kFirstConnection = 2;

Status add_to_epoll(int epoll, int fd, uint64_t id, uint32_t events) {
  epoll_event event{};
  event.events = events;
  event.data.u64 = id;
  if (::epoll_ctl(epoll, EPOLL_CTL_ADD, fd, &event) != 0) return status_from_errno(errno, "epoll");
  return {};
}

}  // namespace

Result<std::unique_ptr<Worker>> Worker::create(Service& service, NodeControl& control) {
  std::unique_ptr<Worker> worker(new Worker(service, control));
  worker->epoll_.reset(::epoll_create1(EPOLL_CLOEXEC));
  if (!worker->epoll_.is_open()) return status_from_errno(errno, "epoll_create1");
  auto wake = make_event_fd();
  if (!wake) return wake.error();
  worker->wake_ = std::move(wake).value();
  worker->timer_.reset(::timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC));
  if (!worker->timer_.is_open()) return status_from_errno(errno, "timerfd_create");
  AEROKV_TRY(add_to_epoll(worker->epoll_.get(), worker->wake_.get(), kWakeId, EPOLLIN));
  AEROKV_TRY(add_to_epoll(worker->epoll_.get(), worker->timer_.get(), kTimerId, EPOLLIN));
  worker->last_id_ = kFirstConnection;
  return worker;
}

Worker::Worker(Service& service, NodeControl& control) : service_(service), control_(control) {}

Worker::~Worker() {
  stop();
}

void Worker::start() {
  thread_ = std::thread([this] { run(); });
}

void Worker::stop() {
  if (!thread_.joinable()) return;
  stopping_ = true;
  signal_event_fd(wake_.get());
  thread_.join();
}

void Worker::post(std::function<void()> task) {
  {
    const std::scoped_lock lock(tasks_mutex_);
    tasks_.push_back(std::move(task));
  }
  signal_event_fd(wake_.get());
}

void Worker::post_and_wait(const std::function<void()>& task) {
  std::mutex mutex;
  std::condition_variable ran;
  bool done = false;
  post([&] {
    task();
    const std::scoped_lock lock(mutex);
    done = true;
    ran.notify_one();
  });
  std::unique_lock lock(mutex);
  ran.wait(lock, [&] { return done; });
}

void Worker::adopt(UniqueFd socket, int node, bool is_tls) {
  auto shared = std::make_shared<UniqueFd>(std::move(socket));
  post([this, shared, node, is_tls] {
    const uint64_t id = ++last_id_;
    const int fd = shared->get();
    TlsStream tls;
    if (is_tls) {
      auto accepted = service_.tls->accept(fd);
      if (!accepted) return;
      tls = std::move(accepted).value();
    }
    auto connection =
        std::make_unique<Connection>(*this, id, std::move(*shared), std::move(tls), node);
    if (!add_to_epoll(epoll_.get(), fd, id, EPOLLIN | EPOLLRDHUP)) return;
    connections_.emplace(id, std::move(connection));
  });
}

void Worker::close_connections(int node) {
  std::erase_if(connections_, [node](const auto& entry) { return entry.second->node() == node; });
}

void Worker::thaw_connections(int node) {
  std::vector<uint64_t> ids;
  for (const auto& [id, connection] : connections_) {
    if (connection->node() == node) ids.push_back(id);
  }
  for (const uint64_t id : ids) {
    connections_.at(id)->on_change();
    settle(id);
  }
}

void Worker::watch(Connection& connection, uint32_t events) {
  epoll_event event{};
  event.events = events;
  event.data.u64 = connection.id();
  ::epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, connection.fd(), &event);
}

void Worker::wake_at(Connection& connection, TimePoint time) {
  timers_.push({time, connection.id()});
  arm_timer();
}

void Worker::arm_timer() {
  if (timers_.empty()) return;
  const TimePoint next = timers_.top().time;
  if (armed_ != TimePoint{} && armed_ <= next) return;
  armed_ = next;
  const auto ns = std::chrono::duration_cast<std::chrono::nanoseconds>(next.time_since_epoch());
  itimerspec spec{};
  spec.it_value.tv_sec = static_cast<time_t>(ns.count() / 1'000'000'000);
  spec.it_value.tv_nsec = static_cast<long>(ns.count() % 1'000'000'000);
  ::timerfd_settime(timer_.get(), TFD_TIMER_ABSTIME, &spec, nullptr);
}

void Worker::run_timers() {
  clear_event_fd(timer_.get());
  armed_ = {};
  const TimePoint now = SteadyClock::now();
  while (!timers_.empty() && timers_.top().time <= now) {
    const uint64_t id = timers_.top().connection;
    timers_.pop();
    const auto it = connections_.find(id);
    if (it == connections_.end()) continue;
    it->second->on_ready();
    settle(id);
  }
  arm_timer();
}

void Worker::run_tasks() {
  clear_event_fd(wake_.get());
  std::vector<std::function<void()>> tasks;
  {
    const std::scoped_lock lock(tasks_mutex_);
    tasks.swap(tasks_);
  }
  for (const auto& task : tasks) task();
}

void Worker::settle(uint64_t id) {
  const auto it = connections_.find(id);
  if (it != connections_.end() && it->second->has_ended()) connections_.erase(it);
}

void Worker::run() {
  std::array<epoll_event, 64> events;
  while (!stopping_) {
    const int count =
        ::epoll_wait(epoll_.get(), events.data(), static_cast<int>(events.size()), -1);
    for (int i = 0; i < count; ++i) {
      const epoll_event& event = events[static_cast<size_t>(i)];
      const uint64_t id = event.data.u64;
      if (id == kWakeId) {
        run_tasks();
      } else if (id == kTimerId) {
        run_timers();
      } else if (const auto it = connections_.find(id); it != connections_.end()) {
        it->second->on_events(event.events);
        settle(id);
      }
    }
  }
  run_tasks();  // nobody may wait for ever
  connections_.clear();
}

}  // namespace aerokv::devserver
