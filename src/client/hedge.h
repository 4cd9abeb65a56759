// SPDX-License-Identifier: Apache-2.0
// Hedged reads: a request that is answered later than most is sent to a second replica as well. The
// first good answer wins; the other is read to its end by its connection and thrown away, without
// the command or its buffers being touched again. Both legs belong to one I/O thread.
#pragma once

#include "client/command.h"
#include "client/faults.h"

namespace aerokv::client {

/// Until the first header has come, one of the two legs of a command. Owned by its connection.
class HedgeLeg final : public wire::ReplySink {
 public:
  /// Decides between the legs of a command.
  class Referee {
   public:
    virtual ~Referee() = default;
    /// An answer with `code` has begun on `connection`. True if it is the one that counts: then the
    /// other leg is gone. Else this one is no leg any more.
    virtual bool may_answer(Connection& connection, Command& command, uint8_t code) = 0;
  };

  HedgeLeg(Referee& referee, Connection& connection, Command& command)
      : referee_(referee), connection_(connection), command_(command) {}

  Status unit(const wire::MessageHeader& header) override;
  Status field(const wire::Field& field) override;
  wire::ValueTarget value_target(std::string_view bin, uint8_t particle, uint64_t bytes) override;
  Status value(std::string_view bin, uint8_t particle, Bytes value) override;
  Status unit_end() override;

 private:
  Referee& referee_;
  Connection& connection_;
  Command& command_;
  bool answers_ = false;
};

/// Extra requests: one in twenty, and a few at once after a quiet time.
inline constexpr RetryBudget::Limits kHedgeLimits{0.05, 2, 10};
/// Answers that are later than this by less are not worth a second request.
inline constexpr std::chrono::microseconds kHedgeAfterMin{1000};
/// While too few answers have come to know what is late.
inline constexpr milliseconds kHedgeAfterFirst{20};

}  // namespace aerokv::client
