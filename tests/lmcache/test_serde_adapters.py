# SPDX-License-Identifier: Apache-2.0
"""Each serde through LMCache's wrapper, over our connector and over LMCache's own adapters."""

from __future__ import annotations

import os
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from lmcache.v1.distributed.l1_manager import L1Manager
from lmcache_driver import adapter_spec, object_key, wire_key
from serde_driver import (
    BF16,
    E4M3,
    FP16,
    FP32,
    U8,
    KvObject,
    Layout,
    SerdeDriver,
    any_bits,
    layout_bytes,
    layout_desc,
    make_l1_manager,
    numbers,
    wrapped,
)

from lmcache_aerospike import Store

SERDES: dict[str, dict[str, Any]] = {
    "fp8": {"type": "aerospike_fp8"},
    "fp8_e5m2": {"type": "aerospike_fp8", "fp8_dtype": "float8_e5m2", "max_workers": 2},
    "k16v8": {"type": "aerospike_k16v8"},
    "int8": {"type": "aerospike_int8"},
    "int4": {"type": "aerospike_int4"},
    "lossless": {"type": "aerospike_lossless", "max_workers": 2},
    "checksum": {"type": "aerospike_checksum"},
    "aesgcm": {"type": "aerospike_aesgcm", "aes_bits": 256},
    "chain": {
        "type": "aerospike_chain",
        "stages": [{"type": "lossless"}, {"type": "aesgcm"}, {"type": "checksum"}],
    },
    "chain_fp8": {"type": "aerospike_chain", "stages": [{"type": "fp8"}, {"type": "checksum"}]},
}
EXACT = ["lossless", "checksum", "aesgcm", "chain"]
# What they write has another length than what they estimate.
SHORTER = ["lossless", "chain"]
FIXED = [name for name in SERDES if name not in SHORTER]

KV: Layout = [((2, 3, 64, 128), BF16)]
LAYOUTS: dict[str, Layout] = {
    "kv": KV,
    "kv_float16": [((2, 2, 33, 64), FP16)],
    "kv_float32": [((2, 2, 16, 32), FP32)],
    "mla": [((1, 4, 16, 576), BF16)],
    "hybrid": [((1, 16, 8, 32), BF16)] * 3,
    "hybrid_mixed": [((2, 3, 16, 64), BF16), ((2, 1, 16, 24), FP16)],
    "kv_uint8": [((2, 3, 64, 128), U8)],
    "kv_float8": [((2, 3, 64, 128), E4M3)],
}


def with_key_file(serde: dict[str, Any], path: str) -> dict[str, Any]:
    """The serde; where it encrypts, with this key."""
    if serde["type"].endswith("aesgcm"):
        return {**serde, "master_key_path": path}
    if "stages" in serde:
        return {**serde, "stages": [with_key_file(stage, path) for stage in serde["stages"]]}
    return serde


@pytest.fixture(scope="module")
def key_file(tmp_path_factory: pytest.TempPathFactory) -> str:
    """A master key that only its owner can read."""
    path = tmp_path_factory.mktemp("key") / "master.key"
    path.touch(mode=0o600)
    path.write_bytes(os.urandom(32))
    return str(path)


@pytest.fixture(scope="module")
def l1() -> Iterator[L1Manager]:
    """The L1 that temporary buffers come from."""
    manager = make_l1_manager()
    yield manager
    manager.close()


@pytest.fixture
def serde(request: pytest.FixtureRequest, key_file: str) -> dict[str, Any]:
    """The JSON of one serde, by its name above."""
    return with_key_file(SERDES[request.param], key_file)


@pytest.fixture
def aerospike(server: Any, set_name: str) -> dict[str, Any]:
    """Our connector."""
    return adapter_spec(server.hosts, set_name)


def expected(serde: dict[str, Any], layout: Layout, content: bytes, index: int) -> bytes:
    """What the serde makes of the content, by itself."""
    with SerdeDriver(serde) as driver:
        frame = driver.serialize(layout, content, object_key(index))
        assert frame is not None
        back = driver.deserialize(layout, frame, object_key(index))
        assert back is not None
    return back


def check_values(name: str, layout: Layout, back: bytes, content: bytes) -> None:
    """That what came back is as close as the format promises."""
    if name in EXACT or all(dtype.itemsize == 1 for _, dtype in layout):
        assert back == content
        return
    at = 0
    for shape, dtype in layout:
        size = torch.Size(shape).numel() * dtype.itemsize
        a, b = (
            torch.frombuffer(bytearray(data[at : at + size]), dtype=dtype).float()
            for data in (content, back)
        )
        at += size
        # Of numbers with deviation 1: 3 bits of mantissa, 2 bits, 15 codes for a row.
        bound = {"fp8_e5m2": 0.15, "int4": 0.2}.get(name, 0.05)
        error = ((a - b).square().mean().sqrt() / a.square().mean().sqrt()).item()
        assert error < bound, f"{name}: relative error {error}"


# ---- our connector -----------------------------------------------------------------------------


@pytest.mark.parametrize("layout", LAYOUTS)
@pytest.mark.parametrize(("serde", "name"), [(n, n) for n in SERDES], indirect=["serde"])
def test_each_serde_over_our_connector(l1, server, set_name, aerospike, serde, name, layout):
    shape = LAYOUTS[layout]
    contents = [numbers(shape, seed) for seed in range(3)]
    keys = [object_key(i) for i in range(3)]
    with wrapped({**aerospike, "serde": serde}, l1) as driver:
        result = driver.store_objects(keys, [KvObject(shape, c) for c in contents])
        assert result.is_successful()
        assert driver.lookup([*keys, object_key(9)]) == [True, True, True, False]
        targets = [KvObject(shape) for _ in range(4)]
        assert driver.load_into([*keys, object_key(9)], targets) == [True, True, True, False]
        assert targets[3].is_untouched()
    for i, (target, content) in enumerate(zip(targets, contents, strict=False)):
        check_values(name, shape, target.bytes(), content)
        assert target.bytes() == expected(serde, shape, content, i)
    with Store(server.hosts, set_name=set_name) as store:
        listed, _ = store.list(count=100)
    assert sorted(item["key"] for item in listed) == sorted(wire_key(key) for key in keys)
    assert sum(item["bytes"] for item in listed) == result.bytes_transferred()


@pytest.mark.parametrize("name", ["fp8", "chain_fp8"])
def test_a_type_that_is_not_taken_costs_the_store_and_nothing_else(l1, aerospike, name):
    layout: Layout = [((2, 4, 8), torch.int32)]
    with wrapped({**aerospike, "serde": SERDES[name]}, l1) as driver:
        objects = [KvObject(layout, any_bits(layout, 1)).memory]
        # LMCache's controllers catch this and give their locks back.
        for submit in (driver.adapter.submit_store_task, driver.adapter.submit_load_task):
            with pytest.raises(ValueError, match="int32, expected bfloat16"):
                submit([object_key(1)], objects)
        assert driver.lookup([object_key(1)]) == [False]


@pytest.mark.parametrize("name", SHORTER)
def test_what_does_not_compress_comes_back_too(l1, aerospike, key_file, name):
    serde = with_key_file(SERDES[name], key_file)
    with wrapped({**aerospike, "serde": serde}, l1) as driver:
        content = any_bits(KV, 5)
        keys = [object_key(1), object_key(2)]
        objects = [KvObject(KV, content), KvObject(KV, bytes(layout_bytes(KV)))]
        result = driver.store_objects(keys, objects)
        assert result.is_successful()
        # Zeros beside noise: one batch, two very different lengths.
        assert result.bytes_transferred() < 1.1 * layout_bytes(KV)
        targets = [KvObject(KV) for _ in keys]
        assert driver.load_into(keys, targets) == [True, True]
        assert [t.bytes() for t in targets] == [content, bytes(layout_bytes(KV))]


@pytest.mark.parametrize("name", SERDES)
def test_batches_of_other_shapes_follow_each_other(l1, aerospike, key_file, name):
    """Temporary buffers are used again, for smaller and for larger objects."""
    serde = with_key_file(SERDES[name], key_file)
    with wrapped({**aerospike, "serde": serde}, l1) as driver:
        for turn in range(2):
            for i, layout in enumerate(LAYOUTS.values()):
                key, content = object_key(i, cache_salt=f"s{turn}"), numbers(layout, turn)
                assert driver.store_objects([key], [KvObject(layout, content)]).is_successful()
                target = KvObject(layout)
                assert driver.load_into([key], [target]) == [True]
                check_values(name, layout, target.bytes(), content)


def test_objects_of_one_batch_may_differ_if_the_first_is_the_largest(l1, aerospike):
    """LMCache's wrapper estimates by the first; our connector stores each as long as it is."""
    layouts: list[Layout] = [[((2, 3, 8 * n, 64), BF16)] for n in (8, 3, 5)]
    contents = [numbers(layout, n) for n, layout in enumerate(layouts)]
    keys = [object_key(i) for i in range(3)]
    with wrapped({**aerospike, "serde": SERDES["lossless"]}, l1) as driver:
        objects = [KvObject(la, c) for la, c in zip(layouts, contents, strict=True)]
        assert driver.store_objects(keys, objects).is_successful()
        targets = [KvObject(layout) for layout in layouts]
        assert driver.load_into(keys, targets) == [True] * 3
        assert [t.bytes() for t in targets] == contents
        # With the smallest first the buffers are too small: no store, and no partial one.
        keys = [object_key(i) for i in range(7, 10)]
        assert not driver.store_objects(keys, objects[::-1]).is_successful()
        assert driver.lookup(keys) == [False] * 3


def test_an_object_of_many_segments(l1, aerospike, server, set_name):
    layout: Layout = [((2, 8, 256, 512), BF16)]  # 4 MiB
    content = numbers(layout, 1)
    for name in ("fp8", "lossless"):
        with wrapped({**aerospike, "serde": SERDES[name]}, l1) as driver:
            key = object_key(1, model_name=name)
            assert driver.store_objects([key], [KvObject(layout, content)]).is_successful()
            target = KvObject(layout)
            assert driver.load_into([key], [target]) == [True]
            check_values(name, layout, target.bytes(), content)
    with Store(server.hosts, set_name=set_name) as store:
        assert len(store.list(count=10)[0]) == 2


# ---- LMCache's own adapters --------------------------------------------------------------------


@pytest.fixture(scope="module")
def redis_port(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """Where a Redis server listens that keeps nothing on disk."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    process = subprocess.Popen(
        ["redis-server", "--bind", "127.0.0.1", "--port", str(port), "--save", ""],
        cwd=tmp_path_factory.mktemp("redis"),
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        while "Ready to accept connections" not in (line := process.stdout.readline()):
            assert line, "redis-server ended"
        yield port
    finally:
        process.terminate()
        process.communicate(timeout=10)


ADAPTERS: dict[str, dict[str, Any]] = {
    "fs_native": {"type": "fs_native", "num_workers": 2},
    "fs_native_odirect": {"type": "fs_native", "num_workers": 2, "use_odirect": True},
    "fs": {"type": "fs"},
    "mock": {"type": "mock", "max_size_gb": 1, "mock_bandwidth_gb": 100},
    "resp": {"type": "resp", "host": "127.0.0.1", "num_workers": 2},
}
# The others read as many bytes as the estimate says, and call it a miss if there are fewer.
TAKES_SHORTER = ["mock", "fs_native_odirect"]


@pytest.fixture
def adapter(request: pytest.FixtureRequest, tmp_path: Path) -> dict[str, Any]:
    """The JSON of one of LMCache's adapters, by its name above."""
    if request.param == "ours":
        return request.getfixturevalue("aerospike")
    spec = ADAPTERS[request.param]
    if "fs" in request.param:
        return {**spec, "base_path": str(tmp_path / "l2")}
    if request.param == "resp":
        return {**spec, "port": request.getfixturevalue("redis_port")}
    return spec


@pytest.mark.parametrize(("serde", "name"), [(n, n) for n in FIXED], indirect=["serde"])
@pytest.mark.parametrize("adapter", ADAPTERS, indirect=True)
def test_what_is_as_long_as_its_estimate_goes_over_each_adapter(l1, adapter, serde, name):
    layouts = [LAYOUTS["kv"], LAYOUTS["mla"], LAYOUTS["hybrid"]]
    with wrapped({**adapter, "serde": serde}, l1) as driver:
        for turn, layout in enumerate(layouts):
            contents = [numbers(layout, seed) for seed in range(2)]
            # Redis is shared: other tests have other models.
            keys = [object_key(i + 2 * turn, model_name=name) for i in range(2)]
            objects = [KvObject(layout, c) for c in contents]
            assert driver.store_objects(keys, objects).is_successful()
            targets = [KvObject(layout) for _ in keys]
            assert driver.load_into(keys, targets) == [True, True]
            for i, (target, content) in enumerate(zip(targets, contents, strict=True)):
                check_values(name, layout, target.bytes(), content)
                assert target.bytes() == expected(serde, layout, content, i + 2 * turn)


@pytest.mark.parametrize(("serde", "name"), [(n, n) for n in SHORTER], indirect=["serde"])
@pytest.mark.parametrize("adapter", TAKES_SHORTER, indirect=True)
def test_adapters_that_take_what_is_shorter_than_its_estimate(l1, adapter, serde, name):
    contents = [numbers(KV, seed) for seed in range(3)]
    keys = [object_key(i) for i in range(3)]
    with wrapped({**adapter, "serde": serde}, l1) as driver:
        result = driver.store_objects(keys, [KvObject(KV, c) for c in contents])
        assert result.is_successful()
        estimate = driver.serde.estimate_serialized_size(layout_desc(KV))
        # O_DIRECT writes the whole buffer, rounded up to blocks: it takes the types, to no use.
        assert (result.bytes_transferred() >= 3 * estimate) == ("use_odirect" in adapter)
        targets = [KvObject(KV) for _ in keys]
        assert driver.load_into(keys, targets) == [True] * 3
        assert [t.bytes() for t in targets] == contents


@pytest.mark.parametrize(("serde", "name"), [(n, n) for n in SHORTER], indirect=["serde"])
@pytest.mark.parametrize("adapter", sorted(set(ADAPTERS) - set(TAKES_SHORTER)), indirect=True)
def test_adapters_that_do_not(l1, adapter, serde, name):
    """Each load is a miss. docs/reference/serde.md has the table that this test stands behind.

    One object only: Redis gets all objects of a batch with the length of the first, and then waits
    for bytes that never come.
    """
    key, target = object_key(0, model_name=name), KvObject(KV)
    with wrapped({**adapter, "serde": serde}, l1) as driver:
        assert driver.store_objects([key], [KvObject(KV, numbers(KV, 1))]).is_successful()
        assert driver.load_into([key], [target]) == [False]
        assert target.is_untouched()


@pytest.mark.parametrize("adapter", ["fs_native", "resp"], indirect=True)
def test_a_margin_on_the_estimate_has_the_same_effect(l1, adapter):
    """Why fp8 estimates exactly here, unlike the class for use without LMCache."""
    serde = {"type": "aerospike_fp8", "size_margin": 1.5}
    key = object_key(0, model_name="margin")
    with wrapped({**adapter, "serde": serde}, l1) as driver:
        assert driver.store_objects([key], [KvObject(KV, numbers(KV, 1))]).is_successful()
        assert driver.load_into([key], [KvObject(KV)]) == [False]


@pytest.mark.parametrize("name", ["fp8", "aesgcm"])
@pytest.mark.parametrize("adapter", ["fs_native", "ours"], indirect=True)
def test_what_lmcaches_serde_stored_ours_loads_and_the_other_way(l1, key_file, adapter, name):
    params = {"master_key_path": key_file, "aes_bits": 256} if name == "aesgcm" else {}
    ours, theirs = ({"type": kind, **params} for kind in (f"aerospike_{name}", name))
    layout = LAYOUTS["kv_float16"]
    for turn, (writer, reader) in enumerate(((ours, theirs), (theirs, ours))):
        keys = [object_key(10 * turn + i, cache_salt="tenant") for i in range(3)]
        contents = [numbers(layout, i) for i in range(3)]
        with wrapped({**adapter, "serde": writer}, l1) as driver:
            objects = [KvObject(layout, c) for c in contents]
            assert driver.store_objects(keys, objects).is_successful()
            own = [KvObject(layout) for _ in keys]
            assert driver.load_into(keys, own) == [True] * 3
        with wrapped({**adapter, "serde": reader}, l1) as driver:
            targets = [KvObject(layout) for _ in keys]
            assert driver.load_into(keys, targets) == [True] * 3
        assert [t.bytes() for t in targets] == [t.bytes() for t in own]
        assert name == "fp8" or [t.bytes() for t in targets] == contents
