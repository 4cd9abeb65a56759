# SPDX-License-Identifier: Apache-2.0
"""Measures one segment size and one payload size through the native connector."""

from __future__ import annotations

import contextlib
import random
import resource
import select
import time
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from lmcache_aerospike.errors import (
    AerospikeConnectorError,
    AerospikeTimeoutError,
    CorruptionError,
)

if TYPE_CHECKING:
    from collections.abc import Sequence
    from types import TracebackType

    from typing_extensions import Self

    from lmcache_aerospike._native import Connector

LOOKUP_KEYS = 100
_WAIT_SECONDS = 60
_ZEROS = memoryview(bytes(1 << 20))


@dataclass(frozen=True)
class Shape:
    """What is moved in one go.

    Attributes:
        payload: Bytes of an object.
        batch: Objects of a batch.
        batches: Batches that are under way in the sustained phases, and kept for loads.
    """

    payload: int
    batch: int
    batches: int

    @property
    def objects(self) -> int:
        """Objects of all batches."""
        return self.batch * self.batches


@dataclass
class Samples:
    """What was measured for one segment size and one payload size.

    Attributes:
        latency: Seconds of each batch, by phase.
        rate: Bytes a second of each round, by sustained phase.
        cpu: Processor seconds of this process for each GiB and round, by sustained phase.
    """

    latency: dict[str, list[float]] = field(default_factory=dict)
    rate: dict[str, list[float]] = field(default_factory=dict)
    cpu: dict[str, list[float]] = field(default_factory=dict)


class Buffers:
    """Memory for stores and loads; made and touched once, since a fresh page costs time.

    Args:
        size: Bytes of each of the two.
    """

    def __init__(self, size: int) -> None:
        # Its length has no common factor with sizes of objects, so that no two are alike.
        block = random.Random(1).randbytes((4 << 20) + 1)  # noqa: S311 - no secret
        self.source = memoryview(block * (size // len(block) + 1))[:size]
        self.target = memoryview(bytearray(size))
        self.forget()

    def forget(self) -> None:
        """Overwrites what was loaded, so that a comparison sees the next load."""
        for at in range(0, len(self.target), len(_ZEROS)):
            part = self.target[at : at + len(_ZEROS)]
            part[:] = _ZEROS[: len(part)]

    def slots(self, view: memoryview, shape: Shape, number: int) -> list[memoryview]:
        """The buffers of one batch."""
        first = number * shape.batch
        return [
            view[i * shape.payload : (i + 1) * shape.payload]
            for i in range(first, first + shape.batch)
        ]


class Case:
    """One segment size and one payload size; its objects are gone when the block ends.

    Args:
        connector: Used by nobody else meanwhile.
        shape: What is moved.
        buffers: Large enough for all objects.
        prefix: Of all keys; they are this case's own.
    """

    def __init__(self, connector: Connector, shape: Shape, buffers: Buffers, prefix: str) -> None:
        self._connector = connector
        self._shape = shape
        self._buffers = buffers
        self._poll = select.poll()
        self._poll.register(connector.event_fd(), select.POLLIN)
        self._keys = [
            [f"{prefix}@{n:04x}@{i:04x}" for i in range(shape.batch)] for n in range(shape.batches)
        ]
        self._absent = [[f"{key}@absent" for key in keys] for keys in self._keys]
        present = [key for keys in self._keys for key in keys][: LOOKUP_KEYS // 2]
        more = range(LOOKUP_KEYS - len(present))
        self._mixed = present + [f"{prefix}@none@{i:04x}" for i in more]
        self._is_stored = False

    def measure(self, samples: Samples, seconds: float) -> None:
        """Runs all phases, about `seconds` in all, and adds what it measured."""
        share = seconds / 6
        self._buffers.forget()
        samples.latency.setdefault("store", []).extend(self._store())
        one = self._one_by_one
        samples.latency.setdefault("load", []).extend(one(self._load, share))
        samples.latency.setdefault("miss", []).extend(one(self._miss, share))
        samples.latency.setdefault("lookup", []).extend(one(self._lookup, share / 2))
        for name, submit in (("store", self._submit_store), ("load", self._submit_load)):
            rate, cpu = self._sustain(submit, share)
            samples.rate.setdefault(name, []).append(rate)
            samples.cpu.setdefault(name, []).append(cpu)

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        # What ended the measurement is told, not that the deletion met it too.
        with contextlib.suppress(*((AerospikeConnectorError,) if error else ())):
            self._clean()

    def _clean(self) -> None:
        if not self._is_stored:
            return
        self._is_stored = False
        for keys in self._keys:
            self._finish(self._connector.submit_batch_delete(keys))

    def _store(self) -> Iterator[float]:
        """Stores every batch once, under new keys."""
        self._is_stored = True
        for number in range(self._shape.batches):
            yield self._timed(partial(self._submit_store, number), True)

    def _load(self, number: int) -> float:
        return self._timed(partial(self._submit_load, number), True)

    def _miss(self, number: int) -> float:
        views = self._buffers.slots(self._buffers.target, self._shape, number)
        submit = partial(self._connector.submit_batch_get, self._absent[number], views)
        return self._timed(submit, False)

    def _lookup(self, number: int) -> float:
        del number
        return self._timed(partial(self._connector.submit_batch_exists, self._mixed), None)

    def _submit_store(self, number: int) -> int:
        views = self._buffers.slots(self._buffers.source, self._shape, number)
        return self._connector.submit_batch_set(self._keys[number], views)

    def _submit_load(self, number: int) -> int:
        views = self._buffers.slots(self._buffers.target, self._shape, number)
        return self._connector.submit_batch_get(self._keys[number], views)

    def _one_by_one(self, phase: Callable[[int], float], seconds: float) -> Iterator[float]:
        """Batches one after the other until time is up, each at least once."""
        end = time.monotonic() + seconds
        number = 0
        while number < self._shape.batches or time.monotonic() < end:
            if number and time.monotonic() > end + seconds:
                return
            yield phase(number % self._shape.batches)
            number += 1

    def _timed(self, submit: Callable[[], int], expected: bool | None) -> float:
        started = time.monotonic()
        self._finish(submit(), expected)
        return time.monotonic() - started

    def _sustain(self, submit: Callable[[int], int], seconds: float) -> tuple[float, float]:
        """Keeps all batches under way; returns bytes a second and processor seconds a GiB."""
        under_way: dict[int, int] = {}
        waiting: deque[int] = deque(range(self._shape.batches))
        done = 0
        cpu, started = _cpu_seconds(), time.monotonic()
        end = started + seconds
        while under_way or waiting:
            while waiting:
                number = waiting.popleft()
                under_way[submit(number)] = number
            for batch in self._drain(True):
                number = under_way.pop(batch)
                done += 1
                if time.monotonic() < end:
                    waiting.append(number)
        elapsed = time.monotonic() - started
        moved = done * self._shape.batch * self._shape.payload
        return moved / elapsed, (_cpu_seconds() - cpu) / (moved / (1 << 30))

    def _finish(self, batch: int, expected: bool | None = None) -> None:
        ended: Sequence[int] = ()
        while batch not in ended:
            ended = self._drain(expected)

    def _drain(self, expected: bool | None) -> list[int]:
        """Waits for completions; results other than `expected` end the measurement.

        Raises:
            AerospikeConnectorError: A store or load failed, or an object was gone.
        """
        if not self._poll.poll(_WAIT_SECONDS * 1000):
            msg = f"no completion within {_WAIT_SECONDS} s"
            raise AerospikeTimeoutError(msg)
        ended = []
        for batch, results in self._connector.drain_results():
            ended.append(batch)
            for outcome, _, _, error in results:
                if error is not None:
                    raise error
                if expected is not None and (outcome == "hit") is not expected:
                    msg = f"a load was a {outcome}: the server evicts, or somebody deletes"
                    raise CorruptionError(msg)
        return ended


def _cpu_seconds() -> float:
    usage = resource.getrusage(resource.RUSAGE_SELF)
    return usage.ru_utime + usage.ru_stime


def verify(buffers: Buffers, shape: Shape) -> bool:
    """Whether the objects that were loaded last are those that were stored."""
    size = shape.objects * shape.payload
    return bytes(buffers.target[:size]) == bytes(buffers.source[:size])
