# SPDX-License-Identifier: Apache-2.0
"""Serdes in LMCache's StorageManager: as a user configures them, and what L1 holds afterwards."""

from __future__ import annotations

import json
import re
import select
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from lmcache.v1.distributed.api import GroupedObjectKeys, PrefetchTaskSpec
from lmcache_driver import adapter_spec, object_key, wire_key
from serde_driver import BF16, FP16, NOTHING_HELD, U8, l1_balance, layout_desc, numbers
from test_storage_manager import WAIT_SECONDS_MAX, await_stored, storage_manager

from lmcache_aerospike import Store, _native

ROOT = Path(__file__).parents[2]
RELATIVE_MAX = 1 / 16  # three bits of mantissa

# What a user runs: LMCache's classes, the JSON, and nothing of this package.
PROGRAM = """
import argparse, sys, time, torch
from lmcache.v1.distributed.api import (
    GroupedObjectKeys, MemoryLayoutDesc, ObjectKey, PrefetchTaskSpec)
from lmcache.v1.distributed.config import (
    EvictionConfig, L1ManagerConfig, L1MemoryManagerConfig, StorageManagerConfig)
from lmcache.v1.distributed.l2_adapters.config import parse_args_to_l2_adapters_config
from lmcache.v1.distributed.storage_manager import StorageManager
def start():
    memory = L1MemoryManagerConfig(size_in_bytes=32 << 20, use_lazy=False, shm_name="")
    return StorageManager(StorageManagerConfig(
        l1_manager_config=L1ManagerConfig(memory_config=memory),
        eviction_config=EvictionConfig(eviction_policy="noop"),
        l2_adapter_config=parse_args_to_l2_adapters_config(
            argparse.Namespace(l2_adapter=[sys.argv[1]]))))
layout = MemoryLayoutDesc(shapes=[torch.Size((2, 4, 64, 256))], dtypes=[torch.bfloat16])
keys = [ObjectKey(chunk_hash=bytes([i]) * 32, model_name="m", kv_rank=1) for i in range(3)]
chunks = [torch.randn(2, 4, 64, 256).to(torch.bfloat16) for _ in keys]
writer, reader = start(), start()
objects = writer.reserve_write(keys, layout)
for key, chunk in zip(keys, chunks):
    objects[key].tensor.copy_(chunk)
writer.finish_write(keys)
group = GroupedObjectKeys(object_group_id=0, keys=keys, layout_desc=layout)
deadline = time.monotonic() + 30
while True:
    handle = reader.submit_prefetch_task(PrefetchTaskSpec(key_groups=[group]))
    assert reader.wait_prefetch_status(handle, 30)
    hits = int(reader.query_prefetch_status(handle).l2_hit_cells[0].popcount())
    found, loaded = reader.unsafe_read(keys[:hits])
    if hits == 3:
        break
    reader.finish_read_prefetched(found)
    reader.delete_l1_keys(found, force=True)
    assert time.monotonic() < deadline
    time.sleep(0.02)
worst = max(((a.tensor.float() - b.float()).abs() / (b.float().abs() + 2**-6)).max().item()
            for a, b in zip(loaded, chunks))
exact = all(torch.equal(a.tensor, b) for a, b in zip(loaded, chunks))
reader.finish_read_prefetched(found)
reader.close()
writer.close()
print("result", hits, len(found), worst, exact)
"""


def documented() -> dict[str, dict[str, Any]]:
    """The two configurations of the guide."""
    text = (ROOT / "docs/guides/lmcache.md").read_text()
    blocks = [json.loads(block) for block in re.findall(r"```json\n(.*?)```", text, re.DOTALL)]
    fused = [block for block in blocks if "serde" in block["adapter_params"]]
    around = [block for block in blocks if "serde" in block]
    assert (len(fused), len(around)) == (1, 1)
    return {"fused": fused[0], "around": around[0]}


@pytest.fixture(scope="module")
def outcomes(node: _native.DevServer) -> dict[str, tuple[int, str, str]]:
    """Exit code, output and errors of the program with each configuration; side by side."""
    processes = {}
    for form, spec in documented().items():
        spec["adapter_params"] |= {"hosts": node.hosts, "set_name": f"guide_{form}"}
        processes[form] = subprocess.Popen(
            [sys.executable, "-W", "ignore", "-c", PROGRAM, json.dumps(spec)],
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
    outputs = {form: process.communicate(timeout=120) for form, process in processes.items()}
    return {form: (processes[form].returncode, *output) for form, output in outputs.items()}


@pytest.mark.parametrize("form", ["fused", "around"])
def test_the_guides_json_works_in_a_new_process(server, outcomes, form):
    code, output, errors = outcomes[form]
    assert code == 0, errors[-4000:]
    (line,) = [line for line in output.splitlines() if line.startswith("result ")]
    _, hits, read, worst, exact = line.split()
    assert (hits, read) == ("3", "3")
    assert float(worst) <= RELATIVE_MAX
    assert exact == "False", "nothing was rounded: there was no serde"
    with Store(server.hosts, set_name=f"guide_{form}") as store:
        listed, _ = store.list(count=100)
        assert [item["bytes"] for item in listed] == [2 * 4 * 64 * 256] * 3
        tags = {store.inspect(item["key"])["serde"] for item in listed}
    assert tags == {"fp8:float8_e4m3fn" if form == "fused" else None}


def l1_of(manager: Any) -> Any:
    """The only L1."""
    (l1,) = manager._l1_by_tag.values()
    return l1


def await_balance(manager: Any, expected: dict[str, int]) -> None:
    """Waits until L1 holds this; LMCache gives its locks back after the store was done."""
    deadline = time.monotonic() + WAIT_SECONDS_MAX
    while (balance := l1_balance(l1_of(manager))) != expected:
        assert time.monotonic() < deadline, f"L1 holds {balance}"
        select.select([], [], [], 0.01)


def write(manager: Any, keys: Any, layout: Any, contents: Any) -> None:
    """Puts chunks into L1, from which LMCache stores them."""
    objects = manager.reserve_write(keys, layout_desc(layout))
    assert len(objects) == len(keys)
    for key, content in zip(keys, contents, strict=True):
        objects[key].raw_data[: len(content)] = torch.frombuffer(bytearray(content), dtype=U8)


def prefetch(manager: Any, groups: Any) -> list[int]:
    """How many of the keys of each group (id, keys, layout) are in L1 now, from L2."""
    spec = [
        GroupedObjectKeys(object_group_id=number, keys=keys, layout_desc=layout_desc(layout))
        for number, keys, layout in groups
    ]
    handle = manager.submit_prefetch_task(PrefetchTaskSpec(key_groups=spec))
    assert manager.wait_prefetch_status(handle, WAIT_SECONDS_MAX)
    result = manager.query_prefetch_status(handle)
    assert result is not None
    return [int(cells.popcount()) for cells in result.l2_hit_cells]


def contents_of(manager: Any, keys: Any, size: int) -> list[bytes]:
    """What L1 holds; the read locks of the prefetch are given back."""
    found, objects = manager.unsafe_read(keys)
    assert list(found) == list(keys)
    contents = [bytes(item.raw_data[:size].numpy()) for item in objects]
    manager.finish_read_prefetched(found)
    return contents


@pytest.fixture
def store(server: Any, set_name: str) -> Iterator[Store]:
    """Another client of the cluster."""
    with Store(server.hosts, set_name=set_name) as client:
        yield client


LAYOUTS = {
    "kv": [((2, 4, 64, 256), BF16)],
    "mla": [((1, 4, 64, 576), BF16)],
    "hybrid": [((1, 16, 8, 32), BF16)] * 3,
    "hybrid_mixed": [((2, 3, 16, 64), BF16), ((2, 1, 16, 24), FP16)],
    "kv_uint8": [((2, 4, 64, 256), U8)],
}
AROUND = ["fp8", "k16v8", "int4", "lossless", "checksum"]


@pytest.mark.parametrize("type_name", AROUND)
def test_each_type_leaves_l1_as_it_was(server, set_name, store, type_name):
    spec = {**adapter_spec(server.hosts, set_name), "serde": {"type": f"aerospike_{type_name}"}}
    keys: list[Any] = []
    with storage_manager(spec) as manager:
        empty = l1_balance(l1_of(manager))
        for number, layout in enumerate(LAYOUTS.values()):
            batch = [object_key(10 * number + i, model_name=f"m{number}") for i in range(3)]
            keys += batch
            contents = [numbers(layout, i) for i in range(3)]
            write(manager, batch, layout, contents)
            manager.finish_write(batch)
            await_stored(store, batch)
            assert manager.delete_l1_keys(batch, force=True)[0] == 3
            await_balance(manager, empty)
            assert prefetch(manager, [(0, batch, layout)]) == [3]
            loaded = contents_of(manager, batch, len(contents[0]))
            if type_name in ("lossless", "checksum") or layout[0][1] == U8:
                assert loaded == contents
            else:
                assert loaded != [bytes(len(c)) for c in contents]
            manager.delete_l1_keys(batch, force=True)
            await_balance(manager, empty)
    # Temporary buffers have keys too; none of them may ever reach the database.
    assert sorted(i["key"] for i in store.list(count=100)[0]) == sorted(wire_key(k) for k in keys)


GROUPS = [(0, [((2, 1, 16, 64), BF16)]), (1, [((2, 4, 16, 64), BF16)])]


@pytest.mark.parametrize("serde", ["fp8", "lossless"])
def test_groups_of_different_size_go_through_the_connectors_own_serde(
    server, set_name, store, serde
):
    own = {"type": serde, "dtype": "bfloat16"}
    spec = adapter_spec(server.hosts, set_name, serde=own)
    keys = [[object_key(i, object_group_id=number) for i in range(3)] for number, _ in GROUPS]
    contents = [[numbers(layout, i) for i in range(3)] for _, layout in GROUPS]
    with storage_manager(spec) as manager:
        for batch, (_, layout), parts in zip(keys, GROUPS, contents, strict=True):
            write(manager, batch, layout, parts)
        manager.finish_write([*keys[0], *keys[1]])  # one batch for LMCache
        await_stored(store, [*keys[0], *keys[1]])
        manager.delete_l1_keys([*keys[0], *keys[1]], force=True)
        wanted = [(n, batch, layout) for batch, (n, layout) in zip(keys, GROUPS, strict=True)]
        assert prefetch(manager, wanted) == [3, 3]
        for batch, parts in zip(keys, contents, strict=True):
            loaded = contents_of(manager, batch, len(parts[0]))
            for a, b in zip(loaded, parts, strict=True):
                check(a, b, lossy=serde == "fp8")
    assert len(store.list(count=100)[0]) == 6


def check(loaded: bytes, content: bytes, *, lossy: bool) -> None:
    """That the numbers are those that were stored, or near."""
    if not lossy:
        assert loaded == content
        return
    a, b = (torch.frombuffer(bytearray(x), dtype=BF16).float() for x in (loaded, content))
    assert bool(((a - b).abs() <= b.abs() * RELATIVE_MAX + 2**-10).all())


@pytest.mark.parametrize("serde", ["aerospike_fp8", "fp8"])
def test_around_the_adapter_lmcache_stores_no_such_batch(server, set_name, store, serde):
    """With its own serde as with ours: it reserves all buffers by the first object."""
    spec = {**adapter_spec(server.hosts, set_name), "serde": {"type": serde}}
    keys = [[object_key(i, object_group_id=number) for i in range(3)] for number, _ in GROUPS]
    after = object_key(100, model_name="another")  # of its own batch therefore
    with storage_manager(spec) as manager:
        for batch, (_, layout) in zip(keys, GROUPS, strict=True):
            write(manager, batch, layout, [numbers(layout, i) for i in range(3)])
        manager.finish_write([*keys[0], *keys[1]])
        write(manager, [after], GROUPS[0][1], [numbers(GROUPS[0][1], 1)])
        manager.finish_write([after])
        await_stored(store, [after])
        manager.delete_l1_keys([*keys[0], *keys[1], after], force=True)
        await_balance(manager, NOTHING_HELD)
    assert [item["key"] for item in store.list(count=100)[0]] == [wire_key(after)]


def test_a_reader_without_the_serde_of_the_writer_misses(server, set_name, store):
    layout = LAYOUTS["kv"]
    keys, contents = [object_key(1)], [numbers(layout, 1)]
    plain = adapter_spec(server.hosts, set_name)
    fused = adapter_spec(server.hosts, set_name, serde={"type": "fp8", "dtype": "bfloat16"})
    with storage_manager(fused) as manager:
        write(manager, keys, layout, contents)
        manager.finish_write(keys)
        with Store(server.hosts, set_name=set_name, serde=fused["adapter_params"]["serde"]) as s:
            await_stored(s, keys)
    for spec in (plain, {**plain, "serde": {"type": "aerospike_fp8"}}):
        with storage_manager(spec) as manager:
            assert prefetch(manager, [(0, keys, layout)]) == [0]
    with storage_manager(fused) as manager:
        assert prefetch(manager, [(0, keys, layout)]) == [1]
        check(contents_of(manager, keys, len(contents[0]))[0], contents[0], lossy=True)
