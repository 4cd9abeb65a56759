# SPDX-License-Identifier: Apache-2.0
"""Serdes as LMCache runs them: its objects, its processors, its wrapper around an L2 adapter."""

from __future__ import annotations

import argparse
import json
import os
import random
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import torch
from lmcache.v1.distributed.api import MemoryLayoutDesc, ObjectKey
from lmcache.v1.distributed.config import L1ManagerConfig, L1MemoryManagerConfig
from lmcache.v1.distributed.l1_manager import L1Manager
from lmcache.v1.distributed.l2_adapters import create_l2_adapter
from lmcache.v1.distributed.l2_adapters.config import parse_args_to_l2_adapters_config
from lmcache.v1.distributed.l2_adapters.serde_wrapper import SerdeL2AdapterWrapper
from lmcache.v1.distributed.serde import SerdeConfig, SerdeProcessor, create_serde_processor
from lmcache.v1.memory_management import MemoryFormat, MemoryObjMetadata, TensorMemoryObj
from lmcache_driver import GUARD, AdapterDriver, GuardedObject, await_event, object_key

if TYPE_CHECKING:
    from typing_extensions import Self

Layout = Sequence[tuple[Sequence[int], torch.dtype]]

BF16, FP16, FP32 = torch.bfloat16, torch.float16, torch.float32
U8, E4M3, E5M2 = torch.uint8, torch.float8_e4m3fn, torch.float8_e5m2
L1_BYTES = 64 << 20


def layout_bytes(layout: Layout) -> int:
    """The size of an object of this layout."""
    return sum(torch.Size(shape).numel() * dtype.itemsize for shape, dtype in layout)


def layout_desc(layout: Layout) -> MemoryLayoutDesc:
    """The layout as LMCache writes it."""
    return MemoryLayoutDesc(
        shapes=[torch.Size(shape) for shape, _ in layout], dtypes=[dtype for _, dtype in layout]
    )


def any_bits(layout: Layout, seed: int) -> bytes:
    """Random bits: NaNs of all kinds, infinities and denormal numbers are among them."""
    return random.Random(seed).randbytes(layout_bytes(layout))


def numbers(layout: Layout, seed: int) -> bytes:
    """Numbers like those of a KV cache."""
    generator = torch.Generator().manual_seed(seed)
    parts = []
    for shape, dtype in layout:
        values = torch.randn(torch.Size(shape), generator=generator)
        if dtype == U8:
            values = values.abs() * 50
        parts.append(bytes(values.to(dtype).view(U8).numpy()))
    return b"".join(parts)


class KvObject(GuardedObject):
    """A memory object of tensors one behind the other, between two guard zones."""

    def __init__(self, layout: Layout, content: bytes | None = None) -> None:
        size = layout_bytes(layout)
        super().__init__(size, content)
        shapes, dtypes = layout_desc(layout).shapes, layout_desc(layout).dtypes
        metadata = MemoryObjMetadata(
            shape=shapes[0],
            dtype=dtypes[0],
            address=0,
            phy_size=size,
            fmt=MemoryFormat.KV_2LTD,
            ref_count=1,
            shapes=shapes,
            dtypes=dtypes,
        )
        self.memory = TensorMemoryObj(raw_data=self._body, metadata=metadata, parent_allocator=None)


def byte_object(size: int, content: bytes | None = None) -> KvObject:
    """A buffer for serialized bytes, as the wrapper reserves it."""
    return KvObject([((size,), U8)], content)


class SerdeDriver:
    """One processor, as LMCache makes it of the JSON or another, and blocking calls over it."""

    def __init__(self, serde: dict[str, Any], processor: SerdeProcessor | None = None) -> None:
        kwargs = {name: value for name, value in serde.items() if name != "type"}
        self.processor = processor or create_serde_processor(SerdeConfig(serde["type"], kwargs))

    def estimate(self, layout: Layout) -> int:
        """The bytes to reserve for an object."""
        return int(self.processor.estimate_serialized_size(layout_desc(layout)))

    def serialize(self, layout: Layout, content: bytes, key: ObjectKey) -> bytes | None:
        """The serialized bytes of one object; None if that failed."""
        source, target = KvObject(layout, content), byte_object(self.estimate(layout))
        if not self.run_serialize([source], [target], [key]):
            target.bytes()  # checks the guard zones
            return None
        assert source.bytes() == content
        return target.bytes()[: target.memory.get_size()]

    def deserialize(self, layout: Layout, frame: bytes, key: ObjectKey) -> bytes | None:
        """The object; None if that failed."""
        source, target = byte_object(len(frame), frame), KvObject(layout)
        ok = self.run_deserialize([source], [target], [key])
        content = target.bytes()
        assert source.bytes() == frame
        return content if ok else None

    def run_serialize(self, sources: Any, targets: Any, keys: Sequence[ObjectKey]) -> bool:
        """One task."""
        task = self.processor.submit_serialize(
            [o.memory for o in sources], [o.memory for o in targets], list(keys)
        )
        fd = self.processor.get_serialize_event_fd()
        result = await_event(fd, lambda: self.processor.query_serialize_result(task))
        assert self.processor.query_serialize_result(task) is None, "answered twice"
        return bool(result)

    def run_deserialize(self, sources: Any, targets: Any, keys: Sequence[ObjectKey]) -> bool:
        """One task."""
        task = self.processor.submit_deserialize(
            [o.memory for o in sources], [o.memory for o in targets], list(keys)
        )
        fd = self.processor.get_deserialize_event_fd()
        result = await_event(fd, lambda: self.processor.query_deserialize_result(task))
        assert self.processor.query_deserialize_result(task) is None, "answered twice"
        return bool(result)

    def close(self) -> None:
        """Closes the processor."""
        self.processor.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()


def make_l1_manager() -> L1Manager:
    """LMCache's L1 in plain memory."""
    memory = L1MemoryManagerConfig(size_in_bytes=L1_BYTES, use_lazy=False, shm_name="")
    return L1Manager(L1ManagerConfig(memory_config=memory))


def l1_balance(manager: L1Manager) -> dict[str, int]:
    """What temporary buffers leave behind in L1 unless they are given back.

    Not `staging_bytes`: LMCache 0.5.6 adds the estimate to it and takes away what was written.
    """
    names = (
        *("total_object_count", "write_locked_count", "read_locked_count", "temporary_count"),
        *("staging_object_count", "memory_used_bytes"),
    )
    status = manager.report_status()
    assert status["is_healthy"]
    return {name: status[name] for name in names}


def overwrite_l1(manager: L1Manager) -> None:
    """Fills L1's free memory, in which the remains of older objects lie."""
    used, total = manager.get_memory_usage()
    key, layout = object_key(cache_salt="overwrite"), layout_desc([((total - used,), U8)])
    ((_, memory),) = manager.reserve_write([key], [True], layout, tag="overwrite").values()
    memory.tensor.fill_(GUARD)
    manager.finish_write_and_delete([key], tag="overwrite")


NOTHING_HELD = {
    "total_object_count": 0,
    "write_locked_count": 0,
    "read_locked_count": 0,
    "temporary_count": 0,
    "staging_object_count": 0,
    "memory_used_bytes": 0,
}


class WrappedDriver(AdapterDriver):
    """An adapter inside LMCache's wrapper, put together as its StorageManager does it."""

    def __init__(self, spec: dict[str, Any], manager: L1Manager) -> None:
        arguments = argparse.Namespace(l2_adapter=[json.dumps(spec)])
        (config,) = parse_args_to_l2_adapters_config(arguments).adapters
        self.inner = create_l2_adapter(config, manager.get_l1_memory_desc())
        self.serde = create_serde_processor(config.serde_config)
        self.adapter = SerdeL2AdapterWrapper(inner=self.inner, serde=self.serde, l1_manager=manager)

    def store_objects(self, keys: Sequence[ObjectKey], objects: Sequence[KvObject]) -> Any:
        """Stores all in one task; returns LMCache's L2StoreResult."""
        before = [o.bytes() for o in objects]
        task = self.adapter.submit_store_task(list(keys), [o.memory for o in objects])
        result = self.wait_store(task)
        assert self.adapter.pop_completed_store_tasks() == {}, "completed twice"
        assert [o.bytes() for o in objects] == before
        return result

    def close(self) -> None:
        """Closes the wrapper, the adapter and the processor."""
        # LMCache's threads look for the end twice a second, or when woken; for nothing, here.
        self.adapter._stop_flag.set()
        os.eventfd_write(self.serde.get_serialize_event_fd(), 1)
        if hasattr(self.inner, "_client"):
            self.adapter._thread.join()
            self.inner._stop.set()
            os.eventfd_write(self.inner._client.event_fd(), 1)
        self.adapter.close()


@contextmanager
def wrapped(spec: dict[str, Any], manager: L1Manager) -> Iterator[WrappedDriver]:
    """A wrapped adapter; nothing of it stays in L1."""
    before = l1_balance(manager)
    driver = WrappedDriver(spec, manager)
    try:
        yield driver
        assert l1_balance(manager) == before, "temporary buffers or locks are left"
    finally:
        driver.close()
    assert l1_balance(manager) == before
