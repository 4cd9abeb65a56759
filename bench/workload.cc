// SPDX-License-Identifier: Apache-2.0
#include "workload.h"

#include <poll.h>
#include <sys/mman.h>

#include <algorithm>
#include <cstdlib>
#include <random>

namespace aerokv::bench {
namespace {

constexpr int kPollMs = 60'000;

}  // namespace

Memory::Memory(size_t bytes, uint64_t seed) {
  void* at = ::mmap(nullptr, bytes, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  if (at == MAP_FAILED) std::abort();
  bytes_ = {static_cast<std::byte*>(at), bytes};
  std::mt19937_64 random(seed);
  for (size_t i = 0; i + sizeof(uint64_t) <= bytes; i += sizeof(uint64_t)) {
    store_le(bytes_.data() + i, static_cast<uint64_t>(random()));
  }
}

Memory::~Memory() {
  ::munmap(bytes_.data(), bytes_.size());
}

std::vector<MutableBytes> Memory::slices(size_t size, size_t count) const {
  std::vector<MutableBytes> slices;
  const size_t fit = bytes_.size() / size;
  for (size_t i = 0; i < count; ++i) slices.push_back(bytes_.subspan((i % fit) * size, size));
  return slices;
}

std::vector<Bytes> as_sources(const std::vector<MutableBytes>& slices) {
  return {slices.begin(), slices.end()};
}

Result<std::unique_ptr<Engine>> Engine::open(const StoreOptions& options) {
  Result<std::unique_ptr<Store>> store = Store::open(options);
  if (!store) return store.error();
  Result<std::unique_ptr<Connector>> connector = Connector::create(*std::move(store));
  if (!connector) return connector.error();
  auto engine = std::make_unique<Engine>();
  engine->connector_ = *std::move(connector);
  return engine;
}

Status Engine::run(Operation operation, std::vector<Item> items) {
  const Result<uint64_t> id = connector_->submit(operation, std::move(items));
  if (!id) return id.error();
  pollfd wait{connector_->event_fd(), POLLIN, 0};
  while (true) {
    if (::poll(&wait, 1, kPollMs) == 0) return {Code::timeout, "no completion for a minute"};
    for (const Completion& completion : connector_->drain()) {
      if (completion.id != *id) continue;
      if (!completion.ok) return {Code::internal, "batch failed: " + completion.error};
      size_t hits = 0;
      for (const uint8_t bit : completion.bits) hits += bit;
      if (hits == completion.bits.size()) return {};
      return {Code::not_found, std::to_string(hits) + " hits of " +
                                   std::to_string(completion.bits.size()) + " keys"};
    }
  }
}

Status Engine::put(const std::string& prefix, const std::vector<Bytes>& payloads) {
  std::vector<Item> items(payloads.size());
  for (size_t i = 0; i < items.size(); ++i) {
    items[i].key = key_of(prefix, i);
    items[i].payload = payloads[i];
  }
  return run(Operation::put, std::move(items)).with_context("store " + prefix);
}

Status Engine::get(const std::string& prefix, const std::vector<MutableBytes>& targets,
                   size_t distinct_keys) {
  std::vector<Item> items(targets.size());
  for (size_t i = 0; i < items.size(); ++i) {
    items[i].key = key_of(prefix, distinct_keys == 0 ? i : i % distinct_keys);
    items[i].target = targets[i];
  }
  return run(Operation::get, std::move(items)).with_context("load " + prefix);
}

Status Engine::exists(const std::string& prefix, size_t count) {
  std::vector<Item> items(count);
  for (size_t i = 0; i < items.size(); ++i) items[i].key = key_of(prefix, i);
  return run(Operation::exists, std::move(items)).with_context("look up " + prefix);
}

Status Engine::remove(const std::string& prefix, size_t count) {
  std::vector<Item> items(count);
  for (size_t i = 0; i < items.size(); ++i) items[i].key = key_of(prefix, i);
  return run(Operation::remove, std::move(items)).with_context("remove " + prefix);
}

Json Engine::client_counters() const {
  const StoreStats stats = connector_->store()->stats();
  uint64_t connections = 0;
  for (const StoreStats::NodeStats& node : stats.nodes) {
    connections += static_cast<uint64_t>(std::max<int64_t>(0, node.connections));
  }
  Json out;
  out.add("connections", connections).add("requests", stats.requests);
  out.add("retries", stats.retries).add("stalls", stats.stalls);
  return out;
}

std::string key_of(const std::string& prefix, size_t index) {
  std::string number = std::to_string(index);
  return "meta-llama/Llama-3.1-8B@01000100@0@" + prefix + std::string(60 - number.size(), '0') +
         number;
}

double seconds_since(std::chrono::steady_clock::time_point start) {
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

}  // namespace aerokv::bench
