# SPDX-License-Identifier: Apache-2.0
"""LMCache's RemoteBackend over our plug-in: sizes, expiry, crashes, instances, layers, MLA."""

from __future__ import annotations

import logging
import struct
import time
from collections.abc import Callable
from typing import Any

import pytest
import torch
from lmcache.utils import LayerCacheEngineKey
from lmcache.v1.memory_management import BytesBufferMemoryObj, MemoryFormat
from remote_world import (
    FAST,
    HEAD,
    HIDDEN,
    LAYERS,
    TOKENS,
    RemoteWorld,
    config_of,
    key_of,
    metadata_of,
    same,
    tensor_of,
)

from lmcache_aerospike import _native, keys, sharding
from lmcache_aerospike.adapter import AerospikeConnectorAdapter
from lmcache_aerospike.errors import AerospikeTTLConfigError

Worlds = Callable[..., RemoteWorld]
FULL = (2, LAYERS, TOKENS, HIDDEN)


def waits_until(condition: Callable[[], bool], seconds: float = 20) -> bool:
    deadline = time.monotonic() + seconds
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


def test_discovery(world: Worlds, caplog: Any) -> None:
    with caplog.at_level(logging.INFO, "lmcache_aerospike"):
        connector = world().connector
    found = connector._store.native.limits()
    assert connector._resolved.max_segment_bytes == found["record_bytes_max"] - 65536
    assert f"is {found['record_bytes_max']} bytes" in caplog.text
    assert f"segments of up to {connector._resolved.max_segment_bytes} bytes" in caplog.text


@pytest.mark.parametrize("save_chunk_meta", [True, False])
@pytest.mark.parametrize("tokens", [1, 100, TOKENS])
def test_chunks(world: Worlds, save_chunk_meta: bool, tokens: int) -> None:
    made = world(save_chunk_meta=save_chunk_meta)
    tensor = tensor_of((2, LAYERS, tokens, HIDDEN), tokens)
    made.put(key_of(1), tensor)
    assert made.backend.contains(key_of(1))
    assert not made.backend.contains(key_of(2))
    assert same(made.take(key_of(1)), tensor)
    assert made.take(key_of(2)) is None


@pytest.mark.parametrize(
    "size", [256, 64 << 10, 1 << 20, 4 << 20, 16 << 20, 64 << 20], ids=lambda size: f"{size}B"
)
def test_sizes(world: Worlds, size: int) -> None:
    made = world(default_ttl_seconds=600)
    tensor = tensor_of((1, 1, 1, size // 2), size)
    made.put(key_of(size), tensor)
    assert same(made.take(key_of(size)), tensor)
    resolved = made.connector._resolved
    expected = sharding.plan(
        size, **{name: getattr(resolved, name) for name in resolved.__dataclass_fields__}
    )
    found = made.inspect(key_of(size))
    assert (found["segment_count"], found["segment_bytes"]) == (expected.nseg, expected.seg_b)
    assert len(found["records"]) == (1 if expected.nseg == 1 else 1 + expected.nseg)
    assert made.backend.remove(key_of(size))
    assert not made.backend.contains(key_of(size))


def test_a_batch_keeps_its_order(world: Worlds) -> None:
    made = world()
    tensors = {number: tensor_of(FULL, number) for number in range(5)}
    objects = [made.allocate(FULL) for _ in tensors]
    for memory, tensor in zip(objects, tensors.values(), strict=True):
        memory.tensor.copy_(tensor)
    done: list[Any] = []
    made.backend.batched_submit_put_task(
        [key_of(number) for number in tensors], objects, on_complete_callback=done.append
    )
    assert waits_until(lambda: len(done) == 5)
    for memory in objects:
        assert memory.get_ref_count() == 1
        memory.ref_count_down()
    wanted = [3, 99, 0, 3]
    loaded = made.backend.batched_get_blocking([key_of(number) for number in wanted])
    for number, memory in zip(wanted, loaded, strict=True):
        assert (memory is None) == (number == 99)
        if memory is not None:
            assert same(memory.tensor, tensors[number])
            memory.ref_count_down()
    assert made.backend.batched_contains([key_of(n) for n in (0, 1, 99, 2)]) == 2
    some = [key_of(number) for number in (4, 2, 99, 1)]
    assert made.run(made.backend.batched_async_contains("id", some)) == 2
    kept = made.run(made.backend.batched_get_non_blocking("id", some))
    assert [same(memory.tensor, tensors[n]) for memory, n in zip(kept, (4, 2), strict=True)]
    for memory in kept:
        memory.ref_count_down()


def test_expiry(world: Worlds) -> None:
    made = world(default_ttl_seconds=1)
    made.put(key_of(1), tensor_of(FULL, 1))
    made.run(made.connector._put("put", [key_of(2)], [pinned := made.allocate(FULL)], pin=True))
    pinned.ref_count_down()
    assert made.backend.contains(key_of(1))
    assert waits_until(lambda: not made.backend.contains(key_of(1)))
    assert made.take(key_of(1)) is None
    assert made.backend.contains(key_of(2))
    assert made.inspect(key_of(2))["expires_in"] is None
    assert made.backend.remove(key_of(2))


def test_a_store_that_crashed_before_its_meta_record(world: Worlds, server: Any) -> None:
    aerospike = pytest.importorskip("aerospike")
    made = world(default_ttl_seconds=2)
    key = key_of(1)
    host, port = server.hosts.split(",")[0].rsplit(":", 1)
    client = aerospike.client({"hosts": [(host, int(port))]}).connect()
    cfg = made.connector.cfg
    segments = keys.segment_keys(cfg.namespace, cfg.set_name, key, 4)
    for segment in segments:
        client.put(segment, {"b": bytearray(1 << 16)}, policy={"ttl": 1})
    assert not made.backend.contains(key)
    assert made.take(key) is None
    assert waits_until(lambda: all(client.exists(one)[1] is None for one in segments))
    client.close()


def test_a_namespace_that_refuses_ttls(remote_loop: Any) -> None:
    with _native.DevServer(namespaces=[{"name": "lmcache", "nsup_period_s": 0}]) as server:
        from lmcache.v1.storage_backend.connector import ConnectorContext

        context = ConnectorContext(
            "plugin://aerospike",
            remote_loop,
            None,
            config_of(options={"hosts": server.hosts, "namespace": "lmcache"}),
            metadata_of(),
        )
        with pytest.raises(AerospikeTTLConfigError, match="nsup-period"):
            AerospikeConnectorAdapter().create_connector(context)


def test_instances(world: Worlds, set_name: str) -> None:
    primary = world(plugin="aerospike.primary")
    other = world(plugin="aerospike.dr", set_name=f"{set_name}2"[-60:])
    tensor = tensor_of(FULL, 1)
    primary.put(key_of(1), tensor)
    assert primary.backend.contains(key_of(1))
    assert not other.backend.contains(key_of(1))
    assert other.take(key_of(1)) is None
    assert same(primary.take(key_of(1)), tensor)
    assert primary.connector._holder is other.connector._holder


def test_layers(world: Worlds) -> None:
    made = world(use_layerwise=True, save_chunk_meta=False)
    assert made.connector.save_chunk_meta
    layers = key_of(7).split_layers(LAYERS)
    assert all(isinstance(layer, LayerCacheEngineKey) for layer in layers)
    reader = world(use_layerwise=True)
    for tokens in (TOKENS, 9):
        tensors = [tensor_of((tokens, 2, HIDDEN), layer) for layer in range(LAYERS)]
        for layer, tensor in zip(layers, tensors, strict=True):
            made.put(layer, tensor, MemoryFormat.KV_T2D)
        for one in (made, reader):
            loaded = one.backend.batched_get_blocking(layers)
            for memory, tensor in zip(loaded, tensors, strict=True):
                assert memory.get_memory_format() == MemoryFormat.KV_T2D
                assert same(memory.tensor, tensor)
                memory.ref_count_down()
    assert made.backend.batched_contains(layers) == LAYERS
    assert not made.backend.contains(key_of(7))


@pytest.mark.parametrize("save_chunk_meta", [True, False])
def test_mla(world: Worlds, save_chunk_meta: bool) -> None:
    def metadata(worker: int) -> Any:
        return metadata_of(
            kv_shape=(LAYERS, 1, TOKENS, 1, HEAD),
            use_mla=True,
            world_size=2,
            local_world_size=2,
            worker_id=worker,
            local_worker_id=worker,
        )

    first = world(metadata=metadata(0), save_chunk_meta=save_chunk_meta)
    second = world(metadata=metadata(1), save_chunk_meta=save_chunk_meta)
    tensors = [tensor_of((1, LAYERS, tokens, HEAD), tokens) for tokens in (TOKENS, 30)]
    for number, tensor in enumerate(tensors):
        first.put(key_of(number, 0, 2), tensor, MemoryFormat.KV_MLA_FMT)
    for number, tensor in enumerate(tensors):
        assert same(first.take(key_of(number, 0, 2)), tensor)
        # The other rank asks for the chunks of the first one.
        assert second.backend.contains(key_of(number, 1, 2))
        assert same(second.take(key_of(number, 1, 2)), tensor)


def test_buffers_of_any_length(world: Worlds) -> None:
    """What LMCache's compressing serdes store: bytes whose number is different each time."""
    made = world()
    for number, size in enumerate((10_000, 10, 30_000, 29_999, 3_000_000)):
        data = bytes(range(256)) * (size // 256 + 1)
        made.run(made.connector.put(key_of(number), BytesBufferMemoryObj(data[:size])))
    for number, size in enumerate((10_000, 10, 30_000, 29_999, 3_000_000)):
        loaded = made.run(made.connector.get(key_of(number)))
        assert bytes(loaded.byte_array) == (bytes(range(256)) * (size // 256 + 1))[:size]
        assert loaded.get_memory_format() == MemoryFormat.BINARY_BUFFER


def test_metadata_of_any_kind_are_harmless(world: Worlds, server: Any) -> None:
    aerospike = pytest.importorskip("aerospike")
    made = world()
    tensors = [tensor_of(FULL, number) for number in range(2)]
    for number, tensor in enumerate(tensors):
        made.put(key_of(number), tensor)
    cfg = made.connector.cfg
    record = keys.meta_key(cfg.namespace, cfg.set_name, key_of(0))
    host, port = server.hosts.split(",")[0].rsplit(":", 1)
    client = aerospike.client({"hosts": [(host, int(port))]}).connect()
    length, fmt, dtype, *shape = struct.unpack("7i", client.get(record)[2]["md"])
    changes = [
        *((length, other, dtype, *shape) for other in range(-1, 12) if other != fmt),
        *((length, fmt, other, *shape) for other in range(-1, 10) if other != dtype),
        (length, fmt, dtype, *shape[:3], shape[3] // 2),
        (length, fmt, dtype, *shape[1:], shape[0]),
        (length, fmt, dtype, *([2**31 - 1] * 4)),
        (length // 2, fmt, dtype, *shape),
        (-1, fmt, dtype, -1, *shape[1:]),
    ]
    for change in changes:
        client.put(record, {"md": bytearray(struct.pack("7i", *change))})
        loaded = made.backend.batched_get_blocking([key_of(0), key_of(1)])
        assert loaded[1] is not None, change
        assert same(loaded[1].tensor, tensors[1])
        for memory in loaded:
            if memory is not None:
                assert memory.get_size() == length, change
                memory.ref_count_down()
    client.close()


def test_a_serde_in_the_engine(world: Worlds) -> None:
    made = world(serde={"type": "fp8", "dtype": "bfloat16"})
    plain = world()
    tensors = [
        torch.randn((2, LAYERS, tokens, HIDDEN)).to(torch.bfloat16) for tokens in (TOKENS, 30)
    ]
    for number, tensor in enumerate(tensors):
        made.put(key_of(number), tensor)
    for number, tensor in enumerate(tensors):
        loaded = made.take(key_of(number))
        assert loaded is not None
        assert loaded.shape == tensor.shape
        assert torch.allclose(loaded.float(), tensor.float(), rtol=0.07, atol=0.01)
        assert made.inspect(key_of(number))["bytes"] == tensor.numel()
        assert plain.take(key_of(number)) is None


def test_full_memory_is_a_miss_and_no_deadlock(world: Worlds) -> None:
    made = world()
    made.put(key_of(1), tensor_of(FULL, 1))
    hogs = []
    while (hog := made.memory.allocate([torch.Size((16 << 20,))], [torch.uint8])) is not None:
        hogs.append(hog)
    while (hog := made.memory.allocate([torch.Size((4096,))], [torch.uint8])) is not None:
        hogs.append(hog)
    began = time.monotonic()
    assert made.take(key_of(1)) is None
    assert time.monotonic() - began < 5
    for hog in hogs:
        hog.ref_count_down()
    assert same(made.take(key_of(1)), tensor_of(FULL, 1))


def test_lmcache_connects_again_after_an_outage(remote_loop: Any, memory: Any) -> None:
    with _native.DevServer(timing=FAST) as server:
        made = RemoteWorld(
            remote_loop,
            memory,
            {"hosts": server.hosts, "set_name": "outage", "tend_interval_ms": 50},
        )
        tensor = tensor_of(FULL, 1)
        made.put(key_of(1), tensor)
        server.stop_node(0)
        assert waits_until(lambda: not made.backend.contains(key_of(1)))
        assert made.take(key_of(1)) is None
        assert made.backend.batched_get_blocking([key_of(1)]) == [None]
        assert made.backend.batched_contains([key_of(1)]) == 0
        assert made.run(made.backend.connection.ping()) == 1
        server.start_node(0)
        assert waits_until(lambda: made.run(made.backend.connection.ping()) == 0)
        made.put(key_of(1), tensor)
        assert same(made.take(key_of(1)), tensor)
        made.close()
        assert made.memory_in_use() == 0


def test_lmcache_connects_later_if_the_cluster_was_away(remote_loop: Any, memory: Any) -> None:
    with _native.DevServer(timing=FAST) as server:
        server.stop_node(0)
        made = RemoteWorld(
            remote_loop,
            memory,
            {"hosts": server.hosts, "set_name": "late", "connect_timeout_ms": 200},
        )
        assert made.backend.connection is None
        assert not made.backend.contains(key_of(1))
        server.start_node(0)
        server.await_settled()
        made.backend.failure_time = 0.0  # LMCache waits ten seconds between two attempts
        made.backend.init_connection()
        made.put(key_of(1), tensor_of(FULL, 1))
        assert made.backend.contains(key_of(1))
        made.close()
