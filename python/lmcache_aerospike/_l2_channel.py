# SPDX-License-Identifier: Apache-2.0
"""Tasks of one kind: submitted, announced by a descriptor of their own, collected."""

from __future__ import annotations

import collections
import logging
import os
import select
import threading
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any, Final

from lmcache_aerospike import _native
from lmcache_aerospike._causes import QuietLog
from lmcache_aerospike.errors import AerospikeConnectorError, ClosedError

logger = logging.getLogger("lmcache_aerospike")

Result = tuple[str, int, bytes | None, AerospikeConnectorError | None]

_ERRORS_KEPT: Final = 16


@dataclass(frozen=True)
class Task:
    """What was submitted.

    Attributes:
        number: Its id in LMCache.
        keys: Of LMCache.
        names: The same as the engine has them.
        turn: When; a mark of the ledger.
        gone: The places of keys that count as absent, whatever the server says.
    """

    number: int
    keys: Sequence[Any]
    names: Sequence[str]
    turn: int
    gone: frozenset[int] = frozenset()


class Channel:
    """One connector over a shared store. Thread-safe.

    Its descriptor goes to LMCache as it is, so no thread of ours stands between the engine and
    LMCache's poll(). Whoever collects takes everything that has ended, also what another call will
    ask for; wake() then sees to it that the other one is not waited for in vain.
    """

    def __init__(self, store: _native.Store) -> None:
        self._mutex = threading.Lock()
        self._connector: _native.Connector | None = _native.Connector(store)
        self.fd: Final = self._connector.event_fd()
        self._pending: dict[int, Task] = {}
        self._unstarted: list[tuple[Task, list[Result]]] = []

    def submit(self, task: Task, start: Callable[[_native.Connector], int]) -> None:
        """Starts a task. One that cannot start ends at once, with an error for each key.

        Raises:
            ClosedError: After close(), or in a forked child.
        """
        with self._mutex:
            if self._connector is None:
                msg = "the adapter is closed"
                raise ClosedError(msg)
            if not task.names:
                self._end(task, [])
                return
            try:
                self._pending[start(self._connector)] = task
            except ClosedError:
                raise
            except Exception as error:  # LMCache's loops expect none
                self._end(task, _failed(task, error))

    def collect(self) -> list[tuple[Task, list[Result]]]:
        """Takes what has ended, oldest first."""
        with self._mutex:
            ended, self._unstarted = self._unstarted, []
            if self._connector is not None:
                ended += self._drain(self._connector)
            return ended

    def wake(self) -> None:
        """Makes the descriptor readable."""
        with self._mutex:
            if self._connector is not None:
                os.eventfd_write(self.fd, 1)

    def close(self) -> None:
        """Ends what is open; it can still be collected. The store has to be closed before."""
        with self._mutex:
            connector, self._connector = self._connector, None
            if connector is None:
                return
            connector.close()
            self._unstarted += self._drain(connector)
            lost = ClosedError("the adapter was closed")
            self._unstarted += [(task, _failed(task, lost)) for task in self._pending.values()]
            self._pending.clear()

    def __len__(self) -> int:
        return len(self._pending)

    def _drain(self, connector: _native.Connector) -> list[tuple[Task, list[Result]]]:
        return [(self._pending.pop(n), results) for n, results in connector.drain_results()]

    def _end(self, task: Task, results: list[Result]) -> None:
        self._unstarted.append((task, results))
        os.eventfd_write(self.fd, 1)


def _failed(task: Task, error: Exception) -> list[Result]:
    if not isinstance(error, AerospikeConnectorError):
        error = AerospikeConnectorError(f"{type(error).__name__}: {error}")
    return [("error", 0, None, error)] * len(task.names)


def run_batch(
    store: _native.Store, start: Callable[[_native.Connector], int], seconds_max: float
) -> list[Result]:
    """Runs one batch to its end; empty if that does not come in time."""
    connector = _native.Connector(store)
    try:
        start(connector)
        poll = select.poll()
        poll.register(connector.event_fd(), select.POLLIN)
        deadline = time.monotonic() + seconds_max
        while (left := deadline - time.monotonic()) > 0:
            poll.poll(left * 1000)
            for _, results in connector.drain_results():
                return results
        return []
    finally:
        connector.close()


class Errors:
    """The newest errors, and a log line for each cause now and then."""

    def __init__(self) -> None:
        self._mutex = threading.Lock()
        self._newest: collections.deque[dict[str, Any]] = collections.deque(maxlen=_ERRORS_KEPT)
        self._log = QuietLog(logger)

    def note(self, doing: str, results: Sequence[object]) -> None:
        """Notes the errors among the results of one batch.

        Args:
            doing: What failed, such as "store".
            results: Errors, or rows of drain_results(); all else is ignored.
        """
        found = [r[3] if isinstance(r, tuple) else r for r in results]
        errors = [e for e in found if isinstance(e, AerospikeConnectorError)]
        if not errors:
            return
        first = errors[0]
        entry = {
            "operation": doing,
            "code": first.code,
            "keys": len(errors),
            "message": str(first)[:300],
            "at": time.time(),
        }
        with self._mutex:
            newest = self._newest[-1] if self._newest else {}
            if (newest.get("operation"), newest.get("code")) == (doing, first.code):
                self._newest.pop()  # the same once more: the list is for different ones
            self._newest.append(entry)
        self._log.warning(
            f"{doing} {first.code}", f"L2 {doing}: {len(errors)} keys failed: {first}"
        )

    def newest(self) -> list[dict[str, Any]]:
        """Oldest first."""
        with self._mutex:
            return list(self._newest)
