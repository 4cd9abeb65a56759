# SPDX-License-Identifier: Apache-2.0
"""Loads chunks into memory objects of LMCache, whose sizes are known only when they arrive.

Memory is allocated for what is expected, and all objects of a call are loaded at once. Almost
always that fits: chunks are equal but for the last one of a prompt. What turns out shorter moves to
memory of its own size; what is longer is loaded once more.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Final

import torch
from lmcache.v1.memory_management import MemoryFormat
from lmcache.v1.protocol import RemoteMetadata, get_remote_metadata_bytes

from lmcache_aerospike._causes import QuietLog
from lmcache_aerospike.client import EngineStore, KeyResult
from lmcache_aerospike.errors import AerospikeConnectorError
from lmcache_aerospike.serde import write_payload_into

__all__ = ["Layout", "Loaded", "Loader", "layout_of"]

Loaded = Any
"""A memory object, None for a miss, or the error of that key."""

_BINARY: Final = (MemoryFormat.BINARY, MemoryFormat.BINARY_BUFFER)


@dataclass(frozen=True)
class Layout:
    """What a memory object must be allocated as.

    Attributes:
        shapes: Of its groups.
        dtypes: Of its groups.
        fmt: Its format.
        size: Bytes of all groups.
        metadata: The same as the bytes that go with a stored object; empty if it has none.
    """

    shapes: list[torch.Size]
    dtypes: list[torch.dtype]
    fmt: MemoryFormat
    size: int
    metadata: bytes = b""

    def is_like(self, other: Layout) -> bool:
        """Whether memory for one is memory for the other."""
        return (self.shapes, self.dtypes, self.fmt) == (other.shapes, other.dtypes, other.fmt)


def layout_of(metadata: bytes, size: int) -> Layout | None:
    """Reads the metadata of an object of `size` bytes; None if they do not belong together."""
    if len(metadata) != get_remote_metadata_bytes():
        return None
    try:
        known = RemoteMetadata.deserialize(metadata)
    except (ValueError, KeyError):
        return None
    if known.length != size or any(extent < 0 for shape in known.shapes for extent in shape):
        return None
    if known.fmt in _BINARY:
        needed = known.shapes[0][0]
    elif None in known.dtypes or known.fmt == MemoryFormat.UNDEFINED:
        return None
    else:
        needed = sum(
            math.prod(shape) * dtype.itemsize
            for shape, dtype in zip(known.shapes, known.dtypes, strict=True)
        )
    # A size that the shapes do not give would leave a tail undefined, or have no room.
    if needed != size:
        return None
    return Layout(known.shapes, known.dtypes, known.fmt, size, metadata)


class Loader:
    """Loads chunks for one connector.

    Args:
        store: Where they are.
        connector: A RemoteConnector of LMCache, for its shapes and its reshape_partial_chunk().
        backend: LMCache's allocator.
        layerwise: Whether chunks are stored by layer, so that none is as large as a full one.
        log: For what is wrong with single objects.
    """

    def __init__(
        self,
        store: EngineStore,
        connector: Any,  # noqa: ANN401 - LMCache's
        backend: Any,  # noqa: ANN401 - LMCache's
        *,
        layerwise: bool,
        log: QuietLog,
    ) -> None:
        self._store = store
        self._connector = connector
        self._backend = backend
        self._log = log
        # Allocating may evict but must not wait: it would wait for what this very loop has to do.
        takes_it = "busy_loop" in inspect.signature(backend.allocate).parameters
        self._allocate_options = {"busy_loop": False} if takes_it else {}
        self._layerwise = layerwise
        self._plain = Layout(
            list(connector.meta_shapes),
            list(connector.meta_dtypes),
            connector.meta_fmt,
            connector.full_chunk_size_bytes,
        )
        # None: nothing is known yet, and the first objects are asked for their sizes.
        self._expected: Layout | None = None if layerwise else self._plain

    def expect(self, metadata: bytes, size: int) -> None:
        """Takes note of an object that was stored."""
        if self._expected is None or self._expected.metadata != metadata:
            layout = layout_of(metadata, size)
            if layout is not None:
                self._learn(layout)

    def _learn(self, layout: Layout) -> None:
        """The largest of its kind is expected next: a shorter one still fits then."""
        now = self._expected
        if now is None or now.fmt != layout.fmt or now.size <= layout.size:
            self._expected = layout

    async def load(self, keys: Sequence[str]) -> list[Loaded]:
        """Loads objects; the caller has to release what it gets.

        Whatever happens, also if this is cancelled, nothing else stays allocated.
        """
        out: list[Loaded] = [None] * len(keys)
        again: dict[int, Layout] = {}
        try:
            expected = self._expected
            if expected is None:
                results = await self._run(keys, [None] * len(keys))
                out[:] = [error for _, _, _, error in results]
                self._note_longer(keys, results, 0, again)
            else:
                wanted = dict.fromkeys(range(len(keys)), expected)
                await self._load_as(keys, wanted, out, again)
            if again:
                # One that has grown since is a miss.
                await self._load_as(keys, again, out, {})
        except BaseException:
            _release(out)
            raise
        return out

    async def _load_as(
        self,
        keys: Sequence[str],
        layouts: dict[int, Layout],
        out: list[Loaded],
        again: dict[int, Layout],
    ) -> None:
        """Loads objects with the given layouts into `out`; what is longer goes into `again`."""
        objects = self._allocate_many(list(layouts.values()))
        chosen = list(layouts.items())[: len(objects)]
        if not chosen:
            return
        names = [keys[index] for index, _ in chosen]
        results = await self._run(names, objects)
        try:
            while objects:
                index, layout = chosen[len(objects) - 1]
                result = results[len(objects) - 1]
                out[index] = self._settle(keys[index], objects.pop(), layout, result)
        finally:
            _release(objects)
        for (index, layout), result in zip(chosen, results, strict=True):
            self._note_longer(keys[index : index + 1], [result], layout.size, again, index)

    def _note_longer(
        self,
        keys: Sequence[str],
        results: Sequence[KeyResult],
        room: int,
        again: dict[int, Layout],
        first: int = 0,
    ) -> None:
        """Notes what did not fit, with its true layout."""
        for index, (key, (outcome, size, metadata, _)) in enumerate(
            zip(keys, results, strict=True), first
        ):
            layout = None
            if outcome == "miss" and size > room:
                layout = self._layout_of(key, size, metadata)
            if layout is not None:
                again[index] = layout

    def _allocate_many(self, layouts: Sequence[Layout]) -> list[Any]:
        """As many objects as there is room for."""
        objects: list[Any] = []
        try:
            for layout in layouts:
                memory = self._allocate(layout)
                if memory is None:
                    break
                objects.append(memory)
        except BaseException:
            _release(objects)
            raise
        return objects

    def _allocate(self, layout: Layout) -> Any:  # noqa: ANN401 - LMCache's
        try:
            memory = self._backend.allocate(
                list(layout.shapes), list(layout.dtypes), layout.fmt, **self._allocate_options
            )
        except ValueError as error:
            # Stored by another LMCache, with a format that this allocator does not have.
            self._log.warning("format", f"memory for a loaded chunk: {error}")
            return None
        if memory is None:
            self._log.warning("allocate", "no room in LMCache's CPU memory for a loaded chunk")
        return memory

    async def _run(self, keys: Sequence[str], objects: list[Any]) -> list[KeyResult]:
        """One batch. Objects stay allocated until the engine has let go of their memory."""
        future = None
        try:
            buffers = [bytearray() if one is None else one.byte_array for one in objects]
            future = self._store.get_into(keys, buffers, lambda: _release(objects))
            return await future
        except BaseException:
            if future is None or not future.cancelled():
                _release(objects)
            raise

    def _settle(self, key: str, memory: Any, layout: Layout, result: KeyResult) -> Loaded:  # noqa: ANN401
        """What became of one object: itself, cut or moved; otherwise it is released."""
        keep = None
        try:
            outcome, size, metadata, error = result
            if outcome == "error":
                return error
            if outcome == "hit":
                keep = self._fit(key, memory, layout, size, metadata)
            return keep
        finally:
            if keep is not memory:
                memory.ref_count_down()

    def _fit(
        self,
        key: str,
        memory: Any,  # noqa: ANN401 - LMCache's
        layout: Layout,
        size: int,
        metadata: bytes | None,
    ) -> Any:  # noqa: ANN401 - LMCache's
        true = self._layout_of(key, size, metadata)
        if true is None:
            return None
        if true.is_like(layout):
            return memory if true.metadata else self._cut(key, memory, size)
        moved = self._allocate(true)
        if moved is None:
            return None
        try:
            write_payload_into(moved, memoryview(memory.byte_array)[:size])
        except BaseException:
            moved.ref_count_down()
            raise
        if true.metadata:
            return moved
        whole = self._cut(key, moved, size)
        if whole is None:
            moved.ref_count_down()
        return whole

    def _layout_of(self, key: str, size: int, metadata: bytes | None) -> Layout | None:
        """The layout of a stored object, None if there is none that could be right."""
        if not metadata or not self._connector.save_chunk_meta:
            if self._layerwise:
                self._log.warning("metadata", f"{_short(key)}: stored without LMCache's metadata")
                return None
            return self._plain if size <= self._plain.size else None
        expected = self._expected
        if expected is not None and expected.metadata == metadata and expected.size == size:
            return expected
        layout = layout_of(metadata, size)
        if layout is None:
            self._log.warning("metadata", f"{_short(key)}: its metadata contradict its size")
        else:
            self._learn(layout)
        return layout

    def _cut(self, key: str, memory: Any, size: int) -> Any:  # noqa: ANN401 - LMCache's
        """Shortens an object without metadata to what was loaded."""
        try:
            return self._connector.reshape_partial_chunk(memory, size)
        except ValueError as error:
            self._log.warning("partial", f"{_short(key)}: {error}")
            return None


def _release(objects: list[Any]) -> None:
    """Lets go of memory objects, and forgets them, so that they cannot be released twice."""
    while objects:
        memory = objects.pop()
        if memory is not None and not isinstance(memory, AerospikeConnectorError):
            memory.ref_count_down()


def _short(key: str) -> str:
    return key if len(key) <= 120 else key[:117] + "..."
