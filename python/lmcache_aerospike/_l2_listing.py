# SPDX-License-Identifier: Apache-2.0
"""Pages of the objects in L2, from scans of the set by the server."""

from __future__ import annotations

import re
import threading
import time
from collections.abc import Iterator
from dataclasses import dataclass

from lmcache.v1.distributed.api import KeyEntry, KeyListPage, ObjectKey

from lmcache_aerospike import _native
from lmcache_aerospike._l2_keys import key_of

PARTITIONS = 4096
# One page may have to pass over a whole set, of which few objects are asked for.
_PAGE_SECONDS_MAX = 20.0
# A part of the set that was read for one page serves the next ones.
_PART_SECONDS_MAX = 30.0

_CURSOR = re.compile(r"1\.([0-9a-f]{40}|p[0-9]{1,4})")


def partition_of(digest: str) -> int:
    """The partition that holds the record with this digest, of 40 hex digits."""
    low, high = bytes.fromhex(digest[:4])
    return low | (high & 0x0F) << 8


@dataclass(frozen=True)
class _Part:
    """All objects in the partitions from `first` up to, not including, `end`, in their order."""

    first: int
    end: int
    objects: list[tuple[int, str, _native.ObjectInfo]]
    read_at: float


class Listing:
    """Goes through the set in the order of partition and digest.

    A page ends anywhere, and the next goes on there, whatever was stored or removed between: an
    object that stays is listed exactly once.

    Args:
        store: Of the engine.
        send_key: The option; without it records do not tell whose they are.
    """

    def __init__(self, store: _native.Store, send_key: bool) -> None:
        self._store = store
        self._send_key = send_key
        self._mutex = threading.Lock()
        self._part: _Part | None = None
        self.nameless = 0  # objects seen that do not carry their key

    def page(self, model_name: str | None, page_size: int, cursor: str | None) -> KeyListPage:
        """LMCache's list_l2_keys()."""
        if page_size <= 0:
            msg = f"page_size must be positive (got {page_size})"
            raise ValueError(msg)
        first, after = _read_cursor(cursor)
        self._require_keys()
        started = time.monotonic()
        entries: list[KeyEntry] = []
        while first < PARTITIONS:
            part = self._read(first, is_new=cursor is None)
            for partition, digest, found in part.objects:
                if (partition, digest) <= after or partition < first:
                    continue
                after = (partition, digest)
                key = self._key(found)
                if key is None or model_name not in (None, key.model_name):
                    continue
                entry = KeyEntry(key=key.to_encoded_object_key(), size_bytes=found["bytes"])
                entries.append(entry)
                if len(entries) == page_size:
                    return KeyListPage(entries=tuple(entries), next_page_token=f"1.{digest}")
            first = part.end
            if first < PARTITIONS and time.monotonic() - started > _PAGE_SECONDS_MAX:
                return KeyListPage(entries=tuple(entries), next_page_token=f"1.p{first}")
        return KeyListPage(entries=tuple(entries), next_page_token=None)

    def all_objects(self) -> Iterator[tuple[str, ObjectKey, int, int | None]]:
        """Name, key, size before a serde and rest of life (None = endless) of every object."""
        self._require_keys()
        first = 0
        while first < PARTITIONS:
            objects, first = self._store.list(first, 1)
            for found in objects:
                key = self._key(found)
                if key is not None and found["key"] is not None:
                    yield found["key"], key, found["raw_bytes"], found["expires_in"]

    def _require_keys(self) -> None:
        if not self._send_key:
            msg = "listing needs the option send_key: without it records do not carry their keys"
            raise NotImplementedError(msg)

    def _key(self, found: _native.ObjectInfo) -> ObjectKey | None:
        if not found["ready"]:
            return None
        if not found["key"]:
            self.nameless += 1
            return None
        return key_of(found["key"])

    def _read(self, first: int, is_new: bool) -> _Part:
        """The part with the partition `first`; a new listing does not want to see an old one."""
        now = time.monotonic()
        with self._mutex:
            part = None if is_new else self._part
        if part and part.first <= first < part.end and now - part.read_at < _PART_SECONDS_MAX:
            return part
        objects, end = self._store.list(first, 1)
        in_order = sorted(
            ((partition_of(o["digest"]), o["digest"], o) for o in objects), key=lambda o: o[:2]
        )
        part = _Part(first, end, in_order, now)
        with self._mutex:
            self._part = part
        return part


def _read_cursor(cursor: str | None) -> tuple[int, tuple[int, str]]:
    """Where to go on: the first partition, and the object that was looked at last."""
    if cursor is None:
        return 0, (-1, "")
    matched = _CURSOR.fullmatch(cursor)
    if matched is None:
        msg = f"cursor {cursor[:80]!r}: not one that an earlier page gave"
        raise ValueError(msg)
    place = matched[1]
    if place.startswith("p"):
        if int(place[1:]) >= PARTITIONS:
            msg = f"cursor {cursor!r}: no such partition"
            raise ValueError(msg)
        return int(place[1:]), (-1, "")
    return partition_of(place), (partition_of(place), place)
