// SPDX-License-Identifier: Apache-2.0
#include "client/io_loop.h"

#include <algorithm>
#include <cerrno>
#include <random>

#include "base/log.h"

namespace aerokv::client {
namespace {

// Lined-up requests are sent once they have this much; the rest is prepared while they travel.
constexpr uint64_t kLineUpBytes = 256 << 10;

// So much of stores is prepared before loads have their turn again: hashing and sending it takes
// about half a millisecond.
constexpr uint64_t kStoreTurnBytes = 1 << 20;

// A gap between two turns of the loop that is longer than this is our own lack of CPU time.
constexpr std::chrono::microseconds kOwnLag{3000};

constexpr int kEventsMax = 64;

}  // namespace

IoLoop::IoLoop(const ClientOptions& options, ClientStats& stats, std::function<void()> wake_tend)
    : options_(options),
      stats_(stats),
      wake_tend_(std::move(wake_tend)),
      bytes_budget_(options.bytes_in_flight_max / static_cast<uint64_t>(options.io_threads)),
      random_state_(std::random_device{}() | 1U) {}

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
    const TimePoint before = SteadyClock::now();
    const int wait = wait_ms(before);
    const int count = ::epoll_wait(epoll_.get(), events.data(), kEventsMax, wait);
    const TimePoint now = SteadyClock::now();
    if (now - before > milliseconds(wait) + kOwnLag || before - turned_at_ > kOwnLag) {
      overslept_at_ = now;
    }
    if (now - turned_at_ > kOwnLag) lagged_at_ = now;
    turned_at_ = now;
    bool woken = false;
    const std::span<epoll_event> ready(events.data(), static_cast<size_t>(std::max(count, 0)));
    for (const epoll_event& event : ready) woken |= event.data.ptr == nullptr;
    drive_events(ready, now);
    if (woken) {
      clear_event_fd(wake_fd_.get());
      run_tasks(now);
      const std::scoped_lock lock(mutex_);
      if (stopping_) break;
    } else if (now >= next_task_) {
      run_tasks(now);
    }
    take_inbox(now);
    check_time(now);
    pump_all(now);
  }
  close_everything();
}

/// Drives the connections that `events` name, those of reads first. A connection dies only in its
/// own drive() or in check_time(): whose lane it is in is asked before any is driven, and none is
/// looked at again after its own.
void IoLoop::drive_events(std::span<epoll_event> events, TimePoint now) {
  const auto reads = [](const epoll_event& event) {
    const auto* connection = static_cast<const Connection*>(event.data.ptr);
    return connection != nullptr && is_read_lane(static_cast<Pool*>(connection->owner())->lane);
  };
  std::partition(events.begin(), events.end(), reads);
  for (const epoll_event& event : events) {
    auto* connection = static_cast<Connection*>(event.data.ptr);
    if (connection == nullptr) continue;
    drive(*static_cast<Pool*>(connection->owner()), connection, event.events, now);
  }
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

void IoLoop::take_inbox(TimePoint now) {
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
    command->begin(spread_++);
    next_deadline_ = std::min(next_deadline_, command->plan.deadline);
    if (command->plan.is_budgeted) {
      if (const Duration turn = retry_budget_.reserve(now); turn > Duration::zero()) {
        delayed_.push({std::min(now + turn, command->plan.deadline), command});
        continue;
      }
    }
    route(command, now);
  }
}

/// Puts a command into the queue of the node that its next attempt goes to.
void IoLoop::route(Command* command, TimePoint now) {
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
  // Nobody but the master takes a write: while it is away the write waits here.
  if (command->plan.is_write && !command->plan.node && node->is_suspect()) {
    return hold(command, *node, now);
  }
  pool_of(node, lane_of(command->plan)).waiting.push_back(command);
}

Pool& IoLoop::pool_of(const NodePtr& node, Lane lane) {
  Pool& pool = pools_[{node.get(), lane}];
  if (!pool.node) {
    pool.node = node;
    pool.lane = lane;
  }
  return pool;
}

void IoLoop::pump_all(TimePoint now) {
  turn_was_cut_ = false;
  for (const bool reads : {true, false}) {
    for (auto& [key, pool] : pools_) {
      if (is_read_lane(pool.lane) == reads && !pool.waiting.empty()) pump(pool, now);
    }
  }
}

void IoLoop::pump(Pool& pool, TimePoint now) {
  // Requests are lined up first and sent together: one system call for many small ones.
  std::vector<Connection*> lined_up;
  uint64_t turn_bytes = 0;
  while (!pool.waiting.empty()) {
    Command* command = pool.waiting.front();
    if (!has_budget(pool, *command, now)) break;  // pumped again when bytes have arrived
    if (pool.lane == Lane::store && turn_bytes >= kStoreTurnBytes) {
      turn_was_cut_ = true;
      break;
    }
    turn_bytes += command->plan.payload_bytes;
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

/// Loads and stores share the budget. Stores have at most half of it, and what the node takes; one
/// request of each is always let through, so that neither keeps the other out.
bool IoLoop::has_budget(const Pool& pool, const Command& command, TimePoint now) const {
  const uint64_t bytes = command.plan.payload_bytes;
  if (bytes == 0) return true;
  const bool fits = load_bytes_ + store_bytes_ + bytes <= bytes_budget_;
  if (pool.lane == Lane::load) return load_bytes_ == 0 || fits;
  if (store_bytes_ == 0) return true;
  return fits && store_bytes_ + bytes <= bytes_budget_ / 2 &&
         (pool.payload_bytes() == 0 || pool.node->stores.has_room(bytes, now));
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
    const Fault fault{status.code() == Code::denied ? FaultKind::no_session : FaultKind::refused,
                      status};
    pool.node->note_failure(now, rule_of(fault.kind).blame, status);
    std::deque<Command*> waiting = std::exchange(pool.waiting, {});
    for (Command* command : waiting) attempt_failed(command, fault, now);
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
  const milliseconds timeout = std::min(limit, remaining_ms(command->plan.deadline, now));
  Command::Encoded request;
  if (Status status = command->encode(static_cast<uint32_t>(timeout.count()), request); !status) {
    return finish(command, std::move(status));
  }
  stats_.attempts.fetch_add(1, std::memory_order_relaxed);
  if (command->attempt_ > 0) {
    stats_.retries.fetch_add(1, std::memory_order_relaxed);
  } else {
    retry_budget_.note_request(now);
    if (!command->plan.is_write) hedge_budget_.note_request(now);
  }
  command->connection_ = &connection;
  command->sent_at_ = now;
  command->sent_ = false;
  pool.node->requests.fetch_add(1, std::memory_order_relaxed);
  begin_transfer(pool, *command, now);
  connection.enqueue(command, std::move(request), now);
}

void IoLoop::begin_transfer(Pool& pool, Command& command, TimePoint now) {
  const uint64_t bytes = command.plan.payload_bytes;
  if (bytes == 0) return;
  if (pool.lane == Lane::store) {
    store_bytes_ += bytes;
    command.store_ticket_ = pool.node->stores.begin(bytes, now);
  } else {
    load_bytes_ += bytes;
  }
  const uint64_t total = stats_.bytes_in_flight.fetch_add(bytes, std::memory_order_relaxed) + bytes;
  uint64_t peak = stats_.bytes_in_flight_peak.load(std::memory_order_relaxed);
  while (total > peak && !stats_.bytes_in_flight_peak.compare_exchange_weak(
                             peak, total, std::memory_order_relaxed)) {
  }
}

/// An attempt is over, with an answer or without.
void IoLoop::end_transfer(Node& node, const Command& command) {
  const uint64_t bytes = command.plan.payload_bytes;
  if (bytes == 0) return;
  stats_.bytes_in_flight.fetch_sub(bytes, std::memory_order_relaxed);
  if (command.plan.is_write) {
    store_bytes_ -= bytes;
    node.stores.end(bytes);
  } else {
    load_bytes_ -= bytes;
  }
}

/// Tells the node's window for stores what an answer says about it.
void IoLoop::note_store_answer(Node& node, const Command& command, TimePoint now) {
  const uint8_t code = command.result_code();
  if (code == wire::result::kOk) {
    node.stores.answered(command.plan.payload_bytes, command.store_ticket_, now);
  } else if (code == wire::result::kDeviceOverload || code == wire::result::kTimeout) {
    node.stores.overloaded(now);
  }
}

void IoLoop::drive(Pool& pool, Connection* connection, uint32_t events, TimePoint now) {
  Connection::Outcome outcome;
  connection->drive((events & (EPOLLIN | EPOLLHUP | EPOLLERR)) != 0,
                    (events & (EPOLLOUT | EPOLLHUP | EPOLLERR)) != 0, now, outcome);
  for (const Connection::Wait& wait : connection->take_waits()) {
    pool.add_wait(wait);
    pool.latency.add(wait.wait, now);
  }
  bool login_expired = false;
  for (Command* command : outcome.answered) {
    if (pool.lane == Lane::store) note_store_answer(*pool.node, *command, now);
    end_transfer(*pool.node, *command);
    login_expired |= command->result_code() != wire::result::kOk &&
                     fault_of_code(command->result_code()) == FaultKind::no_session;
    answered(pool.node, command, now);
  }
  if (outcome.error.ok() && login_expired) {
    connection->reject_session();
    wake_tend_();
    outcome.error = {Code::denied, "the session has expired"};
    outcome.fault = FaultKind::no_session;
  }
  if (!outcome.error.ok()) {
    return fail_connection(pool, connection, {outcome.fault, outcome.error}, now);
  }
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

void IoLoop::finish(Command* command, Status status) {
  --command_count_;
  command->done(std::move(status));
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
        const bool is_last = drop_leg(*command, connection.get());
        end_transfer(*pool.node, *command);
        if (is_last) commands.push_back(command);
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
    closed.set_in_doubt(command->plan.is_write && (command->sent_ || command->in_doubt_));
    finish(command, std::move(closed));
  }
}

}  // namespace aerokv::client
