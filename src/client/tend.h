// SPDX-License-Identifier: Apache-2.0
// Watches the cluster: finds nodes from the seeds, follows peers and partition maps, keeps logins
// fresh, and publishes what it knows as immutable maps.
#pragma once

#include <atomic>
#include <condition_variable>
#include <functional>
#include <memory>
#include <mutex>
#include <optional>
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

  Tender(const ClientOptions& options, std::string credential, MapListener on_map);
  ~Tender();

  /// Starts the thread and waits until one node is known and its partition map was read.
  /// Errors: unavailable or denied, with the reason of every seed; within `connect_timeout` plus
  /// the time of the name resolver.
  Status start();
  void stop();

  /// Makes the next round begin now: a request has met a failure that a fresh map may cure.
  void wake();

 private:
  struct Contact;  // one node, or one address that may become one

  void run();
  void round();
  void poll_contacts();
  void finish_round();
  void publish_early();
  [[nodiscard]] milliseconds patience(const Contact& contact) const;
  void reseed();
  void add_contact(std::vector<wire::Endpoint> endpoints, std::string expected_node, bool is_seed);

  // Steps of one contact; each sends the next request or ends the contact's round.
  void begin(Contact& contact);
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
  void fail(Contact& contact, const Status& error);
  bool adopt(Contact& contact, std::string_view name);
  void drop_departed();
  void publish_if_changed();

  const ClientOptions options_;
  const std::string credential_;
  const MapListener on_map_;
  const std::string user_agent_;

  // Owned by the tend thread.
  std::vector<std::unique_ptr<Contact>> contacts_;
  PartitionTable table_;
  std::vector<std::pair<std::string, int>> racks_;
  bool changed_ = false;
  bool refresh_all_peers_ = false;
  uint64_t version_ = 0;
  std::string last_error_;

  std::mutex mutex_;
  std::condition_variable condition_;
  bool stopping_ = false;    // guarded by mutex_
  bool wake_ = false;        // guarded by mutex_
  bool ready_ = false;       // guarded by mutex_
  int rounds_ = 0;           // guarded by mutex_
  std::string seed_errors_;  // guarded by mutex_
  int seed_failures_ = 0;    // guarded by mutex_
  int seed_denials_ = 0;     // guarded by mutex_
  UniqueFd wake_fd_;
  std::thread thread_;
};

}  // namespace aerokv::client
