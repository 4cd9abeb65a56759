# SPDX-License-Identifier: Apache-2.0
"""Brings the engine's log lines to the logger ``lmcache_aerospike``.

Engine threads only queue their lines. One Python thread waits for them and ends, at the latest,
before the interpreter does; so no engine thread ever waits for the GIL.
"""

from __future__ import annotations

import atexit
import contextlib
import logging
import os
import select
import threading
import time
from typing import Final

from lmcache_aerospike import _native

logger = logging.getLogger("lmcache_aerospike")


class _Pump:
    """The thread, its end, and the process that they belong to."""

    def __init__(self) -> None:
        self.process = os.getpid()
        self._lines = _native.open_log()
        self._end_read, self._end_write = os.pipe()
        self._thread = threading.Thread(target=self._run, name="lmcache-aerospike-log", daemon=True)
        self._thread.start()

    def stop(self) -> None:
        """Takes what is left and ends the thread."""
        if self.process != os.getpid():
            return
        _native.close_log()
        with contextlib.suppress(OSError):
            os.write(self._end_write, b"x")
        self._thread.join(5)
        _flush()

    def _run(self) -> None:
        poll = select.poll()
        poll.register(self._lines, select.POLLIN)
        poll.register(self._end_read, select.POLLIN)
        while True:
            ready = {descriptor for descriptor, _ in poll.poll()}
            _flush()
            if self._end_read in ready:
                return


_QUIET_SECONDS: Final = 10.0
_causes: dict[str, tuple[float | None, int]] = {}
_lock = threading.Lock()
_pump: _Pump | None = None


def _forget() -> None:
    """In a forked child: the parent's thread is not here, and another may have held the lock."""
    global _lock, _pump  # noqa: PLW0603 - one per process, like the engine's log sink
    _lock = threading.Lock()
    _pump = None


os.register_at_fork(after_in_child=_forget)


def start() -> None:
    """Starts the thread if this process has none yet."""
    global _pump  # noqa: PLW0603 - one per process, like the engine's log sink
    with _lock:
        if _pump is None:
            _pump = _Pump()
            atexit.register(_pump.stop)


def warn(cause: str, message: str) -> None:
    """Logs a warning, at most one for each cause in ten seconds, as the engine does.

    Args:
        cause: A literal: causes are remembered for ever.
        message: The line; the next one says how many were left out.
    """
    now = time.monotonic()
    with _lock:
        last, left_out = _causes.get(cause, (None, 0))
        if last is not None and now - last < _QUIET_SECONDS:
            _causes[cause] = last, left_out + 1
            return
        _causes[cause] = now, 0
    more = f" ({left_out} similar lines left out)" if left_out else ""
    logger.warning("%s%s", message, more)


def _flush() -> None:
    for level, line in _native.take_log_lines():
        logger.log(level, "%s", line)
