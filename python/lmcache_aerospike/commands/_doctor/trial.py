# SPDX-License-Identifier: Apache-2.0
"""Does what a user will do: encodes, stores, loads, compares, deletes."""

from __future__ import annotations

import os
import time
from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

from lmcache_aerospike.commands._doctor.findings import FAIL, OK, WARN, Finding
from lmcache_aerospike.commands._remedies import remedy_of
from lmcache_aerospike.commands.session import bytes_text
from lmcache_aerospike.errors import AerospikeConnectorError, AerospikeTimeoutError
from lmcache_aerospike.store import Store

if TYPE_CHECKING:
    from lmcache_aerospike._native import StoreLimits

_SMALL = 4096
_TTL_SECONDS_MAX = 600
# 1.0, which every format of fewer bits keeps exactly.
_ONES = {
    "bfloat16": b"\x80\x3f",
    "float16": b"\x00\x3c",
    "float32": b"\x00\x00\x80\x3f",
}


def check_segments(limits: StoreLimits) -> Iterator[Finding]:
    """The sizes that follow from the record limit and our options."""
    for warning in limits["warnings"]:
        yield Finding("segments", WARN, warning, "lower that option, or raise max-record-size")
    yield Finding(
        "segments",
        OK,
        f"of {bytes_text(limits['target_segment_bytes'])}; objects up to "
        f"{bytes_text(limits['single_record_threshold_bytes'])} are one record",
    )


def check_serde(config: Mapping[str, Any] | None) -> Iterator[Finding]:
    """Whether the serde of the options gives back what it was given."""
    from lmcache_aerospike import serde  # noqa: PLC0415 - needed with this option only

    if config is None:
        yield Finding("serde", OK, "none: payloads are stored as they are")
        return
    given = {k: v for k, v in config.items() if k not in ("dtype", "max_workers")}
    dtype = str(config.get("dtype", "uint8"))
    pattern = _pattern(config, _SMALL)
    width = len(_ONES.get(dtype, b"x"))
    remedy = "correct our option serde, see docs/reference/serde.md"
    try:
        encoder, decoder = _make(given)
        shape = (_SMALL // width,)
        source = serde.Tensor(bytearray(pattern), shape, dtype)
        encoded = bytearray(encoder.estimate_serialized_size(source))
        size = encoder.serialize(source, encoded)
        back = bytearray(_SMALL)
        decoder.deserialize(memoryview(encoded)[:size], serde.Tensor(back, shape, dtype))
    except (AerospikeConnectorError, TypeError, ValueError) as error:
        yield Finding("serde", FAIL, f"{config.get('type')}: {error}", remedy)
        return
    if bytes(back) != pattern:
        yield Finding("serde", FAIL, f"{encoder.tag}: gives other numbers back", remedy)
    else:
        ratio = size / _SMALL
        yield Finding("serde", OK, f"{encoder.tag}: self-test passed ({ratio:.2f} of the bytes)")


def _make(config: dict[str, Any]) -> tuple[Any, Any]:
    from lmcache_aerospike import _native  # noqa: PLC0415

    return _native.Serializer(config), _native.Deserializer(config)


def _pattern(serde: Mapping[str, Any] | None, size: int) -> bytes:
    """Content that comes back exactly: any bytes without a serde, else ones."""
    if serde is None:
        return os.urandom(size)
    one = _ONES.get(str(serde.get("dtype")), b"\x01")
    return one * (size // len(one))


def check_round_trip(store: Store, namespace: str, options: Mapping[str, Any]) -> Iterator[Finding]:
    """Stores, loads, compares and deletes an object of each kind: small, one segment, several."""
    segment = store.limits()["target_segment_bytes"] // 8 * 8
    ttl = int(options["default_ttl_seconds"])
    name = f"lmcache-aerospike-doctor-{os.getpid()}-{time.time_ns()}"
    for size in (_SMALL, segment, 2 * segment + _SMALL):
        key = f"{name}-{size}"
        content = _pattern(options["serde"], size)
        life = min(ttl, _TTL_SECONDS_MAX) if ttl > 0 else None
        try:
            yield _one_trip(store, key, content, life)
        except AerospikeConnectorError as error:
            remedy = remedy_of(error).replace("NAMESPACE", namespace)
            if isinstance(error, AerospikeTimeoutError):
                remedy = "see the lines above, the log of the nodes, and the network between"
            username = str(options["username"])
            remedy = remedy.replace("user NAME", f"user {username}") if username else remedy
            yield Finding("round trip", FAIL, f"{bytes_text(size)}: {error}", remedy)
            return


def _one_trip(store: Store, key: str, content: bytes, ttl: int | None) -> Finding:
    size = len(content)
    started = time.monotonic()
    store.put(key, content, ttl)
    stored = time.monotonic()
    try:
        target = bytearray(size)
        loaded = store.get_into(key, target)
        done = time.monotonic()
    finally:
        is_deleted = store.delete(key)
    if loaded != size:
        reasons = [name for name, n in store.stats()["misses_by_reason"].items() if n]
        detail = f"{bytes_text(size)}: stored, then a miss ({', '.join(reasons) or 'unknown'})"
        return Finding(
            "round trip", FAIL, detail,
            "does somebody else delete or evict? look for evicted_objects and truncate_lut in: "
            "asinfo -v namespace/...",
        )  # fmt: skip
    if target != content:
        detail = f"{bytes_text(size)}: came back with other bytes"
        return Finding("round trip", FAIL, detail, "set verify=full, and check the memory")
    if not is_deleted:
        return Finding("round trip", WARN, f"{bytes_text(size)}: had gone before it was deleted")
    times = f"stored in {1000 * (stored - started):.1f} ms, loaded in {1000 * (done - stored):.1f}"
    return Finding("round trip", OK, f"{bytes_text(size)}: {times} ms, every byte right")
