# SPDX-License-Identifier: Apache-2.0
"""A bar with bytes per second for calls that move many bytes."""

from __future__ import annotations

import threading
from collections.abc import Callable
from types import TracebackType
from typing import TYPE_CHECKING, TypeVar

from rich.console import Console
from rich.progress import (
    BarColumn,
    DownloadColumn,
    Progress,
    TaskProgressColumn,
    TextColumn,
    TimeRemainingColumn,
    TransferSpeedColumn,
)

from lmcache_aerospike.store import Store

if TYPE_CHECKING:
    from typing_extensions import Self

T = TypeVar("T")

_REFRESH_SECONDS = 0.1


class TransferBar:
    """Shows how far a transfer is; only on a terminal.

    Within a call the engine's count of answered requests stands for bytes, since each moves one
    segment; at its end the bar is exact.

    Args:
        console: Where it is drawn.
        store: Whose requests are counted.
        title: What is moved.
        total: How many bytes will be.
    """

    def __init__(self, console: Console, store: Store, title: str, total: int) -> None:
        self._store = store
        self._total = total
        self._done = 0
        self._segment = store.limits()["target_segment_bytes"]
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            DownloadColumn(binary_units=True),
            TransferSpeedColumn(),
            TimeRemainingColumn(),
            console=console,
            transient=True,
            disable=not console.is_terminal,
        )
        self._task = self._progress.add_task(title, total=total)

    def run(self, size: int, call: Callable[[], T]) -> T:
        """Returns what `call`, which moves `size` bytes, returns."""
        if self._progress.disable or size < 8 * self._segment:
            result = call()
        else:
            with _Watch(lambda requests: self._show(size, requests), self._store):
                result = call()
        self._done += size
        self._progress.update(self._task, completed=self._done)
        return result

    def _show(self, size: int, requests: int) -> None:
        moved = min(size, requests * self._segment)
        self._progress.update(self._task, completed=self._done + moved)

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._progress.stop()


class StepBar:
    """Shows how much of a known whole is done; only on a terminal.

    Args:
        console: Where it is drawn.
        title: What is done.
    """

    def __init__(self, console: Console, title: str) -> None:
        self._progress = Progress(
            TextColumn("{task.description}"),
            BarColumn(),
            TaskProgressColumn(),
            TimeRemainingColumn(),
            console=console,
            transient=True,
            disable=not console.is_terminal,
        )
        self._task = self._progress.add_task(title, total=1.0)

    def update(self, part: float, title: str | None = None) -> None:
        """Says how much is done, 0 to 1, and what, if that has changed."""
        if title is None:
            self._progress.update(self._task, completed=min(1.0, part))
        else:
            self._progress.update(self._task, completed=min(1.0, part), description=title)

    def __enter__(self) -> Self:
        self._progress.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._progress.stop()


class _Watch:
    """Calls `show` with the requests answered since its start, until it ends."""

    def __init__(self, show: Callable[[int], None], store: Store) -> None:
        self._show = show
        self._store = store
        self._before = store.stats()["requests"]
        self._end = threading.Event()
        self._thread = threading.Thread(target=self._run, daemon=True)

    def _run(self) -> None:
        while not self._end.wait(_REFRESH_SECONDS):
            self._show(self._store.stats()["requests"] - self._before)

    def __enter__(self) -> Self:
        self._thread.start()
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._end.set()
        self._thread.join()
