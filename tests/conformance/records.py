# SPDX-License-Identifier: Apache-2.0
"""Records of version 1 as other writers make and read them, over the official Aerospike client.

Written from docs/formats/record.md: the layout that the Python plug-in for LMCache and LMCache's
in-tree connector share.
"""

from __future__ import annotations

import os
import random
import struct
import time
import zlib
from dataclasses import dataclass, field
from typing import Any

import aerospike
from aerospike_helpers.batch import records as batch
from aerospike_helpers.operations import operations

NAMESPACE = os.environ.get("LMCACHE_AEROSPIKE_NAMESPACE", "lmcache")
TARGET_BYTES = 983_040  # what a namespace with records of 1 MiB makes of the default of 4 MiB
RESULT_OK = 0

Key = tuple[str, str, str]


def random_bytes(seed: int, count: int) -> bytes:
    """Content that no other seed has."""
    return random.Random(seed).randbytes(count)


def plan(total: int, target: int = TARGET_BYTES) -> tuple[int, int]:
    """How a payload is cut: segments, and bytes of each but the last."""
    if total <= target:
        return 1, total
    count = -(-total // target)
    return count, -(-total // count)


def remote_metadata(total: int) -> bytes:
    """What LMCache serializes beside a chunk: length, format, and type and shape of one group."""
    return struct.pack("=7i", total, 2, 3, 2, 6, 256, 384)


@dataclass
class Plugin:
    """The Python plug-in: segments by one batch write, then the meta record."""

    client: Any
    set_name: str
    enable_crc32: bool = False
    save_chunk_meta: bool = False
    pin: object = False
    ttl: int = 86_400
    target: int = TARGET_BYTES
    without: tuple[str, ...] = ()
    instead: dict[str, object] = field(default_factory=dict)

    def key(self, logical: str, suffix: str) -> Key:
        """The key of one record of an object."""
        return (NAMESPACE, self.set_name, f"{logical}|{suffix}")

    def meta_bins(self, payload: bytes) -> dict[str, object]:
        """The bins of the meta record."""
        count, size = plan(len(payload), self.target)
        bins: dict[str, object] = {
            "ver": 1,
            "state": "ready",
            "nseg": count,
            "seg_b": size,
            "tot_b": len(payload),
            "created_at": int(time.time()),
            "pin": self.pin,
        }
        if self.save_chunk_meta:
            bins["md"] = remote_metadata(len(payload))
        if count == 1:
            bins["b"] = payload
        if self.enable_crc32:
            bins["crc32"] = zlib.crc32(payload) & 0xFFFFFFFF
        bins.update(self.instead)
        return {name: value for name, value in bins.items() if name not in self.without}

    def put(self, logical: str, payload: bytes) -> None:
        """Stores one object."""
        count, size = plan(len(payload), self.target)
        if count > 1:
            writes = []
            for i in range(count):
                chunk = payload[i * size : (i + 1) * size]
                ops = [operations.write("b", chunk)]
                if self.enable_crc32:
                    ops.append(operations.write("crc32", zlib.crc32(chunk) & 0xFFFFFFFF))
                key = self.key(logical, f"s|{i}")
                writes.append(batch.Write(key=key, ops=ops, policy={"ttl": self.ttl}))
            records = self.client.batch_write(batch.BatchRecords(writes))
            assert [r.result for r in records.batch_records] == [RESULT_OK] * count
        policy = {"ttl": self.ttl, "key": aerospike.POLICY_KEY_DIGEST}
        self.client.put(self.key(logical, "m"), self.meta_bins(payload), policy=policy)

    def get(self, logical: str) -> bytes | None:
        """Loads one object as the plug-in does: the meta record, then one batch read."""
        try:
            _, _, bins = self.client.get(self.key(logical, "m"))
        except aerospike.exception.RecordNotFound:
            return None
        if bins.get("state") != "ready":
            return None
        if bins["nseg"] == 1:
            payload = bins["b"]
        else:
            keys = [self.key(logical, f"s|{i}") for i in range(bins["nseg"])]
            parts = self.client.batch_read(keys, ["b"]).batch_records
            if any(part.result != RESULT_OK for part in parts):
                return None
            payload = b"".join(part.record[2]["b"] for part in parts)
        assert len(payload) == bins["tot_b"]
        if self.enable_crc32 and zlib.crc32(payload) & 0xFFFFFFFF != bins["crc32"]:
            return None
        return bytes(payload)


@dataclass
class InTree:
    """LMCache's in-tree connector: one put after the other, segments as large as the server allows.

    It knows neither `md` nor `crc32`, and asks for every size to the byte.
    """

    client: Any
    set_name: str
    ttl: int = 86_400

    def key(self, logical: str, suffix: str) -> Key:
        """The key of one record of an object."""
        return (NAMESPACE, self.set_name, f"{logical}|{suffix}")

    def put(self, logical: str, payload: bytes) -> None:
        """Stores one object."""
        count, size = plan(len(payload))
        policy = {"ttl": self.ttl, "key": aerospike.POLICY_KEY_DIGEST}
        for i in range(count if count > 1 else 0):
            chunk = payload[i * size : (i + 1) * size]
            self.client.put(self.key(logical, f"s|{i}"), {"b": chunk}, policy=policy)
        bins: dict[str, object] = {
            "ver": 1,
            "state": "ready",
            "nseg": count,
            "seg_b": size,
            "tot_b": len(payload),
            "created_at": int(time.time()),
            "pin": False,
        }
        if count == 1:
            bins["b"] = payload
        self.client.put(self.key(logical, "m"), bins, policy=policy)

    def get(self, logical: str, size: int) -> bytes | None:
        """Loads one object of exactly `size` bytes, or None where the connector would fail."""
        bins = self._bins(self.key(logical, "m"))
        if bins is None or bins.get("state") != "ready" or bins.get("tot_b") != size:
            return None
        if bins["nseg"] == 1:
            return bytes(bins["b"]) if len(bins["b"]) == size else None
        parts = []
        for i in range(bins["nseg"]):
            expected = min(bins["seg_b"], size - i * bins["seg_b"])
            segment = self._bins(self.key(logical, f"s|{i}"))
            if segment is None or len(segment["b"]) != expected:
                return None
            parts.append(bytes(segment["b"]))
        return b"".join(parts)

    def _bins(self, key: Key) -> dict[str, Any] | None:
        try:
            _, _, bins = self.client.get(key)
        except aerospike.exception.RecordNotFound:
            return None
        return dict(bins)
