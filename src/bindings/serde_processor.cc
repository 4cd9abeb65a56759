// SPDX-License-Identifier: Apache-2.0
// Class SerdeProcessor: tasks of many objects beside the caller.
#include <nanobind/nanobind.h>

#include <deque>
#include <memory>
#include <optional>
#include <unordered_map>
#include <utility>
#include <vector>

#include "aerokv/serde.h"
#include "bindings/buffers.h"
#include "bindings/errors.h"
#include "bindings/fork_guard.h"
#include "bindings/gil.h"
#include "bindings/serde_buffers.h"
#include "bindings/serde_config.h"
#include "bindings/serde_transforms.h"

namespace aerokv::bindings {
namespace {

constexpr const char* kName = "SerdeProcessor";
constexpr const char* kSetUsedSize = "set_used_size";
constexpr size_t kErrorsKept = 64;

/// What a task keeps alive until its result was taken.
struct TaskMemory {
  std::vector<HeldMemory> held;
  std::vector<std::pair<size_t, nb::object>> sized;  ///< index in the task; has set_used_size()
};

nb::object sequence_item(const nb::object& sequence, size_t index, size_t count, const char* name) {
  // Looked up anew each time: an exporter may run Python code that changes the list.
  if (static_cast<size_t>(PySequence_Fast_GET_SIZE(sequence.ptr())) != count) {
    raise_invalid(std::string(name) + ": changed while it was read");
  }
  return nb::borrow(PySequence_Fast_GET_ITEM(sequence.ptr(), static_cast<Py_ssize_t>(index)));
}

size_t checked_count(const nb::object& sequence, size_t expected, const char* name) {
  const auto count = static_cast<size_t>(PySequence_Fast_GET_SIZE(sequence.ptr()));
  if (count != expected) {
    raise_invalid(std::string(name) + ": " + std::to_string(count) + ", expected " +
                  std::to_string(expected) + " as there are src_objs");
  }
  return count;
}

/// The objects of one submit, side by side.
class Batch {
 public:
  Batch(nb::handle src_objs, nb::handle dst_objs, nb::handle keys)
      : src_(as_sequence(src_objs, "src_objs", "tensors or buffers")),
        dst_(as_sequence(dst_objs, "dst_objs", "tensors or buffers")),
        count_(static_cast<size_t>(PySequence_Fast_GET_SIZE(src_.ptr()))) {
    checked_count(dst_, count_, "dst_objs");
    if (keys.is_none()) return;
    keys_ = as_sequence(keys, "keys", "keys");
    checked_count(keys_, count_, "keys");
  }

  [[nodiscard]] size_t count() const { return count_; }
  [[nodiscard]] nb::object src(size_t i) const {
    return sequence_item(src_, i, count_, "src_objs");
  }
  [[nodiscard]] nb::object dst(size_t i) const {
    return sequence_item(dst_, i, count_, "dst_objs");
  }
  [[nodiscard]] SerdeKey key(size_t i) const {
    if (!keys_.is_valid()) return {};
    return read_serde_key(sequence_item(keys_, i, count_, "keys"), {"keys", index(i)});
  }
  static ptrdiff_t index(size_t i) { return static_cast<ptrdiff_t>(i); }

 private:
  nb::object src_;
  nb::object dst_;
  nb::object keys_;
  size_t count_;
};

/// Objects of a batch mostly share one layout.
class LayoutPool {
 public:
  std::shared_ptr<const Layout> share(Layout layout) {
    if (last_ == nullptr || *last_ != layout) {
      last_ = std::make_shared<const Layout>(std::move(layout));
    }
    return last_;
  }

 private:
  std::shared_ptr<const Layout> last_;
};

// The GIL guards tasks_ and errors_: no call below lets go of it while it uses them. Native threads
// never ask for the GIL.
class PySerdeProcessor {
 public:
  PySerdeProcessor(const PySerializer& serializer, const PyDeserializer& deserializer,
                   size_t workers) {
    adopt(make_async_serde_processor({serializer.native(), deserializer.native(), serializer.tag()},
                                     workers));
  }

  explicit PySerdeProcessor(nb::handle config) {
    const SerdeConfig read = read_serde_config(config, "serde");
    Result<std::unique_ptr<SerdeProcessor>> made = Status();
    {
      const GilReleased released;  // a key file may be read
      made = create_serde_processor(read);
    }
    adopt(std::move(made));
  }

  ~PySerdeProcessor() {
    if (guard_.is_child()) {
      // The threads are not here, but in the parent they may be at work on this memory's twin.
      [[maybe_unused]] const SerdeProcessor* leaked = processor_.release();
      return;
    }
    const GilReleased released;
    processor_.reset();
  }

  PySerdeProcessor(const PySerdeProcessor&) = delete;
  PySerdeProcessor& operator=(const PySerdeProcessor&) = delete;

  [[nodiscard]] int serialize_fd() const { return native().serialize_event_fd(); }
  [[nodiscard]] int deserialize_fd() const { return native().deserialize_event_fd(); }

  uint64_t submit_serialize(nb::handle src_objs, nb::handle dst_objs, nb::handle keys) {
    SerdeProcessor& target = native();
    const Batch batch(src_objs, dst_objs, keys);
    std::vector<SerializeItem> items;
    TaskMemory memory;
    LayoutPool layouts;
    for (size_t i = 0; i < batch.count(); ++i) {
      const ValueName dst_name{"dst_objs", Batch::index(i)};
      const nb::object dst = batch.dst(i);
      HeldMemory source = hold_tensor(batch.src(i), Access::read, {"src_objs", Batch::index(i)});
      HeldMemory buffer = hold_bytes(dst, Access::write, dst_name);
      refuse_overlap(source, buffer, dst_name);
      items.push_back(
          {layouts.share(std::move(source.layout)), source.bytes, buffer.bytes, batch.key(i)});
      memory.held.push_back(std::move(source));
      memory.held.push_back(std::move(buffer));
      if (nb::hasattr(dst, kSetUsedSize)) memory.sized.emplace_back(i, dst);
    }
    return started(target.submit_serialize(std::move(items)), std::move(memory));
  }

  uint64_t submit_deserialize(nb::handle src_objs, nb::handle dst_objs, nb::handle keys) {
    SerdeProcessor& target = native();
    const Batch batch(src_objs, dst_objs, keys);
    std::vector<DeserializeItem> items;
    TaskMemory memory;
    LayoutPool layouts;
    for (size_t i = 0; i < batch.count(); ++i) {
      const ValueName dst_name{"dst_objs", Batch::index(i)};
      HeldMemory source = hold_bytes(batch.src(i), Access::read, {"src_objs", Batch::index(i)});
      HeldMemory tensor = hold_tensor(batch.dst(i), Access::write, dst_name);
      refuse_overlap(source, tensor, dst_name);
      items.push_back(
          {source.bytes, layouts.share(std::move(tensor.layout)), tensor.bytes, batch.key(i)});
      memory.held.push_back(std::move(source));
      memory.held.push_back(std::move(tensor));
    }
    return started(target.submit_deserialize(std::move(items)), std::move(memory));
  }

  nb::object query_serialize(uint64_t id) {
    const std::optional<SerdeResult> result = native().query_serialize_result(id);
    if (!result) return nb::none();
    const TaskMemory memory = take(id);
    return nb::bool_(result->ok && set_sizes(id, memory, result->bytes));
  }

  nb::object query_deserialize(uint64_t id) {
    const std::optional<SerdeResult> result = native().query_deserialize_result(id);
    if (!result) return nb::none();
    const TaskMemory memory = take(id);
    return nb::bool_(result->ok);
  }

  [[nodiscard]] size_t estimate(nb::handle layout) const {
    const Result<size_t> bytes = native().estimate_serialized_size(read_layout(layout, {"layout"}));
    if (!bytes) raise(bytes.error());
    return *bytes;
  }

  [[nodiscard]] nb::list last_errors() const {
    // Copied first: making exceptions runs Python code, also of other threads.
    std::vector<SerdeFailure> failures = native().last_errors();
    failures.insert(failures.end(), errors_.begin(), errors_.end());
    nb::list out;
    for (const SerdeFailure& failure : failures) {
      out.append(nb::make_tuple(failure.task, failure.index, exception_of(failure.status)));
    }
    return out;
  }

  void close() {
    if (guard_.is_child()) return;
    {
      const GilReleased released;
      processor_->close();
    }
    // Nothing is at work any more; what was done can still be asked for, and then its size counts.
    std::vector<std::vector<HeldMemory>> freed;  // last: it may run Python code
    freed.reserve(tasks_.size());
    for (auto& [id, memory] : tasks_) freed.push_back(std::move(memory.held));
  }

 private:
  [[nodiscard]] SerdeProcessor& native() const {
    guard_.check(kName);
    return *processor_;
  }

  void adopt(Result<std::unique_ptr<SerdeProcessor>> made) {
    if (!made) raise(made.error());
    processor_ = std::move(made).value();
  }

  uint64_t started(const Result<SerdeTaskId>& id, TaskMemory memory) {
    if (!id) raise(id.error());
    tasks_.emplace(*id, std::move(memory));
    return *id;
  }

  TaskMemory take(uint64_t id) {
    const auto found = tasks_.find(id);
    if (found == tasks_.end()) return {};
    TaskMemory memory = std::move(found->second);
    tasks_.erase(found);
    return memory;
  }

  bool set_sizes(uint64_t id, const TaskMemory& memory, const std::vector<uint64_t>& bytes) {
    for (const auto& [index, object] : memory.sized) {
      try {
        object.attr(kSetUsedSize)(bytes[index]);
      } catch (nb::python_error& error) {
        const std::string reason =
            std::string("dst_objs[") + std::to_string(index) + "].set_used_size: " + error.what();
        if (errors_.size() == kErrorsKept) errors_.pop_front();
        errors_.push_back({id, index, Status(Code::invalid, reason)});
        return false;
      }
    }
    return true;
  }

  ForkGuard guard_;
  std::unique_ptr<SerdeProcessor> processor_;
  std::unordered_map<uint64_t, TaskMemory> tasks_;
  std::deque<SerdeFailure> errors_;
};

void bind_tasks(nb::class_<PySerdeProcessor>& type) {
  type.def("submit_serialize", &PySerdeProcessor::submit_serialize, nb::arg("src_objs").none(),
           nb::arg("dst_objs").none(), nb::arg("keys") = nb::none(),
           "Start to serialize objects into buffers; returns the id of the task.");
  type.def("submit_deserialize", &PySerdeProcessor::submit_deserialize, nb::arg("src_objs").none(),
           nb::arg("dst_objs").none(), nb::arg("keys") = nb::none(),
           "Start to deserialize buffers into objects; returns the id of the task.");
  type.def("query_serialize_result", &PySerdeProcessor::query_serialize, nb::arg("task_id"),
           "True or False, once for each task; None while it is pending.");
  type.def("query_deserialize_result", &PySerdeProcessor::query_deserialize, nb::arg("task_id"),
           "True or False, once for each task; None while it is pending.");
}

}  // namespace

void bind_serde_processor(nb::module_& module) {
  nb::class_<PySerdeProcessor> type(module, kName,
                                    "Serializes and deserializes on threads of its own.");
  type.def(
      "__init__",
      [](PySerdeProcessor* self, const PySerializer& serializer, const PyDeserializer& deserializer,
         size_t workers) { new (self) PySerdeProcessor(serializer, deserializer, workers); },
      nb::arg("serializer"), nb::arg("deserializer"), nb::arg("workers"));
  type.def_static(
      "create",
      [](nb::handle config) { return std::make_unique<PySerdeProcessor>(config).release(); },
      nb::arg("config").none(), nb::rv_policy::take_ownership,
      "Make one for a built-in format from its configuration.");
  bind_tasks(type);
  type.def("get_serialize_event_fd", &PySerdeProcessor::serialize_fd,
           "The descriptor that is signalled once for each serialize task.");
  type.def("get_deserialize_event_fd", &PySerdeProcessor::deserialize_fd,
           "The descriptor that is signalled once for each deserialize task.");
  type.def("estimate_serialized_size", &PySerdeProcessor::estimate, nb::arg("layout").none(),
           "An upper bound of what is written for tensors of this layout.");
  type.def("last_errors", &PySerdeProcessor::last_errors,
           "The newest failures, oldest first: (task id, index in the task, exception).");
  type.def("close", &PySerdeProcessor::close,
           "End what has not begun, wait for what has, and free threads and buffers. Idempotent.");
}

}  // namespace aerokv::bindings
