# SPDX-License-Identifier: Apache-2.0
"""Stand-in chunks whose bytes follow from their key, so that every loaded byte can be checked."""

from __future__ import annotations

import hashlib
import random

_SHIFTS = 1 << 20
_HEAD = 32


class Content:
    """Makes and checks chunks of one size; random bytes, which nothing compresses.

    A chunk is a digest of its key, then a window of one random sequence at a place that the digest
    gives: two keys differ in their heads, and with 2**20 places nearly always in every segment.

    Args:
        size: Bytes of a chunk.
    """

    def __init__(self, size: int) -> None:
        self.size = size
        self._bytes = memoryview(random.Random(1).randbytes(_SHIFTS + size))  # noqa: S311 - no secret

    def of(self, key: str) -> bytes:
        """The chunk of a key."""
        head = hashlib.blake2b(key.encode(), digest_size=_HEAD).digest()
        at = int.from_bytes(head[:8], "little") % _SHIFTS
        return b"".join((head[: self.size], self._bytes[at : at + max(0, self.size - _HEAD)]))

    def difference(self, key: str, data: memoryview) -> str | None:
        """What is wrong with the bytes that were loaded for a key; None if all are right."""
        expected, loaded = self.of(key), bytes(data)
        if loaded == expected:
            return None
        if len(loaded) != len(expected):
            return f"{len(loaded)} bytes instead of {len(expected)}"
        wrong = [i for i in range(len(loaded)) if loaded[i] != expected[i]]
        return f"{len(wrong)} of {len(loaded)} bytes differ, the first at offset {wrong[0]}"
