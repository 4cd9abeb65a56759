# SPDX-License-Identifier: Apache-2.0
"""LMCache's own StorageManager (multi-process mode, on the CPU) over our adapter."""

from __future__ import annotations

import argparse
import json
import os
import select
import time
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
import torch
from lmcache.v1.distributed.api import (
    GroupedObjectKeys,
    MemoryLayoutDesc,
    ObjectKey,
    PrefetchTaskSpec,
)
from lmcache.v1.distributed.config import (
    EvictionConfig,
    L1ManagerConfig,
    L1MemoryManagerConfig,
    StorageManagerConfig,
)
from lmcache.v1.distributed.l2_adapters.config import parse_args_to_l2_adapters_config
from lmcache.v1.distributed.storage_manager import StorageManager
from lmcache_driver import SPECS, object_key, wire_key

from lmcache_aerospike import Store

BOTH_ADAPTERS = True

SHAPE = (2, 6, 256, 384)  # keys and values, layers, tokens, width: 2.25 MiB of bfloat16
ELEMENTS = 2 * 6 * 256 * 384
LAYOUT = MemoryLayoutDesc(shapes=[torch.Size(SHAPE)], dtypes=[torch.bfloat16])
WAIT_SECONDS_MAX = 30.0


@contextmanager
def storage_manager(spec: dict[str, Any]) -> Iterator[StorageManager]:
    arguments = argparse.Namespace(l2_adapter=[json.dumps(spec)])
    memory = L1MemoryManagerConfig(size_in_bytes=96 << 20, use_lazy=False, shm_name="")
    manager = StorageManager(
        StorageManagerConfig(
            l1_manager_config=L1ManagerConfig(memory_config=memory),
            eviction_config=EvictionConfig(eviction_policy="noop"),
            l2_adapter_config=parse_args_to_l2_adapters_config(arguments),
        )
    )
    try:
        yield manager
    finally:
        manager.close()


def chunks(count: int, seed: int = 1) -> list[torch.Tensor]:
    generator = torch.Generator().manual_seed(seed)
    return [torch.randn(SHAPE, generator=generator).to(torch.bfloat16) for _ in range(count)]


def write(manager: StorageManager, keys: list[ObjectKey], tensors: list[torch.Tensor]) -> None:
    objects = manager.reserve_write(keys, LAYOUT)
    assert len(objects) == len(keys)
    for key, tensor in zip(keys, tensors, strict=True):
        objects[key].tensor.copy_(tensor.reshape(objects[key].tensor.shape))
    manager.finish_write(keys)


def await_stored(store: Store, keys: list[ObjectKey]) -> None:
    """Waits until another client of the cluster sees the objects."""
    deadline = time.monotonic() + WAIT_SECONDS_MAX
    while not all(store.exists_many([wire_key(k) for k in keys])):
        assert time.monotonic() < deadline, "LMCache did not store the chunks"
        select.select([], [], [], 0.02)


def prefetch(
    manager: StorageManager, keys: list[ObjectKey]
) -> tuple[int, dict[ObjectKey, torch.Tensor]]:
    """The number of chunks found in L2, and copies of those that can be read from L1 now."""
    group = GroupedObjectKeys(object_group_id=0, keys=keys, layout_desc=LAYOUT)
    handle = manager.submit_prefetch_task(PrefetchTaskSpec(key_groups=[group]))
    assert manager.wait_prefetch_status(handle, WAIT_SECONDS_MAX)
    result = manager.query_prefetch_status(handle)
    assert result is not None
    hits = int(result.l2_hit_cells[0].popcount())
    found, objects = manager.unsafe_read(keys[:hits])
    tensors = {
        key: item.tensor.reshape(SHAPE).clone() for key, item in zip(found, objects, strict=True)
    }
    if found:
        manager.finish_read_prefetched(found)
    return hits, tensors


@pytest.fixture
def store(server, set_name) -> Iterator[Store]:
    with Store(server.hosts, set_name=set_name) as client:
        yield client


@pytest.fixture
def serde(request, tmp_path) -> dict[str, Any] | None:
    """The `serde` of the adapter's JSON."""
    if request.param == "aesgcm":
        key_file = tmp_path / "master.key"
        key_file.write_bytes(os.urandom(32))
        return {"type": "aesgcm", "master_key_path": str(key_file), "aes_bits": 256}
    return {"type": request.param} if request.param else None


STORED_BYTES = {"": 2 * ELEMENTS, "fp8": ELEMENTS, "aesgcm": 2 * ELEMENTS + 29}


@pytest.mark.parametrize("serde", list(STORED_BYTES), indirect=True)
def test_chunks_leave_memory_and_come_back(server, store, set_name, adapter_kind, serde):
    spec = SPECS[adapter_kind](server.hosts, set_name)
    if serde:
        spec["serde"] = serde
    keys = [object_key(i, cache_salt="tenant") for i in range(5)]
    absent = object_key(99, cache_salt="tenant")
    tensors = chunks(len(keys))
    with storage_manager(spec) as manager:
        write(manager, keys, tensors)
        await_stored(store, keys)
        # What lies in the database: these objects, with the size that the serde made, no other.
        listed, _ = store.list(count=1000)
        assert sorted(item["key"] for item in listed) == sorted(wire_key(k) for k in keys)
        name = serde["type"] if serde else ""
        assert {item["bytes"] for item in listed} == {STORED_BYTES[name]}
        assert manager.delete_l1_keys(keys, force=True)[0] == len(keys)
        hits, loaded = prefetch(manager, [*keys, absent])
        assert hits == len(keys)
        check(loaded, keys, tensors, lossy=name == "fp8")
    # Another LMCache process, with an empty L1, finds them too.
    with storage_manager(spec) as manager:
        hits, loaded = prefetch(manager, keys)
        assert hits == len(keys)
        check(loaded, keys, tensors, lossy=name == "fp8")


def check(loaded, keys, tensors, *, lossy):
    assert list(loaded) == keys
    for key, tensor in zip(keys, tensors, strict=True):
        if lossy:  # three bits of mantissa: at most 1/16 off, and 2^-10 near zero
            error = (loaded[key].float() - tensor.float()).abs()
            assert bool((error <= tensor.float().abs() / 16 + 2**-10).all())
        else:
            assert torch.equal(loaded[key], tensor)


def test_a_chunk_that_is_gone_ends_the_prefix(server, store, set_name, adapter_kind):
    keys = [object_key(i) for i in range(5)]
    tensors = chunks(5, seed=2)
    with storage_manager(SPECS[adapter_kind](server.hosts, set_name)) as manager:
        write(manager, keys, tensors)
        await_stored(store, keys)
        manager.delete_l1_keys(keys, force=True)
        assert store.delete(wire_key(keys[3]))
        hits, loaded = prefetch(manager, keys)
        assert hits == 3
        check(loaded, keys[:3], tensors[:3], lossy=False)


def test_a_server_that_is_away_costs_hits_and_nothing_else(server, store, set_name, adapter_kind):
    keys = [object_key(i) for i in range(3)]
    tensors = chunks(3, seed=3)
    spec = SPECS[adapter_kind](server.hosts, set_name, batch_timeout_ms=500)
    with storage_manager(spec) as manager:
        write(manager, keys, tensors)
        await_stored(store, keys)
        manager.delete_l1_keys(keys, force=True)
        server.pause_node(0)
        try:
            hits, loaded = prefetch(manager, keys)
            assert (hits, loaded) == (0, {})
        finally:
            server.resume_node(0)
        deadline = time.monotonic() + 15
        while prefetch(manager, keys)[0] < len(keys):
            assert time.monotonic() < deadline, "the tier did not recover"
        _, loaded = prefetch(manager, keys)
        for key, tensor in zip(keys, tensors, strict=True):
            if key in loaded:
                assert torch.equal(loaded[key], tensor)


def test_the_wrong_key_of_a_cipher_is_a_miss(server, store, set_name, adapter_kind, tmp_path):
    specs = []
    for name in ("right", "wrong"):
        path = tmp_path / name
        path.write_bytes(os.urandom(32))
        spec = SPECS[adapter_kind](server.hosts, set_name)
        specs.append({**spec, "serde": {"type": "aesgcm", "master_key_path": str(path)}})
    keys, tensors = [object_key(1)], chunks(1)
    with storage_manager(specs[0]) as manager:
        write(manager, keys, tensors)
        await_stored(store, keys)
    with storage_manager(specs[1]) as manager:
        assert prefetch(manager, keys)[1] == {}
    with storage_manager(specs[0]) as manager:
        check(prefetch(manager, keys)[1], keys, tensors, lossy=False)
