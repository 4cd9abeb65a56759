// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <atomic>
#include <memory>
#include <mutex>
#include <shared_mutex>
#include <span>
#include <string_view>
#include <vector>

#include "client/engine.h"

namespace aerokv::client {

/// A user's access to a cluster for one namespace. Clients of this process with equal options share
/// one Engine: its threads, connections, map and counters. Thread-safe.
class Client {
 public:
  /// Joins the engine for these options, or starts it. Errors: as Engine::start().
  static Result<std::unique_ptr<Client>> connect(const ClientOptions& options);

  /// Calls close().
  ~Client();

  /// Starts commands. Never blocks. Every command is done() exactly once; after close() at once,
  /// with Code::closed.
  void submit(std::span<Command* const> commands);
  void submit(Command* command) { submit({&command, 1}); }

  /// Runs `task` on an I/O thread (at once on this one after close()). Tasks posted one after the
  /// other go to different threads. `task` must not block.
  void post(std::function<void()> task, TimePoint due = {});

  /// True if some node is not a suspect: then the map will tell what became of the others.
  [[nodiscard]] bool has_healthy_node() const { return engine_->has_healthy_node(); }

  /// The newest map; never null.
  [[nodiscard]] std::shared_ptr<const ClusterMap> map() const { return engine_->map(); }

  /// The node that a batch row or query of `partition` should go to; null if none is known.
  [[nodiscard]] NodePtr node_for(const ClusterMap& map, uint32_t partition, bool is_write,
                                 uint32_t attempt, const Node* last = nullptr) const {
    return engine_->node_for(map, partition, is_write, attempt, last);
  }

  /// Asks every active node one info command over fresh connections and waits for the answers.
  /// After close() no further node is asked.
  std::vector<NodeInfo> info_all(std::string_view command, milliseconds timeout) const {
    return engine_->info_all(command, timeout, [this] { return is_closed(); });
  }

  /// A failure hints at a changed cluster: tend now.
  void refresh_soon() { engine_->refresh_soon(); }

  /// Ends the open commands of this client with Code::closed before it returns, and the engine if
  /// nobody else uses it. Bounded: nothing is waited for. Idempotent, thread-safe; not to be called
  /// from done().
  void close();

  [[nodiscard]] bool is_closed() const {
    const std::shared_lock lock(gate_);
    return closed_;
  }

  [[nodiscard]] const ClientOptions& options() const { return engine_->options(); }
  /// Of the engine, whoever uses it.
  [[nodiscard]] const ClientStats& stats() const { return engine_->stats(); }
  [[nodiscard]] uint64_t engine_id() const { return engine_->id(); }

 private:
  struct Shared;
  class Registry;

  explicit Client(std::shared_ptr<Shared> shared);

  const std::shared_ptr<Shared> shared_;
  Engine* const engine_;
  // Held shared while commands or tasks are handed over: after close() none is on its way.
  mutable std::shared_mutex gate_;
  bool closed_ = false;  // guarded by gate_
  std::mutex close_mutex_;
  bool left_ = false;  // guarded by close_mutex_
};

}  // namespace aerokv::client
