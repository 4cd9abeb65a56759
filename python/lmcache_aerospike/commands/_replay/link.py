# SPDX-License-Identifier: Apache-2.0
"""Awaits the batches of a native connector in an event loop."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeAlias

if TYPE_CHECKING:
    from lmcache_aerospike._native import Connector
    from lmcache_aerospike.errors import AerospikeConnectorError

    # "hit", "miss" or "error"; payload bytes; metadata; the error
    KeyResult: TypeAlias = tuple[str, int, bytes | None, AerospikeConnectorError | None]


@dataclass
class Batch:
    """The end of a batch.

    Attributes:
        seconds: From its submission until its completion was seen.
        results: One for each key.
    """

    seconds: float
    results: list[KeyResult]


class Link:
    """Each call submits a batch and waits for its completion.

    Args:
        connector: Nobody else may drain it.
    """

    def __init__(self, connector: Connector) -> None:
        self._connector = connector
        self._waiting: dict[int, tuple[float, asyncio.Future[Batch]]] = {}
        self._loop = asyncio.get_running_loop()
        self._loop.add_reader(connector.event_fd(), self._drain)

    async def call(self, submit: Callable[[], int]) -> Batch:
        """Waits for the batch that `submit` starts."""
        started = time.monotonic()
        future: asyncio.Future[Batch] = self._loop.create_future()
        self._waiting[submit()] = (started, future)
        return await future

    def close(self) -> None:
        """Stops listening."""
        self._loop.remove_reader(self._connector.event_fd())

    def _drain(self) -> None:
        # All times are taken before anybody acts on a completion.
        ended = time.monotonic()
        for number, results in self._connector.drain_results():
            started, future = self._waiting.pop(number)
            if not future.done():
                future.set_result(Batch(ended - started, results))
