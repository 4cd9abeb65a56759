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
    """Blocks with an end of life; `capacity` counts blocks, 0 = no limit.

    An end is a pair (time, number of the store), so that of equal times the older one is earlier.
    """

    def __init__(self, capacity: int, ttl: float, policy: str, refresh: bool) -> None:
        self._capacity = capacity
        self._ttl = ttl
        self._policy = policy
        self._refresh = refresh
        self._ends: OrderedDict[int, tuple[float, int]] = OrderedDict()  # least recent use first
        self._order: list[tuple[tuple[float, int], int]] = []  # (end, block), outdated ones too
        self._number = itertools.count()
        self.refused = self.evicted = self.expired = 0

    def present(self, now: float) -> int:
        return sum(end[0] > now for end in self._ends.values())

    def lookup(self, block: int, now: float) -> bool:
        end = self._ends.get(block)
        if end is None:
            return False
        if end[0] <= now:
            self.expired += 1
            del self._ends[block]
            return False
        return True

    def load(self, block: int, now: float) -> None:
        self._ends.move_to_end(block)
        if self._refresh:
            self._set(block, now)

    def store(self, block: int, now: float) -> None:
        if block not in self._ends and self._is_full(now):
            if self._policy == "refuse":
                self.refused += 1
                return
            self._evict()
        self._set(block, now)
        self._ends.move_to_end(block)

    def _set(self, block: int, now: float) -> None:
        end = (now + self._ttl, next(self._number))
        self._ends[block] = end
        if self._capacity:
            heapq.heappush(self._order, (end, block))

    def _is_full(self, now: float) -> bool:
        if not self._capacity or len(self._ends) < self._capacity:
            return False
        while self._order and self._order[0][0][0] <= now:
            self._remove(*heapq.heappop(self._order))
        return len(self._ends) >= self._capacity

    def _evict(self) -> None:
        self.evicted += 1
        if self._policy == "lru":
            self._ends.popitem(last=False)
            return
        while not self._remove(*heapq.heappop(self._order)):
            pass

    def _remove(self, end: tuple[float, int], block: int) -> bool:
        """Removes the block unless its end has moved."""
        if self._ends.get(block) != end:
            return False
        del self._ends[block]
        return True


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
