// SPDX-License-Identifier: Apache-2.0
// The library never writes to stdout or stderr: everything it has to say goes through one sink.
#pragma once

#include <functional>
#include <string>
#include <string_view>

namespace aerokv {

enum class LogLevel : uint8_t { debug, info, warning, error };

/// Receives one complete line without line feed. Called from any thread, one call at a time;
/// must not block for long and must not call back into the library.
using LogSink = std::function<void(LogLevel, std::string_view)>;

/// Replaces the sink; an empty function silences the library (the initial state).
/// Returns after no call to the old sink is running. Thread-safe.
void set_log_sink(LogSink sink);

/// Sends one line to the sink. Thread-safe. Equal `cause` strings are rate-limited to one line in
/// ten seconds each; the next line says how many were left out.
void log(LogLevel level, std::string_view cause, const std::string& message);

/// The same for what may happen very often: `message` is called only if its line is due. It must
/// not call back into the library.
void log(LogLevel level, std::string_view cause, const std::function<std::string()>& message);

}  // namespace aerokv
