// SPDX-License-Identifier: Apache-2.0
// Watches the cluster: finds nodes from the seeds, follows peers and partition maps, keeps logins
// fresh, and publishes what it knows as immutable maps.
//
// Every so often a round begins: each node is asked whether anything has changed, and a failed one
// is tried again. What a node tells is used at once; one that is silent keeps nobody waiting, its
// turn goes on behind the round.
#pragma once

#include <poll.h>

#include <condition_variable>
#include <functional>
#include <map>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>
#include <vector>

#include "base/fd.h"
#include "client/info_channel.h"
#include "client/node.h"
#include "client/options.h"

namespace aerokv::client {

/// Runs the tend thread. Thread-safe.
class Tender {
 public:
  /// `on_map` is called on the tend thread with every new map.
  using MapListener = std::function<void(std::shared_ptr<const ClusterMap>)>;

  Tender(const ClientOptions& options, Secret credential, MapListener on_map);
  ~Tender();

  /// Starts the thread and waits until one node is known and its partition map was read.
  /// Errors: unavailable or denied, with the reason of every seed; after two rounds, each within
  /// `connect_timeout` plus the time of the name resolver, or, if there is a `start_timeout`, after
  /// that. A refused login is told at once.
  Status start();
  void stop();

  /// Makes the next round begin now: a request has met a failure that a fresh map may cure.
  void wake();

 private:
  struct Contact;  // one node, or one address that may become one

  // The thread: rounds, waiting, publishing (tend.cc).
  void run();
  [[nodiscard]] bool take_orders(TimePoint now);
  void begin_round(TimePoint now);
  void await_events(TimePoint now);
  [[nodiscard]] TimePoint next_moment(TimePoint now) const;
  [[nodiscard]] bool is_late(const Contact& contact, TimePoint now) const;
  [[nodiscard]] bool round_is_over(TimePoint now);
  void finish_round(TimePoint now);
  [[nodiscard]] Duration pause() const;
  [[nodiscard]] milliseconds patience(const Contact& contact) const;
  void publish_if_changed();
  void publish_first_map(TimePoint now);
  [[nodiscard]] Status start_error();

  // Who belongs to the cluster (tend_members.cc).
  [[nodiscard]] bool any_healthy() const;
  [[nodiscard]] bool is_listed(const Contact& contact, const std::string& name) const;
  [[nodiscard]] bool counts(const Contact& contact) const;
  void reseed();
  void add_contact(std::vector<wire::Endpoint> endpoints, std::string expected_node, bool is_seed);
  void take_peers(const Contact& contact);
  [[nodiscard]] bool adopt(Contact& contact, std::string_view name);
  void replace_node(Contact& contact, NodePtr node);
  void drop_departed();
  [[nodiscard]] bool has_left(const Contact& contact) const;

  // Steps of one contact; each sends the next request or ends the contact's turn
  // (tend_contact.cc).
  void begin(Contact& contact);
  void reconnect(Contact& contact);
  [[nodiscard]] Status find_addresses(Contact& contact);
  void connect_next(Contact& contact, Status why_not);
  void proceed(Contact& contact);
  void connected(Contact& contact);
  void on_login(Contact& contact);
  void on_identity(Contact& contact);
  void on_generations(Contact& contact);
  void on_peers(Contact& contact);
  void on_replicas(Contact& contact);
  void on_racks(Contact& contact);
  void ask_identity(Contact& contact);
  void ask_next(Contact& contact);
  void ask(Contact& contact, std::initializer_list<std::string_view> commands);
  [[nodiscard]] bool wants_map(const Contact& contact) const;
  [[nodiscard]] Status encode_login(std::vector<std::byte>& frame) const;
  [[nodiscard]] std::string_view peers_command() const;
  void fail(Contact& contact, const Status& error);

  const ClientOptions options_;
  const Secret credential_;  // what a login proves the user with
  const MapListener on_map_;
  const std::string user_agent_;

  // Owned by the tend thread.
  std::vector<std::unique_ptr<Contact>> contacts_;
  std::vector<wire::Endpoint> former_;  // addresses of nodes that have left, newest last
  PartitionTable table_;
  std::vector<std::pair<std::string, int>> racks_;
  std::vector<pollfd> fds_;
  std::vector<Contact*> polled_;
  TimePoint next_round_{};
  TimePoint last_round_{};
  bool round_open_ = false;
  bool changed_ = false;          // what was not published yet
  bool masters_changed_ = false;  // in this round: there may be more to come
  bool refresh_all_peers_ = false;
  uint64_t version_ = 0;

  std::mutex mutex_;
  std::condition_variable condition_;
  bool stopping_ = false;                      // guarded by mutex_
  bool wake_ = false;                          // guarded by mutex_
  bool ready_ = false;                         // guarded by mutex_
  int rounds_ = 0;                             // guarded by mutex_
  std::map<std::string, Status> seed_errors_;  // guarded by mutex_: the last of each address
  UniqueFd wake_fd_;
  std::thread thread_;
};

}  // namespace aerokv::client
