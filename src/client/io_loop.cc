// SPDX-License-Identifier: Apache-2.0
#include "client/io_loop.h"

#include <sys/epoll.h>

#include <algorithm>
#include <cerrno>

#include "base/log.h"

namespace aerokv::client {
namespace {

// Lined-up requests are sent once they have this much; the rest is prepared while they travel.
constexpr uint64_t kLineUpBytes = 256 << 10;

// A gap between two turns of the loop that is longer than this is our own lack of CPU time.
constexpr std::chrono::microseconds kOwnLag{3000};

constexpr milliseconds kCheckInterval{1};
constexpr milliseconds kExpiryInterval{20};
constexpr milliseconds kBackOffFirst{5};
constexpr milliseconds kBackOffMax{200};
constexpr milliseconds kLoginPause{50};
constexpr std::chrono::seconds kTrimInterval{1};
constexpr std::chrono::seconds kExtraConnectionTtl{2};
constexpr int kTickMs = 5;

constexpr int kEventsMax = 64;

milliseconds remaining(TimePoint deadline, TimePoint now) {
  return std::max(milliseconds(1), std::chrono::ceil<milliseconds>(deadline - now));
}

}  // namespace

IoLoop::IoLoop(const ClientOptions& options, ClientStats& stats, std::function<void()> wake_tend)
    : options_(options),
      stats_(stats),
      wake_tend_(std::move(wake_tend)),
      bytes_budget_(options.bytes_in_flight_max / static_cast<uint64_t>(options.io_threads)) {}

IoLoop::~IoLoop() {
  stop();
}

Status IoLoop::start() {
  epoll_ = UniqueFd(::epoll_create1(EPOLL_CLOEXEC));
  if (!epoll_.is_open()) return status_from_errno(errno, "epoll_create1");
  Result<UniqueFd> fd = make_event_fd();
  if (!fd) return fd.error();
  wake_fd_ = *std::move(fd);
  epoll_event event{};
  event.events = EPOLLIN;
  event.data.ptr = nullptr;
  if (::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, wake_fd_.get(), &event) < 0) {
    return status_from_errno(errno, "epoll_ctl");
  }
  thread_ = std::thread([this] { run(); });
  return {};
}

void IoLoop::stop() {
  {
    const std::scoped_lock lock(mutex_);
    stopping_ = true;
  }
  if (thread_.joinable()) {
    signal_event_fd(wake_fd_.get());
    thread_.join();
  }
}

void IoLoop::submit(std::span<Command* const> commands) {
  bool was_empty = false;
  {
    const std::scoped_lock lock(mutex_);
    if (!stopping_) {
      was_empty = inbox_.empty();
      inbox_.insert(inbox_.end(), commands.begin(), commands.end());
      commands = {};
    }
  }
  if (was_empty) signal_event_fd(wake_fd_.get());
  for (Command* command : commands) command->done({Code::closed, "the client is closed"});
}

void IoLoop::post(const void* owner, std::function<void()> task, TimePoint due) {
  {
    const std::scoped_lock lock(mutex_);
    if (!stopping_) {
      tasks_.emplace(due, Task{owner, std::move(task)});
      task = nullptr;
    }
  }
  if (task) return task();
  signal_event_fd(wake_fd_.get());
}

void IoLoop::set_map(std::shared_ptr<const ClusterMap> map) {
  {
    const std::scoped_lock lock(mutex_);
    next_map_ = std::move(map);
  }
  signal_event_fd(wake_fd_.get());
}

void IoLoop::run() {
  std::array<epoll_event, kEventsMax> events;
  while (true) {
    const int count =
        ::epoll_wait(epoll_.get(), events.data(), kEventsMax, wait_ms(SteadyClock::now()));
    const TimePoint now = SteadyClock::now();
    if (now - turned_at_ > kOwnLag) lagged_at_ = now;
    turned_at_ = now;
    bool woken = false;
    for (int i = 0; i < count; ++i) {
      auto* connection = static_cast<Connection*>(events[static_cast<size_t>(i)].data.ptr);
      if (connection == nullptr) {
        woken = true;
        continue;
      }
      // A connection dies only in its own drive() or in check_time(), so the pointers of this
      // round stay valid.
      drive(*static_cast<Pool*>(connection->owner()), connection,
            events[static_cast<size_t>(i)].events, now);
    }
    if (woken) {
      clear_event_fd(wake_fd_.get());
      run_tasks(now);
      const std::scoped_lock lock(mutex_);
      if (stopping_) break;
    } else if (now >= next_task_) {
      run_tasks(now);
    }
    take_inbox();
    check_time(now);
    pump_all(now);
  }
  close_everything();
}

void IoLoop::run_tasks(TimePoint now) {
  std::unique_lock lock(mutex_);
  // One by one: release() among them must still find those of its owner in tasks_. What they post
  // themselves has its turn later.
  auto left = std::distance(tasks_.begin(), tasks_.upper_bound(now));
  for (; left > 0 && !tasks_.empty() && tasks_.begin()->first <= now; --left) {
    std::function<void()> run = std::move(tasks_.begin()->second.run);
    tasks_.erase(tasks_.begin());
    lock.unlock();
    run();
    run = nullptr;  // what it holds may end here, not under the lock
    lock.lock();
  }
  next_task_ = tasks_.empty() ? TimePoint::max() : tasks_.begin()->first;
}

void IoLoop::take_inbox() {
  std::vector<Command*> commands;
  std::shared_ptr<const ClusterMap> map;
  {
    const std::scoped_lock lock(mutex_);
    commands.swap(inbox_);
    map = std::move(next_map_);
    next_map_ = nullptr;
  }
  if (map) map_ = std::move(map);
  for (Command* command : commands) {
    ++command_count_;
    command->spread_ = spread_++;
    route(command);
  }
}

/// Puts a command into the queue of the node that its next attempt goes to.
void IoLoop::route(Command* command) {
  NodePtr node = command->plan.node;
  if (!node && map_) {
    const Routing routing{options_.replica, options_.rack_id};
    node = choose_node(*map_, routing, command->plan.partition, command->plan.is_write,
                       command->attempt_, command->spread_, command->last_node_);
  }
  if (!node) {
    return finish(command, {Code::unavailable, "no node of the cluster is known"});
  }
  command->last_node_ = node.get();
  pool_of(node, lane_of(command->plan)).waiting.push_back(command);
}

Pool& IoLoop::pool_of(const NodePtr& node, Lane lane) {
  Pool& pool = pools_[{node.get(), lane}];
  if (!pool.node) pool.node = node;
  return pool;
}

void IoLoop::pump_all(TimePoint now) {
  for (auto& [key, pool] : pools_) {
    if (!pool.waiting.empty()) pump(pool, now);
  }
}

void IoLoop::pump(Pool& pool, TimePoint now) {
  // Requests are lined up first and sent together: one system call for many small ones.
  std::vector<Connection*> lined_up;
  while (!pool.waiting.empty()) {
    Command* command = pool.waiting.front();
    if (bytes_in_flight_ > 0 && bytes_in_flight_ + command->plan.payload_bytes > bytes_budget_) {
      break;  // pumped again when bytes have arrived
    }
    Connection* connection = find_room(pool, *command, now);
    if (connection == nullptr) break;
    pool.waiting.pop_front();
    dispatch(pool, *connection, command, now);
    if (std::find(lined_up.begin(), lined_up.end(), connection) == lined_up.end()) {
      lined_up.push_back(connection);
    }
    if (connection->unsent_bytes() < kLineUpBytes) continue;
    std::erase(lined_up, connection);
    drive(pool, connection, 0, now);
  }
  for (Connection* connection : lined_up) drive(pool, connection, 0, now);
}

/// A connection that may take one more request, opening some where that helps; null to wait.
Connection* IoLoop::find_room(Pool& pool, const Command& command, TimePoint now) {
  const size_t share = connection_share(lane_of(command.plan),
                                        options_.connections_per_node_max / options_.io_threads);
  const Pool::Choice choice = pool.choose(command, share, lagged_at_ == now, now);
  Connection* chosen = choice.connection;
  for (size_t i = 0; i < choice.open; ++i) {
    chosen = open_connection(pool, now);
    if (chosen == nullptr) break;  // and everything that waited was sent elsewhere
  }
  return chosen;
}

Connection* IoLoop::open_connection(Pool& pool, TimePoint now) {
  auto connection = std::make_unique<Connection>(pool.node, options_, &pool);
  Status status = connection->open(now);
  if (status) {
    epoll_event event{};
    event.events = EPOLLIN | EPOLLOUT;
    event.data.ptr = connection.get();
    connection->registered_for_write = true;
    if (::epoll_ctl(epoll_.get(), EPOLL_CTL_ADD, connection->fd(), &event) < 0) {
      status = status_from_errno(errno, "epoll_ctl");
    }
  }
  if (!status) {
    stats_.connection_errors.fetch_add(1, std::memory_order_relaxed);
    const bool awaits_login = status.code() == Code::denied;
    if (!awaits_login) pool.node->suspect(now, status);
    std::deque<Command*> waiting = std::exchange(pool.waiting, {});
    for (Command* command : waiting) attempt_failed(command, status, true, now);
    wake_tend_();
    return nullptr;
  }
  pool.node->connections_opened.fetch_add(1, std::memory_order_relaxed);
  pool.node->connections_open.fetch_add(1, std::memory_order_relaxed);
  pool.connections.push_back(std::move(connection));
  return pool.connections.back().get();
}

/// Encodes one command and lines it up; the caller drives the connection.
void IoLoop::dispatch(Pool& pool, Connection& connection, Command* command, TimePoint now) {
  // A read is to be given up by the server before it is by us, so that the connection survives.
  const milliseconds limit = command->plan.is_write
                                 ? options_.write_attempt_timeout
                                 : options_.read_patience(command->attempt_) * 2 / 3;
  const milliseconds timeout = std::min(limit, remaining(command->plan.deadline, now));
  Command::Encoded request;
  if (Status status = command->encode(static_cast<uint32_t>(timeout.count()), request); !status) {
    return finish(command, std::move(status));
  }
  stats_.attempts.fetch_add(1, std::memory_order_relaxed);
  if (command->attempt_ > 0) stats_.retries.fetch_add(1, std::memory_order_relaxed);
  pool.node->requests.fetch_add(1, std::memory_order_relaxed);
  account(static_cast<int64_t>(command->plan.payload_bytes));
  connection.enqueue(command, std::move(request), now);
}

void IoLoop::account(int64_t payload_bytes) {
  bytes_in_flight_ += static_cast<uint64_t>(payload_bytes);
  const uint64_t total = stats_.bytes_in_flight.fetch_add(static_cast<uint64_t>(payload_bytes),
                                                          std::memory_order_relaxed) +
                         static_cast<uint64_t>(payload_bytes);
  if (payload_bytes <= 0) return;
  uint64_t peak = stats_.bytes_in_flight_peak.load(std::memory_order_relaxed);
  while (total > peak && !stats_.bytes_in_flight_peak.compare_exchange_weak(
                             peak, total, std::memory_order_relaxed)) {
  }
}

void IoLoop::drive(Pool& pool, Connection* connection, uint32_t events, TimePoint now) {
  Connection::Outcome outcome;
  connection->drive((events & (EPOLLIN | EPOLLHUP | EPOLLERR)) != 0,
                    (events & (EPOLLOUT | EPOLLHUP | EPOLLERR)) != 0, now, outcome);
  for (const Connection::Wait& wait : connection->take_waits()) {
    pool.add_wait(wait);
  }
  bool login_expired = false;
  for (Command* command : outcome.answered) {
    account(-static_cast<int64_t>(command->plan.payload_bytes));
    login_expired |= wire::result_retry(command->result_code()) == wire::Retry::log_in;
    answered(command, now);
  }
  if (outcome.error.ok() && login_expired) {
    connection->reject_session();
    wake_tend_();
    outcome.error = {Code::denied, "the session has expired"};
  }
  if (!outcome.error.ok()) return fail_connection(pool, connection, outcome.error, now);
  update_interest(*connection);
}

void IoLoop::update_interest(Connection& connection) {
  const bool wanted = connection.wants_write();
  if (wanted == connection.registered_for_write) return;
  epoll_event event{};
  event.events = wanted ? EPOLLIN | EPOLLOUT : EPOLLIN;
  event.data.ptr = &connection;
  ::epoll_ctl(epoll_.get(), EPOLL_CTL_MOD, connection.fd(), &event);
  connection.registered_for_write = wanted;
}

void IoLoop::answered(Command* command, TimePoint now) {
  const uint8_t code = command->result_code();
  const wire::Retry retry = wire::result_retry(code);
  command->sent_ = true;
  if (code == wire::result::kUnavailable || code == wire::result::kClusterKeyMismatch) wake_tend_();
  const bool awaits_login = retry == wire::Retry::log_in;
  if (retry == wire::Retry::never || (command->plan.node && !awaits_login)) {
    return finish(command, {});
  }
  // Full stays full for longer than a request lives; waiting would only hold its buffers.
  if (code == wire::result::kOutOfSpace) return finish(command, {});
  log(LogLevel::info, "retry " + std::to_string(code), [code] {
    return wire::status_from_result(code, "request").message() +
           "; it is sent again until its deadline";
  });
  attempt_failed(command, wire::status_from_result(code, "request"),
                 retry == wire::Retry::back_off || command->plan.is_write, now);
}

/// Removes a broken connection and gives its commands their next attempt. Only the oldest can be
/// the reason: those behind it have lost nothing but time, and go on without it.
void IoLoop::fail_connection(Pool& pool, Connection* connection, const Status& error,
                             TimePoint now) {
  stats_.connection_errors.fetch_add(1, std::memory_order_relaxed);
  const Status described = error.with_context("node " + pool.node->label());
  const bool blames_first = connection->is_ready();
  // Behind the one that hangs there may be others: after a silence nobody waits for anybody.
  const bool parts_all = blames_first && error.code() == Code::timeout;
  const std::vector<Command*> commands = discard(pool, connection);
  // An idle connection that the server closed says nothing about the node, nor does a login.
  if (!commands.empty() && error.code() != Code::denied) {
    pool.node->suspect(now, error);
    wake_tend_();
  }
  for (Command* command : commands) {
    account(-static_cast<int64_t>(command->plan.payload_bytes));
    const bool is_bystander = blames_first && command != commands.front() && !command->plan.node &&
                              now < command->plan.deadline;
    command->plan.alone = parts_all || (blames_first && command == commands.front());
    if (is_bystander) {
      command->last_error_ = described;
      route(command);
      continue;
    }
    attempt_failed(command, described, pool.connections.empty(), now);
  }
}

std::vector<Command*> IoLoop::discard(Pool& pool, Connection* connection) {
  // Closing would not do: while a child that was forked has not called exec() the socket lives on
  // in it, and epoll would go on to name a connection that is gone.
  ::epoll_ctl(epoll_.get(), EPOLL_CTL_DEL, connection->fd(), nullptr);
  std::vector<Command*> commands = connection->abandon();
  pool.node->connections_open.fetch_sub(1, std::memory_order_relaxed);
  std::erase_if(pool.connections, [&](const auto& item) { return item.get() == connection; });
  return commands;
}

void IoLoop::attempt_failed(Command* command, Status error, bool back_off, TimePoint now) {
  // Waiting for a new login is nobody's failure: only the deadline bounds it.
  const bool awaits_login = error.code() == Code::denied;
  const uint32_t attempt = awaits_login ? command->attempt_ : ++command->attempt_;
  if (attempt == 1) command->first_failure_ = now;
  const bool exhausted = (command->plan.node != nullptr && !awaits_login) ||
                         (!command->plan.is_write && !may_read_again(*command, error, now));
  // A map that names the right node is on its way.
  back_off |= attempt >= static_cast<uint32_t>(options_.read_attempts_max);
  milliseconds pause{0};
  if (awaits_login) {
    pause = kLoginPause;
  } else if (back_off && attempt > 1) {
    pause = std::min(kBackOffMax, kBackOffFirst * (1 << std::min<uint32_t>(attempt - 1, 10)));
  } else if (back_off) {
    pause = kBackOffFirst;
  }
  if (exhausted || now + pause >= command->plan.deadline) {
    error.set_in_doubt(command->plan.is_write && command->sent_);
    return finish(command, std::move(error));
  }
  command->last_error_ = std::move(error);
  if (pause > milliseconds(0)) {
    delayed_.push({now + pause, command});
  } else {
    route(command);
  }
}

/// Reads end after some attempts, except where these cost no time and the cluster lives: when the
/// last known replica of a partition has died, the next map names others.
bool IoLoop::may_read_again(const Command& command, const Status& error, TimePoint now) const {
  if (command.attempt_ < static_cast<uint32_t>(options_.read_attempts_max)) return true;
  if (error.code() != Code::unavailable || !map_) return false;
  return now - command.first_failure_ <
             options_.read_attempts_max * options_.read_attempt_timeout &&
         std::any_of(
             map_->nodes.begin(), map_->nodes.end(),
             [](const NodePtr& node) { return node->is_active() && !node->is_suspect(); });
}

void IoLoop::finish(Command* command, Status status) {
  --command_count_;
  command->done(std::move(status));
}

void IoLoop::check_time(TimePoint now) {
  while (!delayed_.empty() && delayed_.top().due <= now) {
    Command* command = delayed_.top().command;
    delayed_.pop();
    route(command);
  }
  if (now < next_check_) return;
  next_check_ = now + kCheckInterval;
  const bool expire = now >= next_expiry_;
  if (expire) next_expiry_ = now + kExpiryInterval;
  for (auto& [key, pool] : pools_) {
    if (expire && !pool.waiting.empty()) expire_waiting(pool, now);
    for (size_t i = 0; i < pool.connections.size();) {
      Connection* connection = pool.connections[i].get();
      Status error;
      if (connection->is_stalled(now)) {
        stats_.stalls.fetch_add(1, std::memory_order_relaxed);
        error = {Code::timeout, "no byte for too long"};
      } else if (connection->earliest_deadline() <= now) {
        error = {Code::timeout, "the deadline of a request passed"};
      }
      if (error.ok()) {
        ++i;
      } else {
        fail_connection(pool, connection, error, now);
      }
    }
  }
  if (now >= next_trim_) {
    next_trim_ = now + kTrimInterval;
    for (auto& [key, pool] : pools_) trim_idle(pool, now);
    drop_inactive_pools(now);
  }
}

void IoLoop::expire_waiting(Pool& pool, TimePoint now) {
  std::deque<Command*> kept;
  for (Command* command : pool.waiting) {
    if (command->plan.deadline > now) {
      kept.push_back(command);
      continue;
    }
    Status error = command->last_error_.ok()
                       ? Status(Code::timeout, "node " + pool.node->label() +
                                                   ": the deadline passed before the request "
                                                   "could be sent")
                       : command->last_error_;
    error.set_in_doubt(command->plan.is_write && command->sent_);
    finish(command, std::move(error));
  }
  pool.waiting.swap(kept);
}

void IoLoop::trim_idle(Pool& pool, TimePoint now) {
  for (size_t i = pool.connections.size(); i-- > 0;) {
    Connection& connection = *pool.connections[i];
    if (connection.flights() > 0) continue;
    // The first connection is kept while it is used at all; more are opened quickly when needed.
    const Duration ttl =
        i == 0 ? Duration(options_.idle_connection_ttl)
               : std::min<Duration>(options_.idle_connection_ttl, kExtraConnectionTtl);
    if (now - connection.last_progress() < ttl) continue;
    discard(pool, &connection);
  }
}

void IoLoop::drop_inactive_pools(TimePoint now) {
  for (auto it = pools_.begin(); it != pools_.end();) {
    Pool& pool = it->second;
    if (pool.node->is_active()) {
      ++it;
      continue;
    }
    // Its work goes on elsewhere; what is under way may still be answered.
    std::deque<Command*> waiting = std::exchange(pool.waiting, {});
    for (Command* command : waiting) {
      attempt_failed(command, {Code::unavailable, "the node left the cluster"}, true, now);
    }
    if (pool.connections.empty() && pool.waiting.empty()) {
      it = pools_.erase(it);
    } else {
      ++it;
    }
  }
}

int IoLoop::wait_ms(TimePoint now) const {
  int limit = 1000;
  if (command_count_ > 0) {
    const bool any_waiting = std::any_of(pools_.begin(), pools_.end(), [](const auto& item) {
      return !item.second.waiting.empty();
    });
    if (any_waiting) return 1;
    limit = kTickMs;
  }
  TimePoint next = next_task_;
  if (!delayed_.empty()) next = std::min(next, delayed_.top().due);
  if (next >= now + milliseconds(limit)) return limit;
  return static_cast<int>(
      std::max<int64_t>(0, std::chrono::ceil<milliseconds>(next - now).count()));
}

void IoLoop::close_everything() {
  run_tasks(TimePoint::max());
  std::vector<Command*> commands;
  {
    const std::scoped_lock lock(mutex_);
    commands.swap(inbox_);
  }
  command_count_ += commands.size();
  for (auto& [key, pool] : pools_) {
    for (const auto& connection : pool.connections) {
      for (Command* command : connection->abandon()) {
        account(-static_cast<int64_t>(command->plan.payload_bytes));
        commands.push_back(command);
      }
      pool.node->connections_open.fetch_sub(1, std::memory_order_relaxed);
    }
    commands.insert(commands.end(), pool.waiting.begin(), pool.waiting.end());
  }
  pools_.clear();
  while (!delayed_.empty()) {
    commands.push_back(delayed_.top().command);
    delayed_.pop();
  }
  for (Command* command : commands) {
    Status closed(Code::closed, "the client was closed");
    closed.set_in_doubt(command->plan.is_write && command->sent_);
    finish(command, std::move(closed));
  }
}

}  // namespace aerokv::client
