// SPDX-License-Identifier: Apache-2.0
// What happens to the cluster, and when: a pure function of a seed. schedule.py makes the same one;
// schedule_golden.txt holds both to it.
#pragma once

#include <chrono>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include "devserver/faults.h"

namespace aerokv::chaos {

/// One step. Steps of one episode are mixed with those of others; whatever prefix is taken, all
/// nodes can be brought back and all faults ended behind it.
struct Event {
  enum class Kind : uint8_t {
    stop,         ///< the node dies, and its data with it
    start,        ///< it comes back, empty; the spare node is added
    pause,        ///< it freezes
    resume,       ///< it goes on with what it had
    remove,       ///< the spare node hands its data over and goes
    fault,        ///< requests fail as `fault` says, from now on
    unfault,      ///< the fault of the same tag ends
    limit,        ///< the largest record that all nodes take becomes `value` bytes
    link,         ///< the node's link carries `value` bytes a second; 0 = no limit
    latency,      ///< every answer of the node leaves `value` microseconds later
    stop_writes,  ///< the node refuses writes (`value` 1), or takes them again (0)
    expire,       ///< all sessions end
    user,         ///< the user is dropped (`value` 0), or there again (1)
    rack,         ///< the node moves to rack `value`
    rotate,       ///< certificates and keys are replaced by new ones
  };
  int64_t at_ms = 0;
  Kind kind = Kind::stop;
  int node = 0;
  uint64_t tag = 0;  ///< fault, unfault
  uint64_t value = 0;
  devserver::Fault fault{};
};

inline constexpr uint64_t kRecordLimit = 256 << 10;       ///< of the namespace at the start
inline constexpr uint64_t kSmallRecordLimit = 128 << 10;  ///< for some time, on event `limit`
/// Faults that change bytes which only a hash of the payload can notice meet this set alone.
inline constexpr const char* kHashedSet = "hashed";

struct Recipe {
  uint64_t seed = 1;
  uint64_t seconds = 10;
  uint64_t nodes = 3;  ///< one more, with the next index, is spare

  [[nodiscard]] bool has_users() const { return seed % 3 == 1; }
  [[nodiscard]] bool has_tls() const { return seed % 4 == 2; }
  [[nodiscard]] bool has_racks() const { return seed % 5 == 0; }
  [[nodiscard]] int replication() const { return seed % 7 == 3 ? 1 : 2; }
};

/// In order of time.
std::vector<Event> make_schedule(const Recipe& recipe);

/// "1200 stop 2", "1300 fault 7 node=-1 action=close kinds=get,put ...": one line, no line feed.
std::string text_of(const Event& event);

}  // namespace aerokv::chaos
