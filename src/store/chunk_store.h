// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "aerokv/store.h"
#include "store/context.h"

namespace aerokv::store {

/// What the cluster client needs of the options. Errors: invalid.
Result<client::ClientOptions> client_options(const StoreOptions& options);

/// Errors: invalid.
Status check_info_command(const std::string& command);

/// The Store over the cluster client. The contract is that of aerokv::Store.
class ChunkStore final : public Store {
 public:
  static Result<std::unique_ptr<ChunkStore>> open(StoreOptions options);
  ~ChunkStore() override;

  using Store::submit;
  void submit(Operation operation, std::vector<Item> items, BatchDone done,
              std::optional<TimePoint> end) override;
  [[nodiscard]] TimePoint deadline(Operation operation,
                                   const std::vector<Item>& items) const override;
  void report_damaged(const std::string& key) override;
  Result<std::vector<ObjectInfo>> list(uint32_t& cursor, size_t count) override;
  Result<ObjectDetails> inspect(const std::string& key) override;
  Result<std::vector<NodeAnswer>> info(const std::string& command) override;
  [[nodiscard]] StoreStats stats() const override;
  [[nodiscard]] StoreLimits limits() const override;
  [[nodiscard]] const StoreOptions& options() const override { return context_->options; }
  void close() override;

  [[nodiscard]] const std::shared_ptr<Context>& context() const { return context_; }

 private:
  explicit ChunkStore(std::shared_ptr<Context> context) : context_(std::move(context)) {}

  static void start(const std::shared_ptr<Batch>& batch, Operation operation, size_t from,
                    size_t to);
  static Status check_item(const Item& item);
  static BatchDone set_refused_aside(std::vector<Item>& items, BatchDone done);
  BatchDone refresh_after(const std::vector<Item>& items, BatchDone done);

  const std::shared_ptr<Context> context_;
};

}  // namespace aerokv::store
