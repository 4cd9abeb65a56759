// SPDX-License-Identifier: Apache-2.0
#include "tests/fault/raw_records.h"

#include <future>

#include "store/keys.h"
#include "store/meta_record.h"
#include "wire/info.h"

namespace aerokv::testing {
namespace {

class RawPut final : public client::Command {
 public:
  explicit RawPut(std::vector<std::byte> frame) : frame_(std::move(frame)) {}

  Status encode(uint32_t, Encoded& request) override {
    request.head = frame_;
    return {};
  }
  [[nodiscard]] uint8_t result_code() const override { return code_; }
  Status unit(const wire::MessageHeader& header) override {
    code_ = header.result_code;
    return {};
  }
  void done(Status status) override {
    end_.set_value(status.ok() ? wire::status_from_result(code_, "raw put") : std::move(status));
  }
  std::future<Status> end() { return end_.get_future(); }

 private:
  const std::vector<std::byte> frame_;
  uint8_t code_ = 0;
  std::promise<Status> end_;
};

}  // namespace

RawRecords::RawRecords(const StoreOptions& options) : ns_(options.ns), set_(options.set_name) {
  client::ClientOptions raw;
  raw.seeds = *wire::parse_endpoints(options.hosts, 3000);
  raw.ns = ns_;
  raw.io_threads = 1;
  Result<std::unique_ptr<client::Client>> client = client::Client::connect(raw);
  if (!client) {
    ADD_FAILURE() << client.error().message();
    std::abort();
  }
  client_ = *std::move(client);
}

void RawRecords::put(const std::string& user_key, const std::vector<wire::BinOp>& ops) {
  const wire::Digest digest = wire::compute_digest(set_, user_key);
  const wire::RecordRequest request =
      wire::RecordRequest::put({ns_, set_, digest}, wire::Exists::create_or_replace, 0, ops, 1000);
  std::vector<std::byte> frame;
  const Status encoded = wire::encode_record_request(request, wire::Payload::inside, frame);
  ASSERT_TRUE(encoded.ok()) << encoded.message();
  RawPut put(std::move(frame));
  put.plan.partition = wire::partition_of(digest);
  put.plan.is_write = true;
  put.plan.deadline = SteadyClock::now() + std::chrono::seconds(20);
  std::future<Status> end = put.end();
  client_->submit(&put);
  const Status status = end.get();
  ASSERT_TRUE(status.ok()) << status.message();
}

void RawRecords::put_object_without_sums(const std::string& key, const Buffer& payload,
                                         size_t segment_bytes) {
  namespace bin = store::bin;
  using wire::BinOp;
  const size_t count = (payload.size() + segment_bytes - 1) / segment_bytes;
  for (size_t i = 0; i < count; ++i) {
    const size_t offset = i * segment_bytes;
    const Bytes slice =
        Bytes(payload).subspan(offset, std::min(segment_bytes, payload.size() - offset));
    put(store::segment_user_key(key, static_cast<uint32_t>(i)),
        {BinOp::write_blob(bin::kPayload, slice)});
  }
  put(store::meta_user_key(key),
      {BinOp::write_integer(bin::kVersion, 1), BinOp::write_text(bin::kState, "ready"),
       BinOp::write_integer(bin::kSegmentCount, static_cast<int64_t>(count)),
       BinOp::write_integer(bin::kSegmentBytes, static_cast<int64_t>(segment_bytes)),
       BinOp::write_integer(bin::kTotalBytes, static_cast<int64_t>(payload.size())),
       BinOp::write_integer(bin::kCreatedAt, 1700000000), BinOp::write_boolean(bin::kPin, false)});
}

}  // namespace aerokv::testing
