# SPDX-License-Identifier: Apache-2.0
"""LMCache's chunk metadata, and payloads of its memory objects.

LMCache is imported when these are called, not before.
"""

from __future__ import annotations

import time
import zlib
from typing import TYPE_CHECKING, Any, Protocol

from lmcache_aerospike.errors import InternalError

if TYPE_CHECKING:
    from lmcache_aerospike.sharding import ShardPlan

__all__ = ["allocate_for_read", "build_remote_metadata", "meta_bins", "write_payload_into"]

_SCHEMA_VERSION = 1


class HasChunkShape(Protocol):
    """What a RemoteConnector of LMCache knows about its chunks."""

    save_chunk_meta: bool
    meta_shapes: Any
    meta_dtypes: Any
    meta_fmt: Any


def build_remote_metadata(memory_obj: Any) -> Any:  # noqa: ANN401 - LMCache's
    """LMCache's RemoteMetadata of a memory object."""
    from lmcache.v1.protocol import RemoteMetadata  # noqa: PLC0415 - optional

    return RemoteMetadata(
        len(memory_obj.byte_array),
        _shapes_of(memory_obj),
        memory_obj.get_dtypes(),
        memory_obj.get_memory_format(),
    )


def _shapes_of(memory_obj: Any) -> Any:  # noqa: ANN401 - LMCache's
    """Its shapes; after LMCache's reshape_partial_chunk() only `meta.shape` is the present one."""
    shapes = memory_obj.get_shapes()
    present = getattr(getattr(memory_obj, "meta", None), "shape", None)
    return [present] if len(shapes) == 1 and present is not None else shapes


def meta_bins(
    *,
    plan: ShardPlan,
    memory_obj: Any,  # noqa: ANN401 - LMCache's
    save_chunk_meta: bool,
    enable_crc32: bool,
    default_ttl: int,
    pinned: bool,
) -> dict[str, Any]:
    """The bins of the meta record of an object, as the engine writes them but for its sums.

    Args:
        plan: How the payload is cut.
        memory_obj: The object.
        save_chunk_meta: Whether its metadata go along.
        enable_crc32: Whether to add the sum of the payload.
        default_ttl: The TTL that the record will get; it is no bin.
        pinned: Whether the object never expires.
    """
    del default_ttl
    payload = memoryview(memory_obj.byte_array)
    bins: dict[str, Any] = {
        "ver": _SCHEMA_VERSION,
        "state": "ready",
        "nseg": plan.nseg,
        "seg_b": plan.seg_b,
        "tot_b": len(payload),
        "created_at": int(time.time()),
        "pin": pinned,
    }
    if save_chunk_meta:
        bins["md"] = build_remote_metadata(memory_obj).serialize()
    if plan.nseg == 1:
        bins["b"] = bytes(payload)
    if enable_crc32:
        bins["crc32"] = zlib.crc32(payload) & 0xFFFFFFFF
    return bins


def allocate_for_read(
    local_cpu_backend: Any,  # noqa: ANN401 - LMCache's
    base_self: HasChunkShape,
    meta_bins: dict[str, Any],
) -> tuple[Any, bool]:
    """Memory for an object whose meta record was read.

    Args:
        local_cpu_backend: LMCache's allocator.
        base_self: The connector, which knows the shape of a full chunk.
        meta_bins: The meta record.

    Returns:
        The memory object, None if there is no room, and whether the caller has to cut it to the
        bytes that it read.
    """
    if base_self.save_chunk_meta and "md" in meta_bins:
        from lmcache.v1.protocol import RemoteMetadata  # noqa: PLC0415 - optional

        known = RemoteMetadata.deserialize(meta_bins["md"])
        return local_cpu_backend.allocate(known.shapes, known.dtypes, known.fmt), False
    memory_obj = local_cpu_backend.allocate(
        base_self.meta_shapes, base_self.meta_dtypes, base_self.meta_fmt
    )
    return memory_obj, memory_obj is not None


def write_payload_into(memory_obj: Any, payload: bytes | memoryview) -> int:  # noqa: ANN401
    """Copies a payload to the front of a memory object and returns its bytes.

    Raises:
        InternalError: It is longer than the memory object; nothing was written.
    """
    target = memoryview(memory_obj.byte_array).cast("B")
    source = memoryview(payload).cast("B")
    if len(source) > len(target):
        msg = f"payload of {len(source)} bytes, expected at most {len(target)}"
        raise InternalError(msg)
    target[: len(source)] = source
    return len(source)
