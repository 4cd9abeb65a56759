// SPDX-License-Identifier: Apache-2.0
// Class Connector: the native contract of LMCache's L2 adapters.
#include "aerokv/connector.h"

#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>

#include <algorithm>
#include <memory>
#include <mutex>
#include <optional>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "bindings/bind.h"
#include "bindings/buffers.h"
#include "bindings/errors.h"
#include "bindings/fork_guard.h"
#include "bindings/gil.h"
#include "bindings/store_options.h"

namespace aerokv::bindings {
namespace {

constexpr const char* kName = "Connector";

// Lock order: the GIL is never held while State::mutex is waited for, and never waited for while
// it is held.
class PyConnector {
 public:
  explicit PyConnector(std::shared_ptr<Store> store) : state_(std::make_unique<State>()) {
    // The only user of a store ends it with its close().
    Result<std::unique_ptr<Connector>> created = Connector::create(std::move(store));
    if (!created) raise(created.error());
    state_->connector = std::move(created).value();
  }

  ~PyConnector() {
    if (guard_.is_child()) {
      // Another thread of the parent may have held any lock at the fork, and the engine's threads
      // are not here. The memory goes with the process.
      [[maybe_unused]] const State* leaked = state_.release();
      return;
    }
    const GilReleased released;
    state_->connector.reset();
  }

  PyConnector(const PyConnector&) = delete;
  PyConnector& operator=(const PyConnector&) = delete;

  [[nodiscard]] Connector& native() const {
    guard_.check(kName);
    return *state_->connector;
  }

  [[nodiscard]] int event_fd() const { return state_->connector->event_fd(); }

  uint64_t submit(Operation operation, std::vector<Item> items, Pins pins) {
    Connector& target = native();
    Result<uint64_t> id = Status();
    {
      const GilReleased released;
      // drain() waits for this lock before it looks for pins, so a batch that ends at once still
      // finds its own.
      const std::scoped_lock lock(state_->mutex);
      id = target.submit(operation, std::move(items));
      if (id) state_->pins.emplace(*id, std::move(pins));
    }
    if (!id) raise(id.error());
    return *id;
  }

  /// What has ended: one call of `convert` for each completion.
  template <typename Convert>
  nb::list drain(Convert convert) {
    Connector& target = native();
    std::vector<Completion> completions;
    std::vector<Pins> done;  // released at the end, with the GIL
    {
      const GilReleased released;
      completions = target.drain();
      done.reserve(completions.size());
      const std::scoped_lock lock(state_->mutex);
      for (const Completion& completion : completions) {
        const auto found = state_->pins.find(completion.id);
        if (found == state_->pins.end()) continue;  // released by close()
        done.push_back(std::move(found->second));
        state_->pins.erase(found);
      }
    }
    nb::list out;
    for (const Completion& completion : completions) out.append(convert(completion));
    return out;
  }
  nb::list drain_bits() { return drain(as_tuple); }
  nb::list drain_results() { return drain(as_results); }

  void close() {
    if (guard_.is_child()) return;
    std::unordered_map<uint64_t, Pins> pins;  // released at the end, with the GIL
    const GilReleased released;
    state_->connector->close();
    const std::scoped_lock lock(state_->mutex);
    pins.swap(state_->pins);
  }

 private:
  struct State {
    std::mutex mutex;
    std::unordered_map<uint64_t, Pins> pins;  // guarded by mutex
    std::unique_ptr<Connector> connector;     // ends first: then no batch touches a buffer
  };

  static nb::object as_tuple(const Completion& completion) {
    const auto count = static_cast<Py_ssize_t>(completion.bits.size());
    nb::object bits = nb::steal(PyList_New(count));
    if (!bits.is_valid()) throw nb::python_error();
    for (Py_ssize_t i = 0; i < count; ++i) {
      const bool bit = completion.bits[static_cast<size_t>(i)] != 0;
      PyList_SET_ITEM(bits.ptr(), i, PyBool_FromLong(bit ? 1 : 0));
    }
    const nb::object error = nb::steal(PyUnicode_DecodeUTF8(
        completion.error.data(), static_cast<Py_ssize_t>(completion.error.size()), "replace"));
    return nb::make_tuple(completion.id, completion.ok, error, bits);
  }

  /// (id, [(outcome, bytes, metadata or None, error or None) for each key])
  static nb::object as_results(const Completion& completion) {
    static constexpr const char* kOutcomes[] = {"hit", "miss", "error"};
    nb::list results;
    for (const ItemResult& result : completion.results) {
      const nb::object metadata =
          result.metadata.empty()
              ? nb::none()
              : nb::object(nb::bytes(result.metadata.data(), result.metadata.size()));
      const nb::object error =
          result.outcome == Outcome::error ? exception_of(result.status) : nb::none();
      results.append(nb::make_tuple(kOutcomes[static_cast<size_t>(result.outcome)], result.bytes,
                                    metadata, error));
    }
    return nb::make_tuple(completion.id, results);
  }

  ForkGuard guard_;
  std::unique_ptr<State> state_;
};

/// Metadata for each key, None where there is none.
void read_metadata(nb::handle metadata, std::vector<Item>& items, Pins& pins) {
  const nb::object sequence = as_sequence(metadata, "metadata", "buffers");
  const auto count = static_cast<size_t>(PySequence_Fast_GET_SIZE(sequence.ptr()));
  if (count != items.size()) {
    raise_invalid("metadata: " + std::to_string(count) + ", expected " +
                  std::to_string(items.size()) + " as there are keys");
  }
  for (size_t i = 0; i < count; ++i) {
    const nb::object buffer =
        nb::borrow(PySequence_Fast_GET_ITEM(sequence.ptr(), static_cast<Py_ssize_t>(i)));
    if (buffer.is_none()) continue;
    items[i].metadata = pins.add(buffer, Pins::Access::read, "metadata", i);
  }
}

uint64_t submit_put(PyConnector& self, nb::handle keys, nb::handle memoryviews, nb::handle metadata,
                    std::optional<int64_t> ttl_seconds, bool pin) {
  Pins pins;
  const Py_ssize_t count = PyObject_Length(keys.ptr());
  if (count < 0) PyErr_Clear();  // read_items() says what is wrong with them
  pins.reserve(2 * static_cast<size_t>(std::max<Py_ssize_t>(count, 0)));
  std::vector<Item> items = read_items(keys, memoryviews, "memoryviews", Operation::put, pins);
  if (!metadata.is_none()) read_metadata(metadata, items, pins);
  for (Item& item : items) {
    item.ttl_seconds = ttl_seconds;
    item.pin = pin;
  }
  return self.submit(Operation::put, std::move(items), std::move(pins));
}

uint64_t submit_keys(PyConnector& self, Operation operation, nb::handle keys) {
  return self.submit(operation, read_items(keys), Pins());
}

uint64_t submit_get(PyConnector& self, nb::handle keys, nb::handle memoryviews) {
  Pins pins;
  std::vector<Item> items = read_items(keys, memoryviews, "memoryviews", Operation::get, pins);
  return self.submit(Operation::get, std::move(items), std::move(pins));
}

uint64_t submit_touch(PyConnector& self, nb::handle keys, std::optional<int64_t> ttl_seconds) {
  std::vector<Item> items = read_items(keys);
  for (Item& item : items) item.ttl_seconds = ttl_seconds;
  return self.submit(Operation::touch, std::move(items), Pins());
}

void bind_submits(nb::class_<PyConnector>& type) {
  type.def(
      "submit_batch_get",
      [](PyConnector& self, nb::handle keys, nb::handle memoryviews) {
        return submit_get(self, keys, memoryviews);
      },
      nb::arg("keys").none(), nb::arg("memoryviews").none(),
      "Start loading objects into writable buffers; returns the id of the batch.");
  type.def("submit_batch_set", &submit_put, nb::arg("keys").none(), nb::arg("memoryviews").none(),
           nb::arg("metadata") = nb::none(), nb::arg("ttl_seconds") = nb::none(),
           nb::arg("pin") = false, "Start storing objects; returns the id of the batch.");
  type.def(
      "submit_batch_exists",
      [](PyConnector& self, nb::handle keys) { return submit_keys(self, Operation::exists, keys); },
      nb::arg("keys").none(), "Start looking objects up; returns the id of the batch.");
  type.def(
      "submit_batch_delete",
      [](PyConnector& self, nb::handle keys) { return submit_keys(self, Operation::remove, keys); },
      nb::arg("keys").none(), "Start deleting objects; returns the id of the batch.");
  type.def("submit_batch_touch", &submit_touch, nb::arg("keys").none(),
           nb::arg("ttl_seconds") = nb::none(),
           "Start renewing the expiry of objects; returns the id of the batch.");
}

}  // namespace

void bind_connector(nb::module_& module) {
  nb::class_<PyConnector> type(module, kName,
                               "Batches with one completion each, as LMCache drives them.");
  type.def(
      "__init__",
      [](PyConnector* self, const nb::dict& options) {
        new (self) PyConnector(open_store(options));
      },
      nb::arg("options"));
  type.def(
      "__init__",
      [](PyConnector* self, nb::handle store) {
        std::shared_ptr<Store> shared = store_of(store);
        if (shared == nullptr) {
          const std::string message =
              "store: " + type_name_of(store) + ", expected a dict of options or a Store";
          throw nb::type_error(message.c_str());
        }
        new (self) PyConnector(std::move(shared));
      },
      nb::arg("store"));
  type.def("event_fd", &PyConnector::event_fd,
           "The descriptor that is readable while completions wait.");
  bind_submits(type);
  type.def("drain_completions", &PyConnector::drain_bits,
           "Take what has ended: (id, ok, error, one bit per key), oldest first.");
  type.def("drain_results", &PyConnector::drain_results,
           "Take what has ended, with sizes, metadata and errors of each key, oldest first.");
  type.def("close", &PyConnector::close,
           "End open batches and let go of all buffers. Idempotent, bounded.");
  type.def(
      "stats", [](PyConnector& self) { return stats_dict(self.native().store()->stats()); },
      "The counters of the store.");
  type.def(
      "limits", [](PyConnector& self) { return limits_dict(self.native().store()->limits()); },
      "What the cluster allows, and the segment sizes that follow.");
  type.def("__repr__", [](nb::handle self) {
    if (!nb::inst_ready(self)) return repr_of_unopened(self);
    return repr_of(self, nb::cast<PyConnector&>(self).native().store()->options());
  });
}

}  // namespace aerokv::bindings
