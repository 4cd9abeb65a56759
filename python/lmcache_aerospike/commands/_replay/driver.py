# SPDX-License-Identifier: Apache-2.0
"""Plays the requests of a trace against a cluster: lookups, loads, stores."""

from __future__ import annotations

import asyncio
import contextlib
import time
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING

from lmcache_aerospike.commands._replay.content import Content
from lmcache_aerospike.commands._replay.link import Link
from lmcache_aerospike.errors import (
    AerospikeBusyError,
    AerospikeConnectionError,
    AerospikeDeniedError,
    AerospikeTimeoutError,
)

if TYPE_CHECKING:
    from lmcache_aerospike._native import Connector
    from lmcache_aerospike.commands._replay.link import KeyResult
    from lmcache_aerospike.commands._replay.trace import Request
    from lmcache_aerospike.errors import AerospikeConnectorError

FIRST_SEEN = "first seen"
EXPIRED = "expired"
REFUSED = "its store was refused: out of space"
FAILED = "its store failed"
LOST = "gone before its time: evicted, or its node was lost"
BEHIND_GAP = "present, but behind a block that is not"
ERROR = "the lookup failed"
LOAD_FAILED = "found, but not loaded"
WRONG = "loaded with wrong bytes"

_PIECE_BYTES = 32 << 20
_VERIFY_BYTES = 1 << 20
_FAILURES_MAX = 10
_DELETE_KEYS = 1000
# The server counts lives in whole seconds.
_CLOCK_SECONDS = 1.0
_AWAY = (AerospikeConnectionError, AerospikeTimeoutError, AerospikeDeniedError)


@dataclass(frozen=True)
class Plan:
    """How a trace is played.

    Attributes:
        chunk_bytes: Size of the stand-in for the KV cache of a block.
        block_tokens: Tokens of a block.
        speed: Seconds of the trace in a second; infinite = one request after the other.
        in_flight: Requests that are loaded or stored at the same time.
        ttl_seconds: Life of a block on the server's clock, as default_ttl_seconds takes it.
        refresh: Whether a load renews it.
        salt: Part of all keys, so that the cache starts cold.
    """

    chunk_bytes: int
    block_tokens: int
    speed: float
    in_flight: int
    ttl_seconds: int
    refresh: bool
    salt: str

    def key(self, block: int) -> str:
        """The key of a block."""
        return f"replay@{self.salt}@{block:012x}"


@dataclass
class Outcome:
    """What happened to one request; times are in seconds since the start of the run.

    Attributes:
        index: Its place in the trace.
        arrival: When it was due.
        started: When its lookup began.
        ended: When its last block was stored.
        tokens: Of its prompt.
        blocks: Of its prompt.
        found: Blocks of the prefix that the lookup found.
        hit_blocks: Blocks of the prefix that were loaded with the right bytes.
        hit_tokens: Tokens of these.
        stored_blocks: Blocks that were stored behind it.
        lookup_seconds: Until the lookup was answered.
        load_seconds: Until all of the prefix was loaded; None if there was none.
        store_seconds: Until all other blocks were stored; None if there were none.
        misses: Blocks that were no hits, by reason.
    """

    index: int
    arrival: float
    started: float
    tokens: int
    blocks: int
    ended: float = 0.0
    found: int = 0
    hit_blocks: int = 0
    hit_tokens: int = 0
    stored_blocks: int = 0
    lookup_seconds: float = 0.0
    load_seconds: float | None = None
    store_seconds: float | None = None
    misses: Counter[str] = field(default_factory=Counter)

    @property
    def queued_seconds(self) -> float:
        """How late it was started."""
        return max(0.0, self.started - self.arrival)


@dataclass
class Run:
    """What happened to all requests.

    Attributes:
        outcomes: One for each request that was played, in the order of the trace.
        seconds: From the first to the end of the last one.
        wrong: Each chunk that came back with other bytes than were stored.
        store_errors: Failed stores of blocks, by message.
        held_back: Requests that waited until an earlier one had stored blocks of theirs.
    """

    outcomes: list[Outcome] = field(default_factory=list)
    seconds: float = 0.0
    wrong: list[str] = field(default_factory=list)
    store_errors: Counter[str] = field(default_factory=Counter)
    held_back: int = 0


class Driver:
    """Plays requests in their order, several at a time.

    Lookups are made one after the other. A request waits for an earlier one that is storing blocks
    of its own, so that the outcome does not depend on how fast the cluster is.

    Args:
        connector: Used by nobody else meanwhile.
        plan: How to play.
        progress: Called with each request that has ended.
    """

    def __init__(
        self, connector: Connector, plan: Plan, progress: Callable[[Outcome], None]
    ) -> None:
        self._connector = connector
        self._plan = plan
        self._progress = progress
        self._content = Content(plan.chunk_bytes)
        self._piece = max(1, _PIECE_BYTES // plan.chunk_bytes)
        self._arenas: list[bytearray] = []
        self._storing: dict[int, asyncio.Event] = {}
        # What became of the last store of each block: a reason, or when it will expire.
        self._known: dict[int, str | float] = {}
        self._run = Run()
        self._failures = 0
        self._error: BaseException | None = None
        self._stop = asyncio.Event()
        self._began = 0.0
        self._link = Link(connector)

    def stop(self) -> None:
        """Starts no further request."""
        self._stop.set()

    async def play(self, requests: Sequence[Request]) -> Run:
        """Plays them; returns when the last one has ended.

        Raises:
            AerospikeConnectionError: Ten requests in a row could neither load nor store.
            AerospikeDeniedError: No store is allowed.
        """
        slots = asyncio.Semaphore(self._plan.in_flight)
        tasks: set[asyncio.Task[None]] = set()

        def ended(task: asyncio.Task[None]) -> None:
            tasks.discard(task)
            slots.release()
            if not task.cancelled() and task.exception() is not None:
                self._error = self._error or task.exception()
                self.stop()

        self._began = time.monotonic()
        try:
            for index, request in enumerate(requests):
                arrival = await self._await_arrival(request)
                await slots.acquire()
                await self._await_stores(request)
                if self._stop.is_set():
                    break
                outcome, present = await self._lookup(index, request, arrival)
                task = asyncio.create_task(self._transfer(request, outcome, present))
                tasks.add(task)
                task.add_done_callback(ended)
        finally:
            if tasks:
                await asyncio.wait(tasks)
            self._link.close()
        if self._error is not None:
            raise self._error
        self._run.seconds = self._now()
        self._run.outcomes.sort(key=lambda outcome: outcome.index)
        return self._run

    async def clean(self) -> int:
        """Deletes all blocks that were stored; returns how many could not be."""
        failed = 0
        link = Link(self._connector)
        blocks = list(self._known)
        try:
            for at in range(0, len(blocks), _DELETE_KEYS):
                part = blocks[at : at + _DELETE_KEYS]
                keys = [self._plan.key(block) for block in part]
                batch = await link.call(partial(self._connector.submit_batch_delete, keys))
                for block, result in zip(part, batch.results, strict=True):
                    # A store that failed may have left something too, but most likely did not.
                    failed += result[0] == "error" and isinstance(self._known[block], float)
        finally:
            link.close()
        return failed

    def _now(self) -> float:
        return time.monotonic() - self._began

    async def _await_arrival(self, request: Request) -> float:
        if self._plan.speed == float("inf"):
            return self._now()
        arrival = request.arrival / self._plan.speed
        delay = arrival - self._now()
        if delay > 0:
            with contextlib.suppress(asyncio.TimeoutError):
                await asyncio.wait_for(self._stop.wait(), delay)
        return arrival

    async def _await_stores(self, request: Request) -> None:
        is_held = False
        while True:
            event = next((self._storing[b] for b in request.blocks if b in self._storing), None)
            if event is None:
                self._run.held_back += is_held
                return
            is_held = True
            await event.wait()

    async def _lookup(
        self, index: int, request: Request, arrival: float
    ) -> tuple[Outcome, list[KeyResult]]:
        """Looks a request up, and claims the blocks that it will store."""
        outcome = Outcome(index, arrival, self._now(), request.input_tokens, len(request.blocks))
        if not request.blocks:
            return outcome, []
        keys = [self._plan.key(block) for block in request.blocks]
        batch = await self._link.call(partial(self._connector.submit_batch_exists, keys))
        outcome.lookup_seconds = batch.seconds
        for result in batch.results:
            if result[0] != "hit":
                break
            outcome.found += 1
        claim = asyncio.Event()
        for block in request.blocks[outcome.found :]:
            self._storing[block] = claim
        return outcome, batch.results

    def _count_failures(self, outcome: Outcome, error: AerospikeConnectorError | None) -> None:
        """Gives up when nothing works any more; lookups alone do not tell, they turn to misses."""
        if not isinstance(error, _AWAY) or outcome.hit_blocks or outcome.stored_blocks:
            self._failures = 0
            return
        if isinstance(error, AerospikeDeniedError):
            raise error
        self._failures += 1
        if self._failures == _FAILURES_MAX:
            msg = f"{_FAILURES_MAX} requests in a row could neither load nor store: {error}"
            raise AerospikeConnectionError(msg) from error

    async def _transfer(
        self, request: Request, outcome: Outcome, looked_up: list[KeyResult]
    ) -> None:
        now = time.monotonic()
        for i in range(outcome.found, outcome.blocks):
            outcome.misses[self._reason(request.blocks[i], looked_up[i], now)] += 1
        claimed = set(request.blocks[outcome.found :])
        try:
            if outcome.found:
                await self._load(request, outcome)
            outcome.hit_tokens = request.tokens_of(outcome.hit_blocks, self._plan.block_tokens)
            rest = list(dict.fromkeys(request.blocks[outcome.hit_blocks :]))
            if rest:
                self._count_failures(outcome, await self._store(rest, outcome))
        finally:
            events = {self._storing.pop(block) for block in claimed if block in self._storing}
            for event in events:
                event.set()
        outcome.ended = self._now()
        self._run.outcomes.append(outcome)
        self._progress(outcome)

    def _reason(self, block: int, result: KeyResult, now: float) -> str:
        if result[0] == "hit":
            return BEHIND_GAP
        if result[0] == "error":
            return ERROR
        known = self._known.get(block, FIRST_SEEN)
        if isinstance(known, str):
            return known
        return EXPIRED if now > known - _CLOCK_SECONDS else LOST

    async def _load(self, request: Request, outcome: Outcome) -> None:
        """Loads the prefix that was found; it ends before the first block that fails."""
        blocks = request.blocks[: outcome.found]
        size = self._plan.chunk_bytes
        seconds = 0.0
        for at in range(0, len(blocks), self._piece):
            part = blocks[at : at + self._piece]
            with self._arena() as arena:
                views = [arena[i * size : (i + 1) * size] for i in range(len(part))]
                keys = [self._plan.key(block) for block in part]
                submit = partial(self._connector.submit_batch_get, keys, views)
                batch = await self._link.call(submit)
                seconds += batch.seconds
                good = await self._check(keys, views, batch.results, outcome)
                for view in views:
                    view.release()
            for block in part[:good]:
                if self._plan.refresh:
                    self._note_stored(block)
            outcome.hit_blocks += good
            if good < len(part):
                break
        lost = outcome.found - outcome.hit_blocks
        counted = outcome.misses[LOAD_FAILED] + outcome.misses[WRONG]
        if lost > counted:
            outcome.misses[BEHIND_GAP] += lost - counted
        outcome.load_seconds = seconds

    async def _check(
        self,
        keys: list[str],
        views: list[memoryview],
        results: list[KeyResult],
        outcome: Outcome,
    ) -> int:
        """Compares all bytes; returns how many chunks are right before the first one that is not.

        Counts the others as misses, and names those with wrong bytes.
        """
        good, is_prefix, unseen = 0, True, 0
        for key, view, result in zip(keys, views, results, strict=True):
            reason = None
            if result[0] != "hit":
                reason = LOAD_FAILED
            else:
                difference = self._content.difference(key, view[: result[1]])
                if difference is not None:
                    reason = WRONG
                    self._run.wrong.append(f"{key} (request {outcome.index + 1}): {difference}")
            if reason is not None:
                outcome.misses[reason] += 1
                is_prefix = False
            good += is_prefix
            unseen += len(view)
            if unseen >= _VERIFY_BYTES:  # let completions be seen when they come
                unseen = 0
                await asyncio.sleep(0)
        return good

    async def _store(self, blocks: list[int], outcome: Outcome) -> AerospikeConnectorError | None:
        """Stores blocks; returns the last error."""
        seconds = 0.0
        last: AerospikeConnectorError | None = None
        ttl = self._plan.ttl_seconds
        for at in range(0, len(blocks), self._piece):
            part = blocks[at : at + self._piece]
            keys = [self._plan.key(block) for block in part]
            data = [self._content.of(key) for key in keys]
            submit = partial(self._connector.submit_batch_set, keys, data, ttl_seconds=ttl)
            batch = await self._link.call(submit)
            seconds += batch.seconds
            for block, result in zip(part, batch.results, strict=True):
                self._note(block, result, outcome)
                last = result[3] or last
        outcome.store_seconds = seconds
        return last

    def _note(self, block: int, result: KeyResult, outcome: Outcome) -> None:
        error: AerospikeConnectorError | None = result[3]
        if error is None:
            outcome.stored_blocks += 1
            self._note_stored(block)
            return
        self._known[block] = REFUSED if isinstance(error, AerospikeBusyError) else FAILED
        self._run.store_errors[str(error)] += 1

    def _note_stored(self, block: int) -> None:
        ttl = self._plan.ttl_seconds
        self._known[block] = time.monotonic() + ttl if ttl > 0 else float("inf")

    @contextlib.contextmanager
    def _arena(self) -> Iterator[memoryview]:
        """Memory for the loads of one piece."""
        size = self._piece * self._plan.chunk_bytes
        arena = self._arenas.pop() if self._arenas else bytearray(size)
        with memoryview(arena) as view:
            yield view
        self._arenas.append(arena)
