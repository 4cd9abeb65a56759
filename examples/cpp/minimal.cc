// SPDX-License-Identifier: Apache-2.0
// Stores an object, looks it up, loads it into a buffer of its own, deletes it.
//
//     minimal 127.0.0.1:3000
#include <cstddef>
#include <future>
#include <iostream>
#include <string>
#include <utility>
#include <vector>

#include "aerokv/bytes.h"
#include "aerokv/store.h"

namespace {

// A batch of one, waited for. A program that moves many objects puts them into one batch, and does
// something else until `done` is called on a thread of the engine.
aerokv::ItemResult run(aerokv::Store& store, aerokv::Operation operation, aerokv::Item item) {
  std::promise<aerokv::ItemResult> promise;
  std::vector<aerokv::Item> items;
  items.push_back(std::move(item));
  store.submit(operation, std::move(items), [&promise](std::vector<aerokv::ItemResult> results) {
    promise.set_value(std::move(results.front()));
  });
  return promise.get_future().get();
}

// False, and a line on stderr, if `result` is not a hit.
bool expect_hit(const char* what, const aerokv::ItemResult& result) {
  if (result.outcome == aerokv::Outcome::hit) return true;
  const bool miss = result.outcome == aerokv::Outcome::miss;
  std::cerr << what << ": " << (miss ? "a miss" : result.status.message()) << '\n';
  return false;
}

}  // namespace

int main(int count, char** arguments) {
  if (count != 2) {
    std::cerr << "usage: minimal HOST:PORT[,HOST:PORT...]\n";
    return 2;
  }
  aerokv::StoreOptions options;
  options.hosts = arguments[1];
  const auto store = aerokv::Store::open(options);
  if (!store) {
    std::cerr << store.error().message() << '\n';
    return 3;
  }

  const std::string key = "greeting";
  const std::string text = "hello";
  std::vector<std::byte> buffer(64);
  using aerokv::Operation;

  const auto stored =
      run(**store, Operation::put, {.key = key, .target = {}, .payload = aerokv::as_bytes(text)});
  if (!expect_hit("store", stored)) return 1;
  const auto found = run(**store, Operation::exists, {.key = key, .target = {}, .payload = {}});
  if (!expect_hit("look up", found)) return 1;
  const auto loaded = run(**store, Operation::get, {.key = key, .target = buffer, .payload = {}});
  if (!expect_hit("load", loaded)) return 1;
  const auto removed = run(**store, Operation::remove, {.key = key, .target = {}, .payload = {}});
  if (!expect_hit("delete", removed)) return 1;

  const aerokv::Bytes bytes(buffer.data(), loaded.bytes);
  std::cout << aerokv::as_text(bytes) << '\n';
  return aerokv::as_text(bytes) == text ? 0 : 1;
}
