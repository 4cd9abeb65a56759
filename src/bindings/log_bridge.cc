// SPDX-License-Identifier: Apache-2.0
// Log lines of the engine wait in a queue until Python takes them. Engine threads never touch
// Python: one that waited for the GIL could deadlock with a thread that holds it and waits for the
// engine, or wake up in an interpreter that is gone.
#include <nanobind/stl/string.h>
#include <sys/eventfd.h>
#include <unistd.h>

#include <deque>
#include <mutex>
#include <string>
#include <utility>

#include "base/log.h"
#include "bindings/bind.h"
#include "bindings/errors.h"

namespace aerokv::bindings {
namespace {

constexpr size_t kLinesMax = 1000;

struct LogQueue {
  std::mutex mutex;
  std::deque<std::pair<LogLevel, std::string>> lines;
  uint64_t left_out = 0;
  int fd = -1;

  void push(LogLevel level, std::string_view line) {
    const std::scoped_lock lock(mutex);
    if (lines.size() >= kLinesMax) {
      ++left_out;
      return;
    }
    lines.emplace_back(level, std::string(line));
    const uint64_t one = 1;
    [[maybe_unused]] const ssize_t written = write(fd, &one, sizeof one);
  }
};

// Never freed: an engine thread may log while the interpreter ends. A forked child makes its own,
// since another thread of the parent may have held this one's mutex.
LogQueue* log_queue = nullptr;

int open_log() {
  auto* fresh = new LogQueue;
  fresh->fd = eventfd(0, EFD_NONBLOCK | EFD_CLOEXEC);
  if (fresh->fd < 0) {
    delete fresh;
    raise(Status(Code::overloaded, "open log: no file descriptor left"));
  }
  log_queue = fresh;
  set_log_sink([fresh](LogLevel level, std::string_view line) { fresh->push(level, line); });
  return fresh->fd;
}

int python_level(LogLevel level) {
  switch (level) {
    case LogLevel::debug:
      return 10;
    case LogLevel::info:
      return 20;
    case LogLevel::warning:
      return 30;
    case LogLevel::error:
      return 40;
  }
  return 40;
}

nb::list take_log_lines() {
  nb::list out;
  if (log_queue == nullptr) return out;
  std::deque<std::pair<LogLevel, std::string>> lines;
  uint64_t left_out = 0;
  {
    const std::scoped_lock lock(log_queue->mutex);
    uint64_t count = 0;
    [[maybe_unused]] const ssize_t got = read(log_queue->fd, &count, sizeof count);
    lines.swap(log_queue->lines);
    left_out = std::exchange(log_queue->left_out, 0);
  }
  for (const auto& [level, line] : lines) {
    const nb::object text = nb::steal(PyUnicode_DecodeUTF8(
        line.data(), static_cast<Py_ssize_t>(line.size()), "backslashreplace"));
    out.append(nb::make_tuple(python_level(level), text));
  }
  if (left_out > 0) {
    out.append(nb::make_tuple(30, std::to_string(left_out) + " log lines left out: queue full"));
  }
  return out;
}

void close_log() {
  set_log_sink({});
}

}  // namespace

void bind_log(nb::module_& module) {
  module.def("open_log", &open_log,
             "Start to collect log lines; returns a descriptor that is readable while some wait.");
  module.def("take_log_lines", &take_log_lines,
             "Take the waiting lines as (level of the logging module, text).");
  module.def("close_log", &close_log, "Collect no more lines; those that wait can be taken.");
}

}  // namespace aerokv::bindings
