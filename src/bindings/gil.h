// SPDX-License-Identifier: Apache-2.0
// Releases the interpreter lock around calls that may wait.
#pragma once

#include <nanobind/nanobind.h>
#include <unistd.h>

namespace aerokv::bindings {

/// Holds the GIL released as long as it lives.
///
/// A daemon thread that asks for the GIL while the interpreter ends never gets it: up to Python
/// 3.13 it is ended by pthread_exit(), whose unwinding must not meet the noexcept frames above
/// this one (std::terminate would take the process down). Such a thread stays here for the moment
/// that the process has left, as Python 3.14 does it. LMCache drains connectors in daemon threads.
class GilReleased {
 public:
  GilReleased() : state_(PyEval_SaveThread()) {}

  ~GilReleased() {
    try {
      PyEval_RestoreThread(state_);
    } catch (...) {
      for (;;) pause();
    }
  }

  GilReleased(const GilReleased&) = delete;
  GilReleased& operator=(const GilReleased&) = delete;

 private:
  PyThreadState* state_;
};

}  // namespace aerokv::bindings
