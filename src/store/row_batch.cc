// SPDX-License-Identifier: Apache-2.0
#include "store/row_batch.h"

#include <algorithm>
#include <map>

namespace aerokv::store {
namespace {

constexpr uint32_t kAttemptsMax = 3;  // that follow each other at once
constexpr milliseconds kMapPause{25};
constexpr uint8_t kBatchFlags = wire::BatchEncoder::kInlineMemory | wire::BatchEncoder::kAnswerAll |
                                wire::BatchEncoder::kReportFailing;

class NodeRows;

/// All rows of one batch and their way through several waves of messages.
class Run : public std::enable_shared_from_this<Run> {
 public:
  Run(client::Client& client, const RowBatch::Template& form, std::vector<RowBatch::Row> rows,
      TimePoint deadline, RowBatch::Done done)
      : client_(client),
        form_(form),
        rows_(std::move(rows)),
        results_(rows_.size()),
        deadline_(deadline),
        done_(std::move(done)),
        read_op_(wire::BinOp::read(form.bin)),
        touch_op_(wire::BinOp::touch()) {}

  void start() {
    std::vector<uint32_t> all(rows_.size());
    for (uint32_t i = 0; i < all.size(); ++i) all[i] = i;
    if (all.empty()) return finish();
    send(all, 0);
  }

  [[nodiscard]] bool is_write() const {
    return form_.kind == RowBatch::Template::Kind::remove ||
           form_.kind == RowBatch::Template::Kind::touch;
  }

  [[nodiscard]] wire::RecordRequest request(uint32_t index) const {
    const wire::RecordRef record{form_.ns, form_.set, rows_[index].digest};
    switch (form_.kind) {
      case RowBatch::Template::Kind::exists:
        return wire::RecordRequest::exists(record, 0);
      case RowBatch::Template::Kind::read_integer:
        return wire::RecordRequest::get(record, {&read_op_, 1}, 0);
      case RowBatch::Template::Kind::remove: {
        wire::RecordRequest removal = wire::RecordRequest::remove(record, 0);
        if (rows_[index].generation != 0) {
          removal.check_generation(wire::GenerationCheck::equal, rows_[index].generation);
        }
        return removal;
      }
      case RowBatch::Template::Kind::touch:
        return wire::RecordRequest::touch(record, rows_[index].ttl, touch_op_, 0);
    }
    return {};
  }

  RowResult& result(uint32_t index) { return results_[index]; }
  [[nodiscard]] TimePoint deadline() const { return deadline_; }

  /// One message ended; `failed` rows may be asked again.
  void message_done(std::vector<uint32_t> failed, uint32_t attempt) {
    std::vector<uint32_t> again;
    {
      const std::scoped_lock lock(mutex_);
      failed_.insert(failed_.end(), failed.begin(), failed.end());
      if (--messages_left_ > 0) return;
      again.swap(failed_);
    }
    if (again.empty() || SteadyClock::now() >= deadline_) return finish();
    if (attempt + 1 < kAttemptsMax) {
      client_.refresh_soon();
      return send(again, attempt + 1);
    }
    if (!awaits_map(again)) return finish();
    client_.refresh_soon();
    client_.post([self = shared_from_this(), again, attempt] { self->send(again, attempt + 1); },
                 SteadyClock::now() + kMapPause);
  }

 private:
  /// True while the owners of some rows cannot be reached, but the cluster lives and will soon name
  /// others.
  bool awaits_map(const std::vector<uint32_t>& failed) {
    const TimePoint now = SteadyClock::now();
    if (first_failure_ == TimePoint{}) first_failure_ = now;
    const client::ClientOptions& options = client_.options();
    return now - first_failure_ < options.read_attempts_max * options.read_attempt_timeout &&
           std::any_of(
               failed.begin(), failed.end(),
               [this](uint32_t index) {
                 return results_[index].status.code() == Code::unavailable;
               }) &&
           client_.has_healthy_node();
  }

  void send(const std::vector<uint32_t>& indices, uint32_t attempt);
  void finish() { done_(std::move(results_)); }

  client::Client& client_;
  const RowBatch::Template form_;
  const std::vector<RowBatch::Row> rows_;
  std::vector<RowResult> results_;  // each row is written by one message at a time
  const TimePoint deadline_;
  const RowBatch::Done done_;
  const wire::BinOp read_op_;
  const wire::BinOp touch_op_;

  TimePoint first_failure_{};  // touched between two waves only
  std::mutex mutex_;
  size_t messages_left_ = 0;      // guarded by mutex_
  std::vector<uint32_t> failed_;  // guarded by mutex_
};

/// One batch message to one node.
class NodeRows final : public client::Command {
 public:
  NodeRows(std::shared_ptr<Run> run, client::NodePtr node, std::vector<uint32_t> indices,
           uint32_t attempt)
      : run_(std::move(run)),
        indices_(std::move(indices)),
        answered_(indices_.size(), false),
        attempt_number_(attempt) {
    plan.node = std::move(node);
    plan.kind = wire::ReplyKind::batch;
    plan.is_write = run_->is_write();
    plan.deadline = run_->deadline();
    plan.alone = attempt > 0;
  }

  Status encode(uint32_t timeout_ms, Encoded& request) override {
    final_code_ = wire::result::kOk;
    answered_.assign(indices_.size(), false);
    request.head.reserve(128 + indices_.size() * 25);
    wire::BatchEncoder encoder(kBatchFlags, timeout_ms, request.head);
    // The index on the wire is the position in this message, which makes a wrong one detectable.
    for (uint32_t i = 0; i < indices_.size(); ++i) {
      AEROKV_TRY(encoder.add(i, run_->request(indices_[i])));
    }
    return encoder.finish();
  }

  [[nodiscard]] uint8_t result_code() const override { return final_code_; }

  Status unit(const wire::MessageHeader& header) override {
    current_ = nullptr;
    if ((header.info3 & wire::info3::kLast) != 0) {
      final_code_ = header.result_code;
      return {};
    }
    const uint32_t position = header.transaction_ttl;
    if (position >= indices_.size() || answered_[position]) {
      return {Code::protocol, "batch answer: row index " + std::to_string(position) + " of " +
                                  std::to_string(indices_.size()) + " is unknown or came twice"};
    }
    answered_[position] = true;
    current_ = &run_->result(indices_[position]);
    *current_ = {};
    current_->code = header.result_code;
    current_->generation = header.generation;
    current_->void_time = header.record_ttl;
    current_->node = plan.node;
    return {};
  }

  wire::ValueTarget value_target(std::string_view, uint8_t particle, uint64_t bytes) override {
    const bool is_integer = particle == static_cast<uint8_t>(wire::Particle::integer) && bytes == 8;
    return is_integer ? wire::ValueTarget::copy() : wire::ValueTarget::skip();
  }

  Status value(std::string_view, uint8_t, Bytes value) override {
    if (current_ != nullptr) {
      current_->integer = static_cast<int64_t>(load_be<uint64_t>(value.data()));
    }
    return {};
  }

  void done(Status status) override {
    if (status.ok() && final_code_ != wire::result::kOk) {
      status = wire::status_from_result(final_code_, "batch");
    }
    std::vector<uint32_t> failed;
    for (size_t i = 0; i < indices_.size(); ++i) {
      RowResult& result = run_->result(indices_[i]);
      if (!answered_[i]) {
        result = {};
        result.status =
            status.ok() ? Status(Code::protocol, "batch answer: a row is missing") : status;
        result.status.set_in_doubt(plan.is_write);
        result.node = plan.node;
        failed.push_back(indices_[i]);
      } else if (wire::result_retry(result.code) != wire::Retry::never) {
        result.status = wire::status_from_result(result.code, "batch row");
        failed.push_back(indices_[i]);
      }
    }
    const std::shared_ptr<Run> run = std::move(run_);
    const uint32_t attempt = attempt_number_;
    const bool is_final = status.code() == Code::closed || status.code() == Code::invalid;
    delete this;
    run->message_done(is_final ? std::vector<uint32_t>() : std::move(failed), attempt);
  }

 private:
  std::shared_ptr<Run> run_;
  const std::vector<uint32_t> indices_;
  std::vector<bool> answered_;
  const uint32_t attempt_number_;
  RowResult* current_ = nullptr;
  uint8_t final_code_ = 0;
};

void Run::send(const std::vector<uint32_t>& indices, uint32_t attempt) {
  std::map<client::NodePtr, std::vector<uint32_t>> by_node;
  const std::shared_ptr<const client::ClusterMap> map = client_.map();
  for (const uint32_t index : indices) {
    const uint32_t partition = wire::partition_of(rows_[index].digest);
    by_node[client_.node_for(*map, partition, is_write(), attempt, results_[index].node.get())]
        .push_back(index);
  }
  std::vector<client::Command*> commands;
  const std::shared_ptr<Run> self = shared_from_this();
  for (auto& [node, rows] : by_node) {
    if (!node) {
      for (const uint32_t index : rows) {
        results_[index].status = {Code::unavailable, "no node of the cluster is known"};
      }
      continue;
    }
    // Two halves of a large group are answered by two threads at once, here and in the server.
    const size_t threads = static_cast<size_t>(client_.options().io_threads);
    const size_t share = rows.size() < 256 ? rows.size() : (rows.size() + threads - 1) / threads;
    const size_t step = std::min<size_t>(share, kBatchRowsMax);
    for (size_t from = 0; from < rows.size(); from += step) {
      const auto begin = rows.begin() + static_cast<std::ptrdiff_t>(from);
      const auto end =
          rows.begin() + static_cast<std::ptrdiff_t>(std::min(from + step, rows.size()));
      commands.push_back(new NodeRows(self, node, std::vector<uint32_t>(begin, end), attempt));
    }
  }
  if (commands.empty()) return finish();
  {
    const std::scoped_lock lock(mutex_);
    messages_left_ = commands.size();
  }
  client_.submit(commands);
}

}  // namespace

void RowBatch::start(client::Client& client, const Template& form, std::vector<Row> rows,
                     TimePoint deadline, Done done) {
  std::make_shared<Run>(client, form, std::move(rows), deadline, std::move(done))->start();
}

}  // namespace aerokv::store
