// SPDX-License-Identifier: Apache-2.0
// A client that sends and receives bytes, and nothing else: tests of the server must not depend on
// the engine.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "aerokv/bytes.h"
#include "base/fd.h"
#include "devserver/devserver.h"
#include "wire/digest.h"
#include "wire/message.h"

namespace aerokv::devserver_test {

using ByteVector = std::vector<std::byte>;
using std::chrono::milliseconds;

/// A blocking connection.
class RawClient {
 public:
  /// Fails the running test if nobody listens.
  explicit RawClient(const devserver::Endpoint& endpoint);
  /// Not connected if nobody listens.
  static std::optional<RawClient> try_connect(const devserver::Endpoint& endpoint);

  void set_timeout(milliseconds timeout);
  void send(Bytes bytes);

  /// One frame, header included; nothing if the connection was closed or the time is over.
  std::optional<ByteVector> receive_frame();
  /// Exactly `count` bytes, or fewer if the connection was closed or the time is over.
  ByteVector receive(size_t count);
  /// True if the connection is closed (end of file or reset) before a byte comes.
  bool is_closed_by_server();

  std::optional<ByteVector> ask(Bytes request);
  /// The value of one info command.
  std::string info(const std::string& command);

 private:
  explicit RawClient(UniqueFd fd) : fd_(std::move(fd)) {}
  UniqueFd fd_;
};

/// One unit of an answer, taken apart.
struct Unit {
  wire::MessageHeader header;
  std::vector<std::pair<uint8_t, ByteVector>> fields;
  struct Op {
    uint8_t type = 0;
    uint8_t particle = 0;
    std::string name;
    ByteVector value;
  };
  std::vector<Op> ops;
  size_t begin = 0;  ///< in the answer
  size_t end = 0;

  [[nodiscard]] bool is_last() const { return (header.info3 & wire::info3::kLast) != 0; }
  [[nodiscard]] const Op* op(std::string_view name) const;
  [[nodiscard]] const ByteVector* field(wire::FieldType type) const;
};

/// All units of all frames; fails the running test if the bytes are no record answer.
std::vector<Unit> units_of(Bytes answer);

/// Requests, built field by field.
struct RequestParts {
  uint8_t info1 = 0;
  uint8_t info2 = 0;
  uint8_t info3 = 0;
  uint32_t generation = 0;
  uint32_t ttl = 0;
  uint32_t timeout_ms = 1000;
  std::string ns = "lmcache";
  std::string set = "kv_chunks";
  std::string key = "k";
  bool sends_key = false;
  std::vector<Unit::Op> ops;

  [[nodiscard]] wire::Digest digest() const { return wire::compute_digest(set, key); }
  [[nodiscard]] ByteVector build() const;
};

RequestParts put_of(const std::string& key, ByteVector value, const std::string& bin = "b");
RequestParts get_of(const std::string& key);
RequestParts exists_of(const std::string& key);
RequestParts remove_of(const std::string& key);
/// Header reads of `keys`, with indexes 0, 1, ...
ByteVector batch_exists_of(const std::vector<std::string>& keys, uint32_t timeout_ms = 1000,
                           uint8_t flags = 0x0D);
ByteVector info_request(const std::string& commands);

/// Bytes that depend on `seed`.
ByteVector pattern(size_t count, uint64_t seed);

/// The only unit of the answer to `request`; a unit with code 255 if there was none.
Unit ask_unit(RawClient& client, const RequestParts& request);
uint8_t ask_code(RawClient& client, const RequestParts& request);

}  // namespace aerokv::devserver_test
