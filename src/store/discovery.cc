// SPDX-License-Identifier: Apache-2.0
#include "store/discovery.h"

#include <algorithm>

#include "base/log.h"
#include "wire/info.h"
#include "wire/request.h"

namespace aerokv::store {
namespace {

constexpr std::chrono::seconds kRefreshInterval{1};

std::string command_for(const StoreOptions& options) {
  return "namespace/" + options.ns;
}

std::optional<uint64_t> nonzero(uint64_t value) {
  return value == 0 ? std::nullopt : std::optional<uint64_t>(value);
}

Result<std::shared_ptr<const NamespaceLimits>> resolve(const StoreOptions& options,
                                                       const std::vector<NamespaceFacts>& facts) {
  const LimitOverrides overrides{nonzero(options.target_segment_bytes),
                                 nonzero(options.max_segment_bytes), options.min_segment_bytes,
                                 nonzero(options.single_record_threshold_bytes)};
  Result<ResolvedLimits> resolved = resolve_limits(overrides, facts);
  if (!resolved) return resolved.error();
  for (const std::string& warning : resolved->warnings) log(LogLevel::warning, warning, warning);
  log(LogLevel::info, "limits",
      "namespace " + options.ns + ": record limit " + std::to_string(resolved->record_bytes_max) +
          " bytes (" + std::string(resolved->record_bytes_source) + ", smallest of " +
          std::to_string(facts.size()) + " nodes), segments up to " +
          std::to_string(resolved->segments.target_bytes) + " bytes");
  auto limits = std::make_shared<NamespaceLimits>();
  static_cast<ResolvedLimits&>(*limits) = *std::move(resolved);
  for (const NamespaceFacts& node : facts) {
    limits->default_ttl_seconds = std::max(limits->default_ttl_seconds, node.default_ttl_s);
    limits->stop_writes |= node.stop_writes;
  }
  return std::shared_ptr<const NamespaceLimits>(std::move(limits));
}

class Refresh;

/// Asks one node over a data connection.
class NamespaceQuestion final : public client::Command {
 public:
  NamespaceQuestion(std::shared_ptr<Refresh> refresh, client::NodePtr node, TimePoint deadline)
      : refresh_(std::move(refresh)) {
    plan.node = std::move(node);
    plan.kind = wire::ReplyKind::info;
    plan.deadline = deadline;
  }

  Status encode(uint32_t timeout_ms, Encoded& request) override;
  [[nodiscard]] uint8_t result_code() const override { return wire::result::kOk; }
  Status unit(const wire::MessageHeader&) override {
    return {Code::protocol, "namespace question: unexpected record message"};
  }
  Status body(Bytes body) override {
    text_.assign(as_text(body));
    return {};
  }
  void done(Status status) override;

 private:
  const std::shared_ptr<Refresh> refresh_;
  std::string text_;
};

/// One run through all nodes.
class Refresh {
 public:
  /// Called with what the nodes said, none if nobody answered.
  using Done = std::function<void(const std::vector<NamespaceFacts>&)>;

  Refresh(std::shared_ptr<Context> context, Done done)
      : context_(std::move(context)), done_(std::move(done)) {}

  static void start(const std::shared_ptr<Refresh>& self) {
    const std::shared_ptr<const client::ClusterMap> map = self->context_->client->map();
    const TimePoint deadline = SteadyClock::now() + self->context_->options.connect_timeout;
    if (map->nodes.empty()) return self->done_({});
    self->left_ = map->nodes.size();
    std::vector<client::Command*> commands;
    for (const client::NodePtr& node : map->nodes) {
      commands.push_back(new NamespaceQuestion(self, node, deadline));
    }
    self->context_->client->submit(commands);
  }

  [[nodiscard]] const StoreOptions& options() const { return context_->options; }

  void answered(const Status& status, const std::string& text) {
    std::unique_lock lock(mutex_);
    if (status.ok()) {
      const std::string command = command_for(options());
      const auto items = wire::parse_info(text);
      Result<std::string_view> value = wire::find_info(items, command);
      if (value) {
        Result<NamespaceFacts> facts = parse_namespace_facts(options().ns, *value);
        if (facts) facts_.push_back(*std::move(facts));
      }
    }
    if (--left_ > 0) return;
    lock.unlock();
    done_(facts_);
  }

 private:
  const std::shared_ptr<Context> context_;
  const Done done_;
  std::mutex mutex_;
  size_t left_ = 0;                    // guarded by mutex_ once commands run
  std::vector<NamespaceFacts> facts_;  // guarded by mutex_
};

Status NamespaceQuestion::encode(uint32_t, Encoded& request) {
  const std::string command = command_for(refresh_->options());
  const std::string_view list[] = {command};
  return wire::encode_info(list, request.head);
}

void NamespaceQuestion::done(Status status) {
  const std::shared_ptr<Refresh> refresh = refresh_;
  const std::string text = std::move(text_);
  delete this;
  refresh->answered(status, text);
}

}  // namespace

Result<std::shared_ptr<const NamespaceLimits>> discover_limits(const client::Client& client,
                                                               const StoreOptions& options) {
  // One lost answer must not fail a start: if nobody has answered, all are asked once more.
  std::vector<client::NodeInfo> answers =
      client.info_all(command_for(options), options.connect_timeout);
  const bool any_answered = std::any_of(answers.begin(), answers.end(),
                                        [](const auto& info) { return info.status.ok(); });
  if (!any_answered) answers = client.info_all(command_for(options), options.connect_timeout);

  std::vector<NamespaceFacts> facts;
  Status failure(Code::unavailable, "namespace " + options.ns + ": no node answered");
  for (const client::NodeInfo& info : answers) {
    if (!info.status.ok()) {
      failure = info.status;
      continue;
    }
    Result<NamespaceFacts> parsed = parse_namespace_facts(options.ns, info.value);
    if (!parsed) return parsed.error().with_context("node " + info.node);
    Result<std::string> warning = check_ttl(options.default_ttl_seconds, *parsed);
    if (!warning) return warning.error().with_context("node " + info.node);
    if (!warning->empty()) log(LogLevel::warning, "limits:ttl", *warning);
    facts.push_back(*std::move(parsed));
  }
  if (facts.empty()) return failure;
  return resolve(options, facts);
}

void refresh_limits(const std::shared_ptr<Context>& context) {
  if (!context->begin_limits_refresh(kRefreshInterval)) return;
  Refresh::start(std::make_shared<Refresh>(
      context, [weak = std::weak_ptr(context)](const std::vector<NamespaceFacts>& facts) {
        const std::shared_ptr<Context> alive = weak.lock();
        if (alive == nullptr || facts.empty()) return;
        Result<std::shared_ptr<const NamespaceLimits>> limits = resolve(alive->options, facts);
        if (limits) alive->set_limits(*std::move(limits));
      }));
}

void ask_stop_writes(const std::shared_ptr<Context>& context,
                     std::function<void(std::optional<bool>)> done) {
  Refresh::start(std::make_shared<Refresh>(
      context, [done = std::move(done)](const std::vector<NamespaceFacts>& facts) {
        if (facts.empty()) return done({});
        done(std::any_of(facts.begin(), facts.end(),
                         [](const NamespaceFacts& node) { return node.stop_writes; }));
      }));
}

}  // namespace aerokv::store
