# SPDX-License-Identifier: Apache-2.0
"""The shortest prefix of a schedule that still fails, as shrink.h has it."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass


@dataclass
class Attempt:
    """One run of a prefix."""

    failed: bool
    events: int  # applied before it failed
    why: str = ""


@dataclass
class Shrunk:
    """The shortest prefix, and how often it failed."""

    events: int
    failures: int
    tries: int
    why: str


def shrink(first: Attempt, tries: int, attempt: Callable[[int], Attempt]) -> Shrunk:
    """`first` is a failure of the whole schedule; `attempt(n)` plays its first n events."""
    passes, fails, why = 0, first.events, first.why
    while passes < fails:
        middle = (passes + fails) // 2
        failed = next((a for a in (attempt(middle) for _ in range(tries)) if a.failed), None)
        if failed is None:
            passes = middle + 1
        else:
            fails, why = min(middle, failed.events), failed.why
    again = [a for a in (attempt(fails) for _ in range(tries)) if a.failed]
    return Shrunk(fails, len(again), tries, again[-1].why if again else why)
