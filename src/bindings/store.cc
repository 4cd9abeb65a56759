// SPDX-License-Identifier: Apache-2.0
// Class Store: synchronous calls over byte buffers.
#include "aerokv/store.h"

#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>

#include <algorithm>
#include <condition_variable>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <utility>
#include <vector>

#include "aerokv/serde.h"
#include "bindings/bind.h"
#include "bindings/buffers.h"
#include "bindings/errors.h"
#include "bindings/fork_guard.h"
#include "bindings/gil.h"
#include "bindings/object_dicts.h"
#include "bindings/store_options.h"
#include "bindings/store_totals.h"

namespace aerokv::bindings {
namespace {

constexpr const char* kName = "Store";

// Objects change between the two steps of a load whose size is not known; after this many turns
// writers are at work right now and the answer is a miss.
constexpr int kGetTurnsMax = 4;

// The end of one batch, shared with it: the waiting call may be gone first only if it threw.
struct Waiter {
  std::mutex mutex;
  std::condition_variable ended;
  std::optional<std::vector<ItemResult>> results;  // guarded by mutex
};

class PyStore {
 public:
  explicit PyStore(const nb::dict& options) : store_(open_store(options)) {}

  ~PyStore() {
    if (guard_.is_child()) {
      // The engine's threads are not here, so nothing can be joined; the memory goes with the
      // process.
      [[maybe_unused]] const auto* leaked = new std::shared_ptr<Store>(std::move(store_));
      return;
    }
    const GilReleased released;
    store_.reset();
  }

  PyStore(const PyStore&) = delete;
  PyStore& operator=(const PyStore&) = delete;

  [[nodiscard]] Store& native() const {
    guard_.check(kName);
    return *store_;
  }

  [[nodiscard]] std::shared_ptr<Store> shared() const {
    guard_.check(kName);
    return store_;
  }

  /// Runs one batch to its end, which its deadline bounds. The GIL is released meanwhile.
  std::vector<ItemResult> run(Operation operation, std::vector<Item> items) {
    Store& target = native();
    const auto waiter = std::make_shared<Waiter>();
    const GilReleased released;
    target.submit(operation, std::move(items), [waiter](std::vector<ItemResult> results) {
      const std::scoped_lock lock(waiter->mutex);
      waiter->results.emplace(std::move(results));
      waiter->ended.notify_all();
    });
    std::unique_lock lock(waiter->mutex);
    waiter->ended.wait(lock, [&] { return waiter->results.has_value(); });
    return *std::move(waiter->results);
  }

  /// Runs a batch of one item. Throws if it ended in an error.
  ItemResult run_one(Operation operation, Item item) {
    std::vector<Item> items;
    items.push_back(std::move(item));
    ItemResult result = std::move(run(operation, std::move(items)).front());
    if (result.outcome == Outcome::error) raise(result.status);
    return result;
  }

  template <typename T, typename Call>
  T blocking(Call call) {
    Store& target = native();
    std::optional<Result<T>> result;
    {
      const GilReleased released;
      result.emplace(call(target));
    }
    if (!result->has_value()) raise(result->error());
    return std::move(*result).value();
  }

  void close() {
    if (guard_.is_child()) return;
    const GilReleased released;
    store_->close();
  }

 private:
  ForkGuard guard_;
  std::shared_ptr<Store> store_;
};

Item item_of(nb::handle key) {
  Item item;
  item.key = read_key(key, "key", 0);
  return item;
}

nb::object bytes_or_none(const ItemResult& result) {
  return result.outcome == Outcome::hit ? nb::object(nb::int_(result.bytes)) : nb::none();
}

// What a many-key call returns for one key: its value, or the exception that a call for this key
// alone would have raised.
template <typename Value>
nb::list per_key(const std::vector<ItemResult>& results, Value value) {
  nb::list out;
  for (const ItemResult& result : results) {
    if (result.outcome == Outcome::error) {
      out.append(exception_of(result.status));
    } else {
      out.append(value(result));
    }
  }
  return out;
}

nb::object is_hit(const ItemResult& result) {
  return nb::bool_(result.outcome == Outcome::hit);
}

nb::object get_into(PyStore& self, nb::handle key, nb::handle buffer) {
  Pins pins;
  pins.reserve(1);
  Item item = item_of(key);
  item.target = pins.add(buffer, Pins::Access::write, "buffer", 0);
  return bytes_or_none(self.run_one(Operation::get, std::move(item)));
}

// A bytes object of `size` bytes that nobody else has seen, so it may be written.
nb::object new_bytes(uint64_t size) {
  nb::object out = nb::steal(PyBytes_FromStringAndSize(nullptr, static_cast<Py_ssize_t>(size)));
  if (!out.is_valid()) throw nb::python_error();
  return out;
}

// Tries a buffer of a whole record, which most objects fit in; for a larger one the meta record is
// asked for the size.
nb::object get(PyStore& self, nb::handle key) {
  const Item item = item_of(key);
  uint64_t size = self.native().limits().single_record_threshold_bytes;
  for (int turn = 0; turn < kGetTurnsMax; ++turn) {
    nb::object buffer = new_bytes(size);
    Item attempt = item;
    attempt.target = {reinterpret_cast<std::byte*>(PyBytes_AS_STRING(buffer.ptr())),
                      static_cast<size_t>(size)};
    const ItemResult result = self.run_one(Operation::get, std::move(attempt));
    if (result.outcome == Outcome::hit) {
      if (result.bytes == size) return buffer;
      PyObject* bytes = buffer.release().ptr();
      if (_PyBytes_Resize(&bytes, static_cast<Py_ssize_t>(result.bytes)) != 0) {
        throw nb::python_error();
      }
      return nb::steal(bytes);
    }
    if (result.bytes <= size) return nb::none();  // not there, or damaged
    size = result.bytes;
  }
  return nb::none();
}

uint64_t put(PyStore& self, nb::handle key, nb::handle data, std::optional<int64_t> ttl, bool pin) {
  Pins pins;
  pins.reserve(1);
  Item item = item_of(key);
  item.payload = pins.add(data, Pins::Access::read, "data", 0);
  item.ttl_seconds = ttl;
  item.pin = pin;
  return self.run_one(Operation::put, std::move(item)).bytes;
}

bool run_key(PyStore& self, Operation operation, nb::handle key,
             std::optional<int64_t> ttl = std::nullopt) {
  Item item = item_of(key);
  item.ttl_seconds = ttl;
  return self.run_one(operation, std::move(item)).outcome == Outcome::hit;
}

nb::list get_many_into(PyStore& self, nb::handle keys, nb::handle buffers) {
  Pins pins;
  std::vector<Item> items = read_items(keys, buffers, "buffers", Operation::get, pins);
  return per_key(self.run(Operation::get, std::move(items)), bytes_or_none);
}

nb::list put_many(PyStore& self, nb::handle keys, nb::handle data, std::optional<int64_t> ttl,
                  bool pin) {
  Pins pins;
  std::vector<Item> items = read_items(keys, data, "data", Operation::put, pins);
  for (Item& item : items) {
    item.ttl_seconds = ttl;
    item.pin = pin;
  }
  return per_key(self.run(Operation::put, std::move(items)), bytes_or_none);
}

nb::tuple list(PyStore& self, uint32_t cursor, size_t count) {
  auto objects = self.blocking<std::vector<ObjectInfo>>(
      [&](Store& store) { return store.list(cursor, std::max<size_t>(count, 1)); });
  nb::list out;
  for (const ObjectInfo& object : objects) out.append(object_dict(object));
  return nb::make_tuple(out, cursor);
}

nb::object inspect(PyStore& self, nb::handle key) {
  const std::string text = read_key(key, "key", 0);
  Store& target = self.native();
  std::optional<Result<ObjectDetails>> result;
  {
    const GilReleased released;
    result.emplace(target.inspect(text));
  }
  if (result->has_value()) return details_dict(**result);
  if (result->error().code() == Code::not_found) return nb::none();
  raise(result->error());
}

// What each node says; the exception that asking it would have raised where it could not be asked.
nb::dict info(PyStore& self, const std::string& command) {
  const auto answers =
      self.blocking<std::vector<NodeAnswer>>([&](Store& store) { return store.info(command); });
  nb::dict out;
  for (const NodeAnswer& answer : answers) {
    const nb::str node(answer.node.c_str(), answer.node.size());
    if (answer.status.ok()) {
      out[node] = nb::steal(PyUnicode_DecodeUTF8(
          answer.text.data(), static_cast<Py_ssize_t>(answer.text.size()), "backslashreplace"));
    } else {
      out[node] = exception_of(answer.status);
    }
  }
  return out;
}

void bind_one_key(nb::class_<PyStore>& type) {
  type.def("get", &get, nb::arg("key").none(),
           "Load an object whose size is not known; None if absent.");
  type.def("get_into", &get_into, nb::arg("key").none(), nb::arg("buffer").none(),
           "Load an object into the front of a buffer; its size, or None if absent or larger.");
  type.def("put", &put, nb::arg("key").none(), nb::arg("data").none(), nb::arg("ttl") = nb::none(),
           nb::arg("pin") = false, "Store an object; returns its size.");
  type.def(
      "exists", [](PyStore& self, nb::handle key) { return run_key(self, Operation::exists, key); },
      nb::arg("key").none(), "Whether the object is there.");
  type.def(
      "delete", [](PyStore& self, nb::handle key) { return run_key(self, Operation::remove, key); },
      nb::arg("key").none(), "Delete an object; whether it was there.");
  type.def(
      "touch",
      [](PyStore& self, nb::handle key, std::optional<int64_t> ttl) {
        return run_key(self, Operation::touch, key, ttl);
      },
      nb::arg("key").none(), nb::arg("ttl") = nb::none(),
      "Renew the expiry of an object; whether it is there.");
}

void bind_many_keys(nb::class_<PyStore>& type) {
  type.def("get_many_into", &get_many_into, nb::arg("keys").none(), nb::arg("buffers").none(),
           "get_into() for many keys at once; errors are returned in place.");
  type.def("put_many", &put_many, nb::arg("keys").none(), nb::arg("data").none(),
           nb::arg("ttl") = nb::none(), nb::arg("pin") = false,
           "put() for many keys at once; errors are returned in place.");
  type.def(
      "exists_many",
      [](PyStore& self, nb::handle keys) {
        return per_key(self.run(Operation::exists, read_items(keys)), is_hit);
      },
      nb::arg("keys").none(), "exists() for many keys at once; errors are returned in place.");
  type.def(
      "delete_many",
      [](PyStore& self, nb::handle keys) {
        return per_key(self.run(Operation::remove, read_items(keys)), is_hit);
      },
      nb::arg("keys").none(), "delete() for many keys at once; errors are returned in place.");
}

}  // namespace

std::shared_ptr<Store> store_of(nb::handle object) {
  PyStore* store = nullptr;
  return nb::try_cast<PyStore*>(object, store) && store != nullptr ? store->shared() : nullptr;
}

namespace {

nb::dict totals_dict() {
  std::optional<StoreTotals> totals;
  {
    const GilReleased released;
    totals.emplace(store_totals());
  }
  nb::dict out = stats_dict(totals->stats);
  out["open_stores"] = totals->open_stores;
  out["open_engines"] = totals->open_engines;
  const SerdeFailureCounts failures = serde_failure_counts();
  nb::dict serde;
  serde["serialize"] = failures.serialize;
  serde["deserialize"] = failures.deserialize;
  out["serde_failures"] = serde;
  return out;
}

}  // namespace

void bind_store(nb::module_& module) {
  module.def("totals", &totals_dict,
             "The counters of all stores that this process has and had, as one.");
  nb::class_<PyStore> type(module, kName, "Objects in an Aerospike cluster, synchronous.");
  type.def(
      "__init__", [](PyStore* self, const nb::dict& options) { new (self) PyStore(options); },
      nb::arg("options"));
  bind_one_key(type);
  bind_many_keys(type);
  type.def("list", &list, nb::arg("cursor") = 0, nb::arg("count") = 1000,
           "List some objects: (objects, next cursor); the cursor is 4096 at the end.");
  type.def("inspect", &inspect, nb::arg("key").none(),
           "Look at all records of one object; None if absent.");
  type.def("info", &info, nb::arg("command"),
           "Ask every node one info command: what each said, or the error that kept it from it.");
  type.def(
      "stats", [](PyStore& self) { return stats_dict(self.native().stats()); },
      "The counters since the store was opened.");
  type.def(
      "limits", [](PyStore& self) { return limits_dict(self.native().limits()); },
      "What the cluster allows, and the segment sizes that follow.");
  type.def("close", &PyStore::close, "End what is under way, and the threads. Idempotent.");
  type.def("__enter__", [](nb::handle self) { return nb::borrow(self); });
  type.def("__exit__", [](PyStore& self, const nb::args&) { self.close(); }, nb::arg("error"));
  type.def("__repr__", [](nb::handle self) {
    if (!nb::inst_ready(self)) return repr_of_unopened(self);
    return repr_of(self, nb::cast<PyStore&>(self).native().options());
  });
}

}  // namespace aerokv::bindings
