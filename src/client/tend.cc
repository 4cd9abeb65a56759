// SPDX-License-Identifier: Apache-2.0
#include "client/tend.h"

#include <algorithm>

#include "aerokv/version.h"
#include "base/log.h"
#include "client/tend_contact.h"

namespace aerokv::client {
namespace {

// Who has not answered after this does not hold up the end of a round.
constexpr milliseconds kLate{50};
// A node that failed before gets less time to connect and to answer.
constexpr milliseconds kSecondChance{250};
// At most one round in this time, however many requests ask for a fresh map.
constexpr milliseconds kPace{100};
// While something is amiss or changing, the next look follows after this.
constexpr milliseconds kWatchful{250};
// A start that has found a cluster waits no longer than this for other addresses.
constexpr milliseconds kStragglers{250};
constexpr int kRoundsOfAStart = 2;
constexpr size_t kErrorTextMax = 2000;

std::string base64(std::string_view text) {
  constexpr std::string_view kAlphabet =
      "ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
  std::string out;
  for (size_t i = 0; i < text.size(); i += 3) {
    const size_t count = std::min<size_t>(3, text.size() - i);
    uint32_t bits = 0;
    for (size_t j = 0; j < 3; ++j) {
      bits = bits << 8 | (j < count ? static_cast<uint8_t>(text[i + j]) : 0U);
    }
    for (size_t j = 0; j < 4; ++j) {
      out += j <= count ? kAlphabet[bits >> (18 - 6 * j) & 63] : '=';
    }
  }
  return out;
}

}  // namespace

Tender::Tender(const ClientOptions& options, Secret credential, MapListener on_map)
    : options_(options),
      credential_(std::move(credential)),
      on_map_(std::move(on_map)),
      user_agent_("user-agent-set:value=" +
                  base64("1,aerokv-" + std::string(kVersion) + ",lmcache-aerospike")) {}

Tender::~Tender() {
  stop();
}

Status Tender::start() {
  Result<UniqueFd> fd = make_event_fd();
  if (!fd) return fd.error();
  wake_fd_ = *std::move(fd);
  thread_ = std::thread([this] { run(); });
  std::unique_lock lock(mutex_);
  const TimePoint begun = SteadyClock::now();
  const bool waits = options_.start_timeout > milliseconds(0);
  const auto is_decided = [&] {
    // Wrong credentials stay wrong. Else nodes that are just starting may be taken in later.
    const bool is_refused =
        rounds_ > 0 && !seed_errors_.empty() &&
        std::all_of(seed_errors_.begin(), seed_errors_.end(),
                    [](const auto& item) { return item.second.code() == Code::denied; });
    return ready_ || is_refused || (!waits && rounds_ >= kRoundsOfAStart);
  };
  if (waits) {
    condition_.wait_until(lock, begun + options_.start_timeout, is_decided);
  } else {
    condition_.wait(lock, is_decided);
  }
  if (ready_) {
    seed_errors_.clear();
    return {};
  }
  Status error = start_error();
  lock.unlock();
  stop();
  return error;
}

/// Requires mutex_. A node that answers and refuses tells more than those that are away.
Status Tender::start_error() {
  std::string text;
  bool any_denied = false;
  for (const auto& [label, error] : seed_errors_) {
    any_denied = any_denied || error.code() == Code::denied;
    text += (text.empty() ? "" : "; ") + label + ": " + error.message();
  }
  if (text.empty()) text = "no answer yet";
  if (text.size() > kErrorTextMax) text.resize(kErrorTextMax);
  return {any_denied ? Code::denied : Code::unavailable,
          "no node of the cluster could be used: " + text};
}

void Tender::stop() {
  {
    const std::scoped_lock lock(mutex_);
    stopping_ = true;
  }
  if (wake_fd_.is_open()) signal_event_fd(wake_fd_.get());
  if (thread_.joinable()) thread_.join();
  contacts_.clear();  // and with them their connections
}

void Tender::wake() {
  {
    const std::scoped_lock lock(mutex_);
    if (wake_) return;
    wake_ = true;
  }
  signal_event_fd(wake_fd_.get());
}

void Tender::run() {
  next_round_ = SteadyClock::now();
  while (true) {
    TimePoint now = SteadyClock::now();
    if (!take_orders(now)) return;
    if (!round_open_ && now >= next_round_) begin_round(now);
    await_events(now);
    now = SteadyClock::now();
    if (round_open_ && round_is_over(now)) finish_round(now);
    if (version_ > 0) publish_if_changed();
    publish_first_map(now);
  }
}

/// False when the thread is to end.
bool Tender::take_orders(TimePoint now) {
  const std::scoped_lock lock(mutex_);
  if (stopping_) return false;
  if (wake_ && !round_open_) {
    wake_ = false;
    const Duration pace = std::min<Duration>(options_.tend_interval, kPace);
    next_round_ = std::min(next_round_, std::max(now, last_round_ + pace));
  }
  return true;
}

void Tender::begin_round(TimePoint now) {
  round_open_ = true;
  last_round_ = now;
  masters_changed_ = false;
  refresh_all_peers_ = std::any_of(contacts_.begin(), contacts_.end(),
                                   [](const auto& contact) { return contact->failures > 0; });
  if (!any_healthy()) reseed();
  // Peers that are found meanwhile are begun where they are found.
  const size_t count = contacts_.size();
  for (size_t i = 0; i < count; ++i) {
    if (!contacts_[i]->is_busy()) begin(*contacts_[i]);
  }
}

/// Waits for what is next, and lets the contacts do what can be done.
void Tender::await_events(TimePoint now) {
  fds_.clear();
  polled_.clear();
  for (const auto& contact : contacts_) {
    if (!contact->is_busy()) continue;
    fds_.push_back({contact->channel.fd(), contact->channel.poll_events(), 0});
    polled_.push_back(contact.get());
  }
  fds_.push_back({wake_fd_.get(), POLLIN, 0});
  const auto left = std::chrono::ceil<milliseconds>(next_moment(now) - now).count();
  const int wait_ms = static_cast<int>(std::clamp<int64_t>(left, 0, 10000));
  if (::poll(fds_.data(), fds_.size(), wait_ms) < 0) return;  // interrupted
  if (fds_.back().revents != 0) clear_event_fd(wake_fd_.get());
  now = SteadyClock::now();
  for (size_t i = 0; i < polled_.size(); ++i) {
    Contact& contact = *polled_[i];
    if (fds_[i].revents != 0) {
      proceed(contact);
    } else if (now >= contact.asked_at + patience(contact)) {
      fail(contact, {Code::timeout, std::string(contact.channel.stage()) + " within " +
                                        std::to_string(patience(contact).count()) + " ms"});
    }
  }
}

/// When something has to be done even if nobody says a word.
TimePoint Tender::next_moment(TimePoint now) const {
  TimePoint next = round_open_ ? TimePoint::max() : next_round_;
  bool any_busy = false;
  for (const auto& contact : contacts_) {
    if (!contact->is_busy()) continue;
    any_busy = true;
    next = std::min(next, contact->asked_at + patience(*contact));
    for (const milliseconds step : {kLate, kStragglers}) {
      if (now < contact->asked_at + step) next = std::min(next, contact->asked_at + step);
    }
  }
  return round_open_ && !any_busy ? now : next;
}

/// The first round waits for everybody: what is known at a start should be all there is.
bool Tender::is_late(const Contact& contact, TimePoint now) const {
  return version_ > 0 && now >= contact.asked_at + kLate;
}

bool Tender::round_is_over(TimePoint now) {
  // Whose map did not count may have been recognised by others meanwhile.
  for (size_t i = 0; i < contacts_.size(); ++i) {
    Contact& contact = *contacts_[i];
    if (contact.step == Contact::Step::done && wants_map(contact)) ask_next(contact);
  }
  return std::all_of(contacts_.begin(), contacts_.end(), [&](const auto& contact) {
    return !contact->is_busy() || is_late(*contact, now);
  });
}

void Tender::finish_round(TimePoint now) {
  round_open_ = false;
  drop_departed();
  publish_if_changed();
  next_round_ = std::max(now, last_round_ + pause());
  const std::scoped_lock lock(mutex_);
  ++rounds_;
  condition_.notify_all();
}

/// Between the begins of two rounds.
Duration Tender::pause() const {
  const bool any_amiss = std::any_of(contacts_.begin(), contacts_.end(), [](const auto& contact) {
    return contact->failures > 0 || (contact->node && contact->node->is_suspect());
  });
  const bool is_start = version_ == 0 && options_.start_timeout == milliseconds(0);
  return (any_amiss || masters_changed_ || version_ == 0) && !is_start
             ? std::min<Duration>(options_.tend_interval, kWatchful)
             : options_.tend_interval;
}

/// A node that failed before gets less time, once there are others to turn to.
milliseconds Tender::patience(const Contact& contact) const {
  return contact.failures > 0 && version_ > 0 ? std::min(options_.connect_timeout, kSecondChance)
                                              : options_.connect_timeout;
}

/// A start does not wait for seeds that do not answer, once a cluster was found and asked that has
/// the namespace.
void Tender::publish_first_map(TimePoint now) {
  if (version_ > 0) return;
  bool any_done = false;
  for (const auto& contact : contacts_) {
    any_done = any_done ||
               (contact->is_healthy() && !contact->is_busy() && table_.owns_any(contact->node));
    const bool is_straggler = now >= contact->asked_at + kStragglers;
    if (contact->is_busy() && !is_straggler && (contact->node || !contact->is_seed)) return;
  }
  if (any_done) publish_if_changed();
}

void Tender::publish_if_changed() {
  if (!changed_) return;
  auto map = std::make_shared<ClusterMap>();
  for (const auto& contact : contacts_) {
    if (contact->node && !contact->removed) map->nodes.push_back(contact->node);
  }
  if (map->nodes.empty()) return;
  changed_ = false;
  map->version = ++version_;
  if (table_.replication_factor() > 0) map->partitions = table_.slots();
  map->replication_factor = table_.replication_factor();
  map->strong_consistency = table_.strong_consistency();
  map->racks = racks_;
  on_map_(std::move(map));
  if (!any_healthy()) return;
  const std::scoped_lock lock(mutex_);
  ready_ = true;
  condition_.notify_all();
}

}  // namespace aerokv::client
