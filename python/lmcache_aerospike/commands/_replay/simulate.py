# SPDX-License-Identifier: Apache-2.0
"""What an ideal cache of given capacity and life would do with a trace; needs no server.

It shares nothing with the replay but the trace, so that each can check the other.
"""

from __future__ import annotations

import heapq
import itertools
from collections import OrderedDict
from collections.abc import Callable, Sequence
from dataclasses import dataclass

from lmcache_aerospike.commands._replay.trace import Request

POLICIES = ("refuse", "ttl", "lru")


@dataclass
class Simulated:
    """The outcome for all requests.

    Attributes:
        hits: Hit blocks of each request: the length of the prefix that was present.
        blocks: Blocks asked for in all.
        refused: Stores that found the cache full.
        evicted: Blocks that had to go for others.
        expired: Lookups of blocks whose life was over.
        present: Blocks in the cache at the end.
    """

    hits: list[int]
    blocks: int
    refused: int = 0
    evicted: int = 0
    expired: int = 0
    present: int = 0

    @property
    def hit_blocks(self) -> int:
        """Hit blocks of all requests."""
        return sum(self.hits)

    @property
    def hit_ratio(self) -> float:
        """Hit blocks of all blocks."""
        return self.hit_blocks / self.blocks if self.blocks else 0.0


class _Cache:
    """Blocks with an expiry; `capacity` counts blocks, 0 = no limit."""

    def __init__(self, capacity: int, ttl: float, policy: str, refresh: bool) -> None:
        self._capacity = capacity
        self._ttl = ttl
        self._policy = policy
        self._refresh = refresh
        self._expiry: OrderedDict[int, float] = OrderedDict()  # least recently used first
        self._order: list[tuple[float, int, int]] = []  # (expiry, age, block), stale ones too
        self._age = itertools.count()
        self.refused = self.evicted = self.expired = 0

    def present(self, now: float) -> int:
        return sum(expiry > now for expiry in self._expiry.values())

    def lookup(self, block: int, now: float) -> bool:
        expiry = self._expiry.get(block)
        if expiry is None:
            return False
        if expiry <= now:
            self.expired += 1
            del self._expiry[block]
            return False
        return True

    def load(self, block: int, now: float) -> None:
        if self._policy == "lru":
            self._expiry.move_to_end(block)
        if self._refresh:
            self._set(block, now)

    def store(self, block: int, now: float) -> None:
        if block not in self._expiry and self._is_full(now):
            if self._policy == "refuse":
                self.refused += 1
                return
            self._evict()
        self._set(block, now)
        if self._policy == "lru":
            self._expiry.move_to_end(block)

    def _set(self, block: int, now: float) -> None:
        expiry = now + self._ttl
        self._expiry[block] = expiry
        if self._capacity:
            heapq.heappush(self._order, (expiry, next(self._age), block))

    def _is_full(self, now: float) -> bool:
        if not self._capacity or len(self._expiry) < self._capacity:
            return False
        while self._order and self._order[0][0] <= now:
            expiry, _, block = heapq.heappop(self._order)
            if self._expiry.get(block) == expiry:
                del self._expiry[block]
        return len(self._expiry) >= self._capacity

    def _evict(self) -> None:
        self.evicted += 1
        if self._policy == "lru":
            self._expiry.popitem(last=False)
            return
        while True:
            expiry, _, block = heapq.heappop(self._order)
            if self._expiry.get(block) == expiry:
                del self._expiry[block]
                return


def simulate(
    requests: Sequence[Request],
    *,
    times: Sequence[float] | None = None,
    capacity: int = 0,
    ttl: float = float("inf"),
    policy: str = "refuse",
    refresh: bool = False,
) -> Simulated:
    """Runs a trace through a cache that takes no time.

    Each request hits the longest prefix that is present, loads it, and stores all blocks behind
    it; an answer's blocks are not stored.

    Args:
        requests: The trace.
        times: When each request came, in seconds; by default as the trace says.
        capacity: Blocks that the cache holds; 0 = no limit.
        ttl: Life of a block in seconds.
        policy: What happens when it is full: "refuse" the new one, as a server at its stop-writes
            limit does; "ttl" evicts what would expire next, as a server at its eviction limit
            does; "lru" evicts what was not used for the longest time, as LMCache does.
        refresh: A load renews the life of a block.
    """
    if policy not in POLICIES:
        msg = f"policy '{policy}': expected one of {', '.join(POLICIES)}"
        raise ValueError(msg)
    cache = _Cache(capacity, ttl, policy, refresh)
    out = Simulated([], sum(len(request.blocks) for request in requests))
    clock: Callable[[int], float] = (
        times.__getitem__ if times is not None else lambda i: requests[i].arrival
    )
    for i, request in enumerate(requests):
        now = clock(i)
        prefix = 0
        while prefix < len(request.blocks) and cache.lookup(request.blocks[prefix], now):
            prefix += 1
        for block in request.blocks[:prefix]:
            cache.load(block, now)
        for block in dict.fromkeys(request.blocks[prefix:]):
            cache.store(block, now)
        out.hits.append(prefix)
    out.refused, out.evicted, out.expired = cache.refused, cache.evicted, cache.expired
    out.present = cache.present(clock(len(requests) - 1)) if requests else 0
    return out
