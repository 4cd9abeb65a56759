// SPDX-License-Identifier: Apache-2.0
#pragma once

#include "store/partition_scan.h"
#include "store/record_commands.h"

namespace aerokv::store {

/// Reads one meta record and waits for it; not on an I/O thread.
class MetaWait final : private CommandOwner {
 public:
  explicit MetaWait(Context& context) : get(context, *this) {}
  void run(client::Client& client) {
    client.submit(&get);
    latch_.wait();
  }
  MetaGet get;

 private:
  void command_done() override { latch_.count_down(); }
  Latch latch_{1};
};

}  // namespace aerokv::store
