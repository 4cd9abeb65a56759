// SPDX-License-Identifier: Apache-2.0
#include "store/row_batch.h"

#include <algorithm>
#include <map>

#include "client/faults.h"

namespace aerokv::store {
namespace {

constexpr uint8_t kBatchFlags = wire::BatchEncoder::kInlineMemory | wire::BatchEncoder::kAnswerAll |
                                wire::BatchEncoder::kReportFailing;

class NodeRows;

/// A row that may be asked again, and why.
struct FailedRow {
  uint32_t index = 0;
  client::FaultKind kind{};
};

/// All rows of one batch and their way through one or more messages each. The rows of a message
/// that failed go on at once: they do not wait for what other nodes have to say.
class Run : public std::enable_shared_from_this<Run> {
 public:
  Run(client::Client& client, const RowBatch::Template& form, std::vector<RowBatch::Row> rows,
      TimePoint deadline, RowBatch::Done done)
      : client_(client),
        form_(form),
        rows_(std::move(rows)),
        results_(rows_.size()),
        in_doubt_(rows_.size(), 0),
        deadline_(deadline),
        done_(std::move(done)),
        read_op_(wire::BinOp::read(form.bin)),
        touch_op_(wire::BinOp::touch()) {}

  void start() {
    std::vector<uint32_t> all(rows_.size());
    for (uint32_t i = 0; i < all.size(); ++i) all[i] = i;
    send({all, 0, false});
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

  /// A write of the row may have been applied.
  void note_doubt(uint32_t index) { in_doubt_[index] = 1; }

  /// One message ended; `failed` rows may be asked again.
  void message_done(const std::vector<FailedRow>& failed, uint32_t attempt) {
    schedule(failed, attempt);
    release();
  }

 private:
  /// Rows that are sent together.
  struct Wave {
    std::vector<uint32_t> indices;
    uint32_t attempt = 0;
    bool is_budgeted = false;
  };

  /// Sends what may go on, by the rules of its faults: some at once, some after a pause.
  void schedule(const std::vector<FailedRow>& failed, uint32_t attempt) {
    if (failed.empty()) return;
    const TimePoint now = SteadyClock::now();
    const std::shared_ptr<const client::ClusterMap> map = client_.map();
    const bool awaits_map = note_failure(now) && client_.has_healthy_node();
    const auto attempts_max = static_cast<uint32_t>(client_.options().read_attempts_max);
    std::map<std::pair<TimePoint, bool>, Wave> waves;
    const Duration pause = next_pause(attempt + 1);
    bool wakes_tend = false;
    for (const FailedRow& row : failed) {
      const client::FaultRule& rule = client::rule_of(row.kind);
      const client::Next next = is_write() ? rule.write : rule.read;
      RowResult& result = results_[row.index];
      wakes_tend |= rule.wakes_tend;
      if (next == client::Next::give_up) continue;
      const bool waits_for_map = attempt + 1 >= attempts_max && !is_write();
      if (waits_for_map && !(awaits_map && result.status.code() == Code::unavailable)) continue;
      const client::NodePtr target = next_node(*map, row.index, attempt + 1);
      const bool is_other = target && target != result.node && !target->is_suspect();
      const bool is_at_once = next == client::Next::elsewhere && is_other && !waits_for_map;
      const Duration wait = waits_for_map ? Duration(client::kMapPause)
                            : is_at_once  ? Duration::zero()
                                          : pause;
      if (now + wait >= deadline_) continue;
      const bool is_shift = is_other && result.node && result.node->is_suspect();
      Wave& wave = waves[{now + wait, rule.is_budgeted && !is_shift}];
      wave.indices.push_back(row.index);
    }
    if (wakes_tend) client_.refresh_soon();
    {
      const std::scoped_lock lock(mutex_);
      left_ += waves.size();
    }
    for (auto& [key, wave] : waves) {
      wave.attempt = attempt + 1;
      wave.is_budgeted = key.second;
      if (key.first <= now) {
        send(wave);
      } else {
        client_.post([self = shared_from_this(), later = std::move(wave)] { self->send(later); },
                     key.first);
      }
    }
  }

  /// True while the owners of rows that cannot be reached may be replaced by a new map.
  bool note_failure(TimePoint now) {
    const std::scoped_lock lock(mutex_);
    if (first_failure_ == TimePoint{}) first_failure_ = now;
    return now - first_failure_ < client_.options().map_patience();
  }

  Duration next_pause(uint32_t attempt) {
    const std::scoped_lock lock(mutex_);
    return client::back_off(attempt, random_state_);
  }

  [[nodiscard]] client::NodePtr next_node(const client::ClusterMap& map, uint32_t index,
                                          uint32_t attempt) const {
    return client_.node_for(map, wire::partition_of(rows_[index].digest), is_write(), attempt,
                            results_[index].node.get());
  }

  void send(const Wave& wave);
  [[nodiscard]] std::vector<client::Command*> commands_for(const Wave& wave);

  /// One message or wave less; the last one ends the batch.
  void release() {
    {
      const std::scoped_lock lock(mutex_);
      if (--left_ > 0) return;
    }
    for (size_t i = 0; i < results_.size(); ++i) {
      if (in_doubt_[i] != 0 && !results_[i].status.ok()) results_[i].status.set_in_doubt(true);
    }
    done_(std::move(results_));
  }

  client::Client& client_;
  const RowBatch::Template form_;
  const std::vector<RowBatch::Row> rows_;
  // Each row is written by one message at a time.
  std::vector<RowResult> results_;
  std::vector<uint8_t> in_doubt_;
  const TimePoint deadline_;
  const RowBatch::Done done_;
  const wire::BinOp read_op_;
  const wire::BinOp touch_op_;

  std::mutex mutex_;
  size_t left_ = 1;            // guarded by mutex_: messages and waves that are not done
  TimePoint first_failure_{};  // guarded by mutex_
  // guarded by mutex_; any start will do that others do not share
  uint64_t random_state_ = reinterpret_cast<uintptr_t>(this) | 1U;
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
    plan.earlier_attempts = attempt;
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
    std::vector<FailedRow> failed;
    const bool is_final = status.code() == Code::closed || status.code() == Code::invalid;
    size_t strangers = 0;  // rows that say that the node is no member of the cluster
    for (size_t i = 0; i < indices_.size(); ++i) {
      RowResult& result = run_->result(indices_[i]);
      if (!answered_[i]) {
        result = {};
        result.status =
            status.ok() ? Status(Code::protocol, "batch answer: a row is missing") : status;
        result.node = plan.node;
        if (plan.is_write) run_->note_doubt(indices_[i]);
        if (!is_final) failed.push_back({indices_[i], kind_of(status)});
      } else if (!client::is_final(result.code)) {
        const client::FaultKind kind = client::fault_of_code(result.code);
        result.status = wire::status_from_result(result.code, "batch row");
        strangers += kind == client::FaultKind::not_a_member ? 1 : 0;
        if (plan.is_write && client::rule_of(kind).doubt == client::Doubt::if_sent) {
          run_->note_doubt(indices_[i]);
        }
        if (!is_final) failed.push_back({indices_[i], kind});
      }
    }
    if (strangers == indices_.size()) {
      plan.node->note_failure(SteadyClock::now(), client::Blame::in_a_row,
                              run_->result(indices_[0]).status);
    }
    const std::shared_ptr<Run> run = std::move(run_);
    const uint32_t attempt = attempt_number_;
    delete this;
    run->message_done(failed, attempt);
  }

 private:
  /// Of rows without an answer. The I/O thread has told the node's breaker what the fault was.
  static client::FaultKind kind_of(const Status& status) {
    if (status.code() == Code::timeout) return client::FaultKind::silence;
    if (status.code() == Code::overloaded) return client::FaultKind::overload;
    return status.code() == Code::unavailable ? client::FaultKind::reset
                                              : client::FaultKind::garbage;
  }

  std::shared_ptr<Run> run_;
  const std::vector<uint32_t> indices_;
  std::vector<bool> answered_;
  const uint32_t attempt_number_;
  RowResult* current_ = nullptr;
  uint8_t final_code_ = 0;
};

std::vector<client::Command*> Run::commands_for(const Wave& wave) {
  std::map<client::NodePtr, std::vector<uint32_t>> by_node;
  const std::shared_ptr<const client::ClusterMap> map = client_.map();
  for (const uint32_t index : wave.indices) {
    by_node[next_node(*map, index, wave.attempt)].push_back(index);
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
      const uint32_t partition = wire::partition_of(rows_[*begin].digest);
      const client::NodePtr other =
          client_.node_for(*map, partition, false, wave.attempt + 1, node.get());
      auto* command = new NodeRows(self, node, std::vector<uint32_t>(begin, end), wave.attempt);
      command->plan.has_alternative = !is_write() && other && other != node && !other->is_suspect();
      command->plan.is_budgeted = wave.is_budgeted;
      commands.push_back(command);
    }
  }
  return commands;
}

void Run::send(const Wave& wave) {
  const std::vector<client::Command*> commands = commands_for(wave);
  {
    const std::scoped_lock lock(mutex_);
    left_ += commands.size();
  }
  if (!commands.empty()) client_.submit(commands);
  release();
}

}  // namespace

void RowBatch::start(client::Client& client, const Template& form, std::vector<Row> rows,
                     TimePoint deadline, Done done) {
  std::make_shared<Run>(client, form, std::move(rows), deadline, std::move(done))->start();
}

}  // namespace aerokv::store
