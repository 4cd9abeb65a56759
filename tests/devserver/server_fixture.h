// SPDX-License-Identifier: Apache-2.0
#pragma once

#include <gtest/gtest.h>

#include <functional>
#include <memory>
#include <thread>

#include "base/clock.h"
#include "raw_client.h"

namespace aerokv::devserver_test {

/// Timing of a cluster that notices and repairs within some ten milliseconds.
inline devserver::ClusterTiming quick_timing() {
  devserver::ClusterTiming timing;
  timing.detection = milliseconds(60);
  timing.join = milliseconds(60);
  timing.resume = milliseconds(60);
  timing.map_change = milliseconds(4);
  timing.migration = std::chrono::microseconds(0);
  return timing;
}

/// A server for one test.
class ServerTest : public testing::Test {
 protected:
  void start(devserver::Options options = {}) {
    auto started = devserver::DevServer::start(std::move(options));
    ASSERT_TRUE(started) << started.error().message();
    server_ = std::move(started).value();
  }

  void start_cluster(int nodes, int replication = 2) {
    devserver::Options options;
    options.nodes = nodes;
    options.replication = replication;
    options.timing = quick_timing();
    start(std::move(options));
  }

  RawClient connect(int node = 0) {
    return RawClient(server_->endpoints()[static_cast<size_t>(node)]);
  }

  /// Polls until `condition` holds; fails the test after ten seconds.
  static void await(const std::function<bool()>& condition, const std::string& what) {
    const TimePoint deadline = SteadyClock::now() + std::chrono::seconds(10);
    while (!condition()) {
      ASSERT_LT(SteadyClock::now(), deadline) << what;
      std::this_thread::sleep_for(milliseconds(2));
    }
  }

  std::unique_ptr<devserver::DevServer> server_;
};

}  // namespace aerokv::devserver_test
