# SPDX-License-Identifier: Apache-2.0
"""Loads and hashes all objects of a set, for ``fsck --verify``."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import TYPE_CHECKING

from lmcache_aerospike.commands._selection import Selection
from lmcache_aerospike.commands.session import bytes_text
from lmcache_aerospike.errors import AerospikeConnectorError

if TYPE_CHECKING:
    from lmcache_aerospike._native import Finding, ObjectDetails, ObjectInfo
    from lmcache_aerospike.store import Store

_BATCH_OBJECTS = 256
_BATCH_BYTES = 64 << 20
_OBJECT_BYTES_MAX = 4 << 30  # what a meta record claims beyond that is a finding of its own


class Verifier:
    """Finds the objects whose bytes are not those that were stored.

    Args:
        store: With the option `verify` = "full".
        known: Digests of meta records that are known to be damaged.
        has_serde: Whether `store` decodes; it is then for encoded objects, too.
    """

    def __init__(self, store: Store, known: set[str], *, has_serde: bool) -> None:
        self._store = store
        self._known = known
        self._has_serde = has_serde
        self.verified = 0
        self.skipped = 0

    def run(self, progress: Callable[[float], None]) -> list[Finding]:
        """Loads everything once; what is found may be a store under way, see again()."""
        found: list[Finding] = []
        for batch in self._batches(progress):
            found += self._check(batch)
        return found

    def again(self, findings: list[Finding]) -> list[Finding]:
        """Those that still fail, and that nobody has written since."""
        out = []
        for finding in findings:
            key = finding["key"] or ""
            details = self._store.inspect(key)
            if details is None or _versions(finding) != _versions(_finding(details)):
                continue
            if self._store.get_into(key, bytearray(details["raw_bytes"])) is None:
                out.append(finding)
        return out

    def _batches(self, progress: Callable[[float], None]) -> Iterator[list[ObjectInfo]]:
        batch: list[ObjectInfo] = []
        total = 0
        for entry in Selection().objects(self._store, progress):
            if not self._is_readable(entry):
                continue
            size = entry["raw_bytes"]
            if batch and (total + size > _BATCH_BYTES or len(batch) >= _BATCH_OBJECTS):
                yield batch
                batch, total = [], 0
            batch.append(entry)
            total += size
        if batch:
            yield batch

    def _is_readable(self, entry: ObjectInfo) -> bool:
        if not entry["ready"] or entry["digest"] in self._known:
            return False
        if entry["key"] is None or (entry["serde"] is not None and not self._has_serde):
            self.skipped += 1
            return False
        return entry["raw_bytes"] <= _OBJECT_BYTES_MAX

    def _check(self, batch: list[ObjectInfo]) -> Iterator[Finding]:
        keys = [entry["key"] or "" for entry in batch]
        buffers = [bytearray(entry["raw_bytes"]) for entry in batch]
        for entry, result in zip(batch, self._store.get_many_into(keys, buffers), strict=True):
            if isinstance(result, AerospikeConnectorError):
                raise result
            self.verified += 1
            if result is not None:
                continue
            details = self._store.inspect(entry["key"] or "")
            # It has gone or was stored again; else this is worth a second look.
            if details is not None and details["generation"] == entry["generation"]:
                yield _finding(details)


def _finding(details: ObjectDetails) -> Finding:
    return {
        "kind": "payload",
        "key": details["key"],
        "digest": details["digest"],
        "generation": details["generation"],
        "expires_in": details["expires_in"],
        "detail": f"{bytes_text(details['bytes'])} do not match their sums",
        "segments": [
            {"digest": record["digest"], "generation": record["generation"]}
            for record in details["records"][1:]
            if record["present"]
        ],
    }


def _versions(finding: Finding) -> list[tuple[str, int]]:
    records = [(finding["digest"], finding["generation"])]
    return records + [(entry["digest"], entry["generation"]) for entry in finding["segments"]]
