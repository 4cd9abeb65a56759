// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <functional>
#include <memory>
#include <mutex>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "client/command.h"
#include "client/io_loop.h"
#include "client/options.h"
#include "client/tend.h"

namespace aerokv::client {

/// One node's answer to an info command.
struct NodeInfo {
  std::string node;
  Status status;
  std::string value;
};

/// The threads and connections to one cluster for one namespace; clients share it. Thread-safe.
///
/// Threads: one tend thread, `io_threads` I/O threads. No call blocks on the network but start()
/// and info_all().
class Engine {
 public:
  /// Finds the cluster. Succeeds if one seed answers; dead ones do not hold it up once the nodes
  /// are known. Errors: invalid (options), unavailable, denied (login).
  static Result<std::unique_ptr<Engine>> start(ClientOptions options);

  /// Calls close().
  ~Engine();

  /// Starts commands, spread over the I/O threads. Never blocks. Every command is done() exactly
  /// once; after close() at once, with Code::closed.
  void submit(std::span<Command* const> commands);

  /// Runs `task` on an I/O thread (at once on this one after close()). Tasks posted one after the
  /// other go to different threads. `task` must not block.
  void post(const void* owner, std::function<void()> task, TimePoint due);

  /// Ends the commands of `owner` with Code::closed and runs its tasks. When it returns nothing of
  /// the owner runs any more; it must not submit or post meanwhile. Commands of others go on, some
  /// of them over a new connection. Waits for the I/O threads' current step.
  void release(const void* owner);

  /// The newest map; never null after start().
  [[nodiscard]] std::shared_ptr<const ClusterMap> map() const;

  [[nodiscard]] bool has_healthy_node() const;
  [[nodiscard]] NodePtr node_for(const ClusterMap& map, uint32_t partition, bool is_write,
                                 uint32_t attempt, const Node* last) const;
  /// Nodes that come after `is_over` has become true are left out.
  std::vector<NodeInfo> info_all(std::string_view command, milliseconds timeout,
                                 const std::function<bool()>& is_over) const;

  /// A failure hints at a changed cluster: tend now.
  void refresh_soon() { tender_->wake(); }

  /// Ends all threads; open commands are done with Code::closed before it returns. Bounded:
  /// nothing is waited for. Idempotent, thread-safe; not to be called from done().
  void close();

  [[nodiscard]] const ClientOptions& options() const { return options_; }
  [[nodiscard]] const ClientStats& stats() const { return stats_; }
  /// Never given twice in a process, and never 0.
  [[nodiscard]] uint64_t id() const { return id_; }

 private:
  explicit Engine(ClientOptions options);
  Status prepare_trust();
  void publish(const std::shared_ptr<const ClusterMap>& map);

  const uint64_t id_;
  ClientOptions options_;
  Secret credential_;
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
