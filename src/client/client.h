// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <vector>

#include "client/command.h"
#include "client/io_loop.h"
#include "client/options.h"
#include "client/tend.h"

namespace aerokv::client {

/// A connection to a cluster for one namespace. Thread-safe.
///
/// Threads: one tend thread, `io_threads` I/O threads. No call blocks on the network but connect()
/// and info_all().
class Client {
 public:
  /// Finds the cluster. Succeeds if one seed answers; dead ones do not hold it up once the nodes
  /// are known. Errors: invalid (options), unavailable, denied (login).
  static Result<std::unique_ptr<Client>> connect(ClientOptions options);

  /// Calls close().
  ~Client();

  /// Starts commands, spread over the I/O threads. Never blocks. Every command is done() exactly
  /// once; after close() at once, with Code::closed.
  void submit(std::span<Command* const> commands);
  void submit(Command* command) { submit({&command, 1}); }

  /// Runs `task` on an I/O thread (at once on this one after close()). Tasks posted one after the
  /// other go to different threads. `task` must not block.
  void post(std::function<void()> task, TimePoint due = {});

  /// True if some node is not a suspect: then the map will tell what became of the others.
  [[nodiscard]] bool has_healthy_node() const;

  /// The newest map; never null after connect().
  [[nodiscard]] std::shared_ptr<const ClusterMap> map() const;

  /// The node that a batch row or query of `partition` should go to; null if none is known.
  [[nodiscard]] NodePtr node_for(const ClusterMap& map, uint32_t partition, bool is_write,
                                 uint32_t attempt, const Node* last = nullptr) const;

  /// Asks every active node one info command over fresh connections and waits for the answers.
  struct NodeInfo {
    std::string node;
    Status status;
    std::string value;
  };
  std::vector<NodeInfo> info_all(std::string_view command, milliseconds timeout) const;

  /// A failure hints at a changed cluster: tend now.
  void refresh_soon() { tender_->wake(); }

  /// Ends all threads; open commands are done with Code::closed before it returns. Bounded:
  /// nothing is waited for. Idempotent, thread-safe; not to be called from done().
  void close();

  [[nodiscard]] const ClientOptions& options() const { return options_; }
  [[nodiscard]] const ClientStats& stats() const { return stats_; }

 private:
  explicit Client(ClientOptions options);
  void publish(const std::shared_ptr<const ClusterMap>& map);

  ClientOptions options_;
  std::string credential_;
  ClientStats stats_;
  mutable std::mutex map_mutex_;
  std::shared_ptr<const ClusterMap> map_;  // guarded by map_mutex_
  std::vector<std::unique_ptr<IoLoop>> loops_;
  std::unique_ptr<Tender> tender_;
  std::atomic<uint32_t> next_loop_{0};
  std::mutex close_mutex_;
  bool closed_ = false;  // guarded by close_mutex_
};

}  // namespace aerokv::client
