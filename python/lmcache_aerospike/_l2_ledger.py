# SPDX-License-Identifier: Apache-2.0
"""What this process knows of the objects in L2: who uses them now, and what they occupy."""

from __future__ import annotations

import itertools
import threading
import time
from collections import OrderedDict
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass

from lmcache.v1.distributed.api import ObjectKey


class Locks:
    """Counts the users of each object, against deletion by this process. Thread-safe.

    A lookup holds its keys from its start, so that no deletion comes between the server's answer
    and the lock that the answer stands for.
    """

    def __init__(self) -> None:
        self._mutex = threading.Lock()
        self._users: dict[str, int] = {}
        self._deleting: set[str] = set()
        self.refused = 0  # deletions of objects in use

    def hold(self, names: Iterable[str]) -> frozenset[int]:
        """One more user for each; the places of those that are being deleted, which get none."""
        with self._mutex:
            users, deleting = self._users, self._deleting
            gone = set()
            for place, name in enumerate(names):
                if name in deleting:
                    gone.add(place)
                else:
                    users[name] = users.get(name, 0) + 1
            return frozenset(gone)

    def release(self, names: Iterable[str]) -> None:
        """One user less for each; names without users are ignored."""
        with self._mutex:
            users = self._users
            for name in names:
                left = users.get(name, 0) - 1
                if left > 0:
                    users[name] = left
                else:
                    users.pop(name, None)

    def begin_delete(self, names: Iterable[str]) -> set[str]:
        """Those of the names that may be deleted now. They have to be given to end_delete()."""
        with self._mutex:
            asked = set(names)
            free = {n for n in asked if n not in self._users and n not in self._deleting}
            self.refused += len(asked) - len(free)
            self._deleting |= free
            return free

    def end_delete(self, names: Iterable[str]) -> None:
        """Takes back begin_delete()."""
        with self._mutex:
            self._deleting.difference_update(names)

    def __len__(self) -> int:
        return len(self._users)


@dataclass
class _Entry:
    key: ObjectKey
    size: int
    turn: int
    ends: float | None  # of the monotonic clock; None = no end


class Ledger:
    """The objects that this process stored, or found, with their sizes. Thread-safe.

    They leave it when they are deleted, when their life ends, and when the server is seen to have
    them no longer.

    Args:
        life_seconds: Life of an object that is stored now; None = endless or unknown.
        clock: A monotonic clock.
    """

    def __init__(
        self, life_seconds: float | None, clock: Callable[[], float] = time.monotonic
    ) -> None:
        self._mutex = threading.Lock()
        self._entries: OrderedDict[str, _Entry] = OrderedDict()  # nearly in the order of their ends
        self._turns = itertools.count(1)
        self._clock = clock
        self._some_end = False
        self.life_seconds = life_seconds

    def turn(self) -> int:
        """A mark in time: what is added later is newer than it."""
        return next(self._turns)

    def add(self, name: str, key: ObjectKey, size: int, life: float | None = -1.0) -> int:
        """Notes that an object was stored or found.

        Args:
            name: Its name.
            key: The same as LMCache has it.
            size: Its bytes.
            life: Its rest in seconds, None = endless; negative = that of a new object.

        Returns:
            The bytes by which the account grows: `size`, or 0 if the object was known.
        """
        life = self.life_seconds if life is not None and life < 0 else life
        ends = None if life is None else self._clock() + life
        with self._mutex:
            known = self._entries.pop(name, None)
            # The account of a known object stays at its first size; LMCache's adapters agree on it.
            kept = known.size if known else size
            self._entries[name] = _Entry(key, kept, next(self._turns), ends)
            self._some_end = self._some_end or ends is not None
            return 0 if known else size

    def renew(self, names: Iterable[str]) -> None:
        """Starts the life of known objects anew."""
        if self.life_seconds is None:
            return
        ends = self._clock() + self.life_seconds
        with self._mutex:
            for name in names:
                entry = self._entries.get(name)
                if entry is not None and entry.ends is not None:
                    entry.ends = ends
                    self._entries.move_to_end(name)

    def remove(
        self, names: Iterable[str], before: int | None = None
    ) -> list[tuple[ObjectKey, int]]:
        """Forgets objects, those stored after the mark `before` excepted.

        Returns:
            Key and size of each that was known.
        """
        with self._mutex:
            out = []
            for name in names:
                entry = self._entries.get(name)
                if entry is not None and (before is None or entry.turn < before):
                    del self._entries[name]
                    out.append((entry.key, entry.size))
            return out

    def remove_ended(self, count_max: int = 10_000) -> list[tuple[ObjectKey, int]]:
        """Forgets objects whose life has ended, the oldest first."""
        if not self._some_end:
            return []
        now = self._clock()
        with self._mutex:
            ended: list[str] = []
            for name, entry in self._entries.items():
                if entry.ends is None:
                    continue
                if entry.ends > now or len(ended) >= count_max:
                    break
                ended.append(name)
            return [(e.key, e.size) for e in (self._entries.pop(name) for name in ended)]

    def names(self) -> Sequence[str]:
        """A copy of all names."""
        with self._mutex:
            return tuple(self._entries)

    def __contains__(self, name: str) -> bool:
        return name in self._entries

    def __len__(self) -> int:
        return len(self._entries)
