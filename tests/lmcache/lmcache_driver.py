# SPDX-License-Identifier: Apache-2.0
"""Drives LMCache's native L2 adapter as its controllers do: submit, wait for the event, collect."""

from __future__ import annotations

import argparse
import json
import os
import random
import select
import time
from collections.abc import Callable, Sequence
from typing import Any, TypeVar

import aerospike
import torch
from lmcache.v1.distributed.api import MemoryLayoutDesc, ObjectKey
from lmcache.v1.distributed.l2_adapters import create_l2_adapter
from lmcache.v1.distributed.l2_adapters.config import parse_args_to_l2_adapters_config
from lmcache.v1.distributed.l2_adapters.native_connector_l2_adapter import _object_key_to_string
from lmcache.v1.memory_management import MemoryFormat, MemoryObjMetadata, TensorMemoryObj
from lmcache.v1.platform import consume_fd

T = TypeVar("T")

torch.set_num_threads(1)  # the machine's cores are for the engine and the server

WAIT_SECONDS_MAX = 30.0
NAMESPACE = os.environ.get("LMCACHE_AEROSPIKE_NAMESPACE", "lmcache")
GUARD_BYTES = 4096
GUARD = 0xA5
_LAYOUTS = {0: MemoryLayoutDesc(shapes=[torch.Size([1])], dtypes=[torch.uint8])}


def adapter_spec(hosts: str, set_name: str, **params: object) -> dict[str, Any]:
    """What a user writes behind ``--l2-adapter``, as a dict."""
    return {
        "type": "native_plugin",
        "module_path": "lmcache_aerospike.native_connector",
        "class_name": "AerospikeNativeConnector",
        "adapter_params": {"hosts": hosts, "set_name": set_name, **params},
    }


def plugin_spec(hosts: str, set_name: str, **params: object) -> dict[str, Any]:
    """The same for the adapter that is a class of ours."""
    return {
        "type": "plugin",
        "module_path": "lmcache_aerospike.l2_plugin",
        "class_name": "AerospikeL2Plugin",
        "adapter_params": {"hosts": hosts, "set_name": set_name, **params},
    }


SPECS: dict[str, Callable[..., dict[str, Any]]] = {
    "native_plugin": adapter_spec,
    "plugin": plugin_spec,
}


def create_adapter(spec: dict[str, Any]) -> Any:
    """The adapter as LMCache makes it from the text of the command line."""
    arguments = argparse.Namespace(l2_adapter=[json.dumps(spec)])
    (config,) = parse_args_to_l2_adapters_config(arguments).adapters
    return create_l2_adapter(config)


def object_key(index: int = 0, **fields: Any) -> ObjectKey:
    """A key with the hash of `index`; every other field can be given."""
    fields.setdefault("chunk_hash", index.to_bytes(4, "big") * 8)
    fields.setdefault("model_name", "meta-llama/Llama-3.1-8B")
    fields.setdefault("kv_rank", 0x01000100)
    return ObjectKey(**fields)


def wire_key(key: ObjectKey) -> str:
    """The text by which LMCache names the object to the engine."""
    return _object_key_to_string(key)


def meta_digest(set_name: str, key: ObjectKey) -> bytes:
    """The digest of the meta record, computed by the official client."""
    return bytes(aerospike.calc_digest(NAMESPACE, set_name, f"{wire_key(key)}|m"))


def segment_digest(set_name: str, key: ObjectKey, index: int) -> bytes:
    """The digest of a segment record, computed by the official client."""
    return bytes(aerospike.calc_digest(NAMESPACE, set_name, f"{wire_key(key)}|s|{index}"))


def random_bytes(seed: int, count: int) -> bytes:
    """Content that no other seed has."""
    return random.Random(seed).randbytes(count)


class GuardedObject:
    """A memory object of LMCache between two guard zones, in which nobody may write."""

    def __init__(self, size: int, content: bytes | None = None) -> None:
        self._arena = torch.full((size + 2 * GUARD_BYTES,), GUARD, dtype=torch.uint8)
        self._body = self._arena[GUARD_BYTES : GUARD_BYTES + size]
        if content is not None:
            self.write(content)
        metadata = MemoryObjMetadata(
            shape=torch.Size([size]),
            dtype=torch.uint8,
            address=0,
            phy_size=size,
            fmt=MemoryFormat.KV_2LTD,
            ref_count=1,
        )
        self.memory = TensorMemoryObj(raw_data=self._body, metadata=metadata, parent_allocator=None)

    def write(self, content: bytes) -> None:
        """Fills the front of the object."""
        if content:
            source = torch.frombuffer(bytearray(content), dtype=torch.uint8)
            self._body[: len(content)] = source

    def bytes(self) -> bytes:
        """The content, after a check of the guard zones."""
        assert bool((self._arena[:GUARD_BYTES] == GUARD).all()), "written before the object"
        assert bool((self._arena[-GUARD_BYTES:] == GUARD).all()), "written behind the object"
        return bytes(self._body.numpy())

    def is_untouched(self) -> bool:
        """Whether nobody has written since the object was made without content."""
        return bool((self._arena == GUARD).all())


class AdapterDriver:
    """One adapter and blocking calls over it."""

    def __init__(self, spec: dict[str, Any]) -> None:
        self.adapter = create_adapter(spec)
        self.set_name: str = spec["adapter_params"]["set_name"]

    @property
    def connector(self) -> Any:
        """What has the engine's counters inside the adapter."""
        return self.adapter._store if self.is_plugin else self.adapter._client

    @property
    def is_plugin(self) -> bool:
        """Whether the adapter is a class of ours."""
        return type(self.adapter).__name__ == "AerospikeL2Plugin"

    def store_many(self, keys: Sequence[ObjectKey], contents: Sequence[bytes]) -> Any:
        """Stores all in one task; returns LMCache's L2StoreResult."""
        objects = [GuardedObject(len(content), content) for content in contents]
        task = self.adapter.submit_store_task(list(keys), [o.memory for o in objects])
        result = self.wait_store(task)
        assert all(o.bytes() == c for o, c in zip(objects, contents, strict=True))
        return result

    def store(self, key: ObjectKey, content: bytes) -> bool:
        """Stores one object; whether that worked."""
        return bool(self.store_many([key], [content]).is_successful())

    def lookup(self, keys: Sequence[ObjectKey]) -> list[bool]:
        """One bit per key; the locks that LMCache takes are given back."""
        task = self.adapter.submit_lookup_and_lock_task(list(keys), _LAYOUTS)
        bits = self.wait_lookup(task, len(keys))
        self.adapter.submit_unlock([key for key, bit in zip(keys, bits, strict=True) if bit])
        return bits

    def load_into(self, keys: Sequence[ObjectKey], objects: Sequence[GuardedObject]) -> list[bool]:
        """Loads all in one task; one bit per key."""
        task = self.adapter.submit_load_task(list(keys), [o.memory for o in objects])
        return self.wait_load(task, len(keys))

    def load_many(self, keys: Sequence[ObjectKey], sizes: Sequence[int]) -> list[bytes | None]:
        """The contents, None for a miss."""
        objects = [GuardedObject(size) for size in sizes]
        bits = self.load_into(keys, objects)
        contents = [o.bytes() for o in objects]
        return [c if bit else None for c, bit in zip(contents, bits, strict=True)]

    def load(self, key: ObjectKey, size: int) -> bytes | None:
        """The content of one object, None for a miss."""
        return self.load_many([key], [size])[0]

    def delete(self, keys: Sequence[ObjectKey]) -> None:
        """Deletes; LMCache waits for it."""
        self.adapter.delete(list(keys))

    def wait_store(self, task: int) -> Any:
        """Waits for one store task."""
        fd = self.adapter.get_store_event_fd()
        return await_event(fd, lambda: self.adapter.pop_completed_store_tasks().get(task))

    def wait_lookup(self, task: int, count: int) -> list[bool]:
        """Waits for one lookup task of `count` keys."""
        fd = self.adapter.get_lookup_and_lock_event_fd()
        bitmap = await_event(fd, lambda: self.adapter.query_lookup_and_lock_result(task))
        assert self.adapter.query_lookup_and_lock_result(task) is None, "answered twice"
        return [bool(bitmap.test(i)) for i in range(count)]

    def wait_load(self, task: int, count: int) -> list[bool]:
        """Waits for one load task of `count` keys."""
        fd = self.adapter.get_load_event_fd()
        bitmap = await_event(fd, lambda: self.adapter.query_load_result(task))
        assert self.adapter.query_load_result(task) is None, "answered twice"
        return [bool(bitmap.test(i)) for i in range(count)]

    def close(self) -> None:
        """Closes the adapter, unless that has been done."""
        if self.is_plugin:
            self.adapter.close()
            return
        if self.adapter._stop.is_set():
            return
        # LMCache's thread looks for the end twice a second, or when woken; for nothing, here.
        self.adapter._stop.set()
        os.eventfd_write(self.connector.event_fd(), 1)
        self.adapter.close()


def await_event(fd: int, query: Callable[[], T | None]) -> T:
    """Waits for the event until `query` has an answer."""
    poller = select.poll()
    poller.register(fd, select.POLLIN)
    deadline = time.monotonic() + WAIT_SECONDS_MAX
    while (result := query()) is None:
        remaining = deadline - time.monotonic()
        assert remaining > 0, f"no result within {WAIT_SECONDS_MAX} s"
        if poller.poll(remaining * 1000):
            consume_fd(fd)
    return result
