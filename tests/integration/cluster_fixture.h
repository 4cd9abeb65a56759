// SPDX-License-Identifier: Apache-2.0
// A development server and a store on it, in one process.
#pragma once

#include <gtest/gtest.h>

#include <condition_variable>
#include <memory>
#include <mutex>
#include <random>
#include <string>
#include <vector>

#include "aerokv/connector.h"
#include "aerokv/store.h"
#include "client/info_channel.h"
#include "devserver/devserver.h"

namespace aerokv::testing {

inline std::string hosts_of(const devserver::DevServer& server) {
  std::string hosts;
  for (const devserver::Endpoint& endpoint : server.endpoints()) {
    if (!hosts.empty()) hosts += ",";
    hosts += endpoint.host + ":" + std::to_string(endpoint.port);
  }
  return hosts;
}

inline std::unique_ptr<devserver::DevServer> start_server(devserver::Options options = {}) {
  Result<std::unique_ptr<devserver::DevServer>> server =
      devserver::DevServer::start(std::move(options));
  if (!server) {
    ADD_FAILURE() << server.error().message();
    std::abort();
  }
  return *std::move(server);
}

inline StoreOptions options_for(const devserver::DevServer& server) {
  StoreOptions options;
  options.hosts = hosts_of(server);
  options.default_ttl_seconds = 3600;
  return options;
}

inline std::unique_ptr<Store> open_store(const StoreOptions& options) {
  Result<std::unique_ptr<Store>> store = Store::open(options);
  if (!store) {
    ADD_FAILURE() << store.error().message();
    std::abort();
  }
  return *std::move(store);
}

/// Changes the namespace of a running server as an operator would, by an info command.
inline void set_config(const devserver::DevServer& server, const std::string& setting) {
  for (const devserver::Endpoint& endpoint : server.endpoints()) {
    const wire::Endpoint address{endpoint.host, endpoint.port};
    Result<std::vector<client::SocketAddress>> resolved = client::resolve(address);
    ASSERT_TRUE(resolved);
    const client::Node node("any", address, resolved->front());
    const Result<std::string> answer =
        client::ask_info(node, {}, "set-config:context=namespace;namespace=lmcache;" + setting,
                         SteadyClock::now() + std::chrono::seconds(5));
    ASSERT_TRUE(answer) << answer.error().message();
    ASSERT_EQ(*answer, "ok");
  }
}

/// Runs one batch and waits for its results.
inline std::vector<ItemResult> run(Store& store, Operation operation, std::vector<Item> items) {
  std::mutex mutex;
  std::condition_variable condition;
  bool done = false;
  std::vector<ItemResult> results;
  store.submit(operation, std::move(items), [&](std::vector<ItemResult> given) {
    const std::scoped_lock lock(mutex);
    results = std::move(given);
    done = true;
    condition.notify_all();
  });
  std::unique_lock lock(mutex);
  condition.wait(lock, [&] { return done; });
  return results;
}

using Buffer = std::vector<std::byte>;

inline Buffer random_bytes(size_t count, uint64_t seed) {
  std::mt19937_64 generator(seed);
  Buffer bytes(count);
  size_t i = 0;
  for (; i + 8 <= count; i += 8) {
    const uint64_t word = generator();
    std::memcpy(bytes.data() + i, &word, 8);
  }
  for (; i < count; ++i) bytes[i] = static_cast<std::byte>(generator());
  return bytes;
}

inline Item put_item(std::string key, const Buffer& payload) {
  Item item;
  item.key = std::move(key);
  item.payload = payload;
  return item;
}

inline Item get_item(std::string key, Buffer& target) {
  Item item;
  item.key = std::move(key);
  item.target = target;
  return item;
}

inline Item key_item(std::string key) {
  Item item;
  item.key = std::move(key);
  return item;
}

inline std::string bits_of(const std::vector<ItemResult>& results) {
  std::string bits;
  for (const ItemResult& result : results) {
    bits += result.outcome == Outcome::hit ? '1' : result.outcome == Outcome::miss ? '0' : 'E';
  }
  return bits;
}

}  // namespace aerokv::testing
