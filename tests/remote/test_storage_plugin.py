# SPDX-License-Identifier: Apache-2.0
"""The storage backend for LMCache's `storage_plugins`."""

from __future__ import annotations

import asyncio
import re
import select
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from lmcache.v1.config import LMCacheEngineConfig
from lmcache.v1.storage_backend import CreateStorageBackends
from lmcache.v1.storage_backend.local_cpu_backend import LocalCPUBackend
from programs import run_program
from remote_world import FAST, HIDDEN, LAYERS, TOKENS, key_of, metadata_of, same, tensor_of

from lmcache_aerospike import Store, _native
from lmcache_aerospike.errors import AerospikeConfigError
from lmcache_aerospike.storage_plugin import AerospikeStoragePlugin

HERE = Path(__file__).resolve().parent
SHAPE = (LAYERS, 2, TOKENS, HIDDEN)
REFUSED = 22
WAIT_SECONDS = 30


class Other(AerospikeStoragePlugin):
    """A second instance beside the first."""


def config_of(options: dict[str, Any], name: str = "kv", **more: Any) -> LMCacheEngineConfig:
    extra = {
        f"storage_plugin.{name}.module_path": "lmcache_aerospike.storage_plugin",
        f"storage_plugin.{name}.class_name": "AerospikeStoragePlugin",
        "save_chunk_meta": True,
        **{f"storage_plugin.{name}.{option}": value for option, value in options.items()},
        **more.pop("extra", {}),
    }
    values = {"chunk_size": TOKENS, "local_cpu": False, "max_local_cpu_size": 0.5}
    values |= {"storage_plugins": [name], "extra_config": extra}
    return LMCacheEngineConfig.from_defaults(**{**values, **more})


class Plugin:
    """One backend, and what tests do with it."""

    def __init__(self, config: Any, loop: Any, memory: Any, **metadata: Any) -> None:
        self.metadata = metadata_of(**metadata)
        self.memory = memory
        self.cpu = None
        if metadata.get("role") != "scheduler":
            self.cpu = LocalCPUBackend(
                config, self.metadata, dst_device="cpu", memory_allocator=memory
            )
        self.backend = AerospikeStoragePlugin("cpu", config, self.metadata, self.cpu, loop)
        self.loop = loop

    def allocate(self, seed: int) -> Any:
        made = self.cpu.allocate([torch.Size(SHAPE)], [torch.bfloat16])
        made.tensor.copy_(tensor_of(SHAPE, seed))
        return made

    def put(self, numbers: list[int], stored: Callable[[Any], None] | None = None) -> None:
        """Stores chunks as LMCache's storage manager does: its references end with the call."""
        objects = [self.allocate(number) for number in numbers]
        keys = [key_of(number) for number in numbers]
        futures = self.backend.batched_submit_put_task(keys, objects, on_complete_callback=stored)
        for made in objects:
            made.ref_count_down()
        for future in futures or []:
            future.result(WAIT_SECONDS)

    def take(self, numbers: list[int]) -> list[bool | None]:
        """Whether what is loaded is right; None for what is not."""
        loaded = self.backend.batched_get_blocking([key_of(n) for n in numbers])
        out: list[bool | None] = []
        for number, made in zip(numbers, loaded, strict=True):
            out.append(None if made is None else same(made.tensor, tensor_of(SHAPE, number)))
            if made is not None:
                made.ref_count_down()
        return out

    def run(self, coroutine: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop).result(WAIT_SECONDS)


@pytest.fixture
def make(server, set_name, remote_loop, memory) -> Iterator[Callable[..., Plugin]]:
    made: list[Plugin] = []

    def one(role: str = "worker", worker_id: int = 0, **options: Any) -> Plugin:
        config = config_of({"hosts": server.hosts, "set_name": set_name, **options})
        more = {"use_mla": True, "world_size": 2} if worker_id else {}
        made.append(Plugin(config, remote_loop, memory, role=role, worker_id=worker_id, **more))
        return made[-1]

    yield one
    for plugin in made:
        plugin.backend.close()
    assert int(memory.pin_allocator.total_allocated_size) == 0, "memory that was never released"


def test_chunks_go_and_come_back(make):
    plugin = make()
    stored: list[Any] = []
    plugin.put(list(range(6)), stored.append)
    assert stored == [key_of(n) for n in range(6)]
    assert not plugin.backend.exists_in_put_tasks(key_of(0))
    assert plugin.backend.contains(key_of(5))
    assert not plugin.backend.contains(key_of(6))
    assert plugin.backend.batched_contains([key_of(n) for n in (0, 1, 9, 2)]) == 2
    assert plugin.take([3, 99, 0]) == [True, None, True]
    single = plugin.backend.get_blocking(key_of(4))
    assert same(single.tensor, tensor_of(SHAPE, 4))
    single.ref_count_down()
    later = plugin.backend.get_non_blocking(key_of(4)).result(WAIT_SECONDS)
    assert same(later.tensor, tensor_of(SHAPE, 4))
    later.ref_count_down()
    assert plugin.backend.batched_remove([key_of(0), key_of(77), key_of(1)]) == 2
    assert plugin.backend.remove(key_of(0)) is False


def test_the_asynchronous_half(make):
    plugin = make()
    plugin.put([0, 1, 3])
    keys = [key_of(n) for n in range(4)]
    assert plugin.run(plugin.backend.batched_async_contains("lookup", keys)) == 2
    loaded = plugin.run(plugin.backend.batched_get_non_blocking("lookup", keys))
    assert [same(m.tensor, tensor_of(SHAPE, n)) for n, m in enumerate(loaded)] == [True, True]
    for one in loaded:
        one.ref_count_down()


def test_only_stored_chunks_are_reported(make, server):
    plugin = make()
    server.add_fault(action="result_code", code=REFUSED, kinds=["put"], key_contains=key_text(1))
    stored: list[Any] = []
    plugin.put([0, 1, 2], stored.append)
    server.clear_faults()
    assert stored == [key_of(0), key_of(2)]
    assert plugin.backend.failed_put_count == 1
    assert plugin.take([0, 1, 2]) == [True, None, True]
    plugin.put([3], lambda key: 1 / 0)  # a callback's failure is its own
    assert plugin.take([3]) == [True]


def key_text(number: int) -> str:
    return key_of(number).to_string()


def test_what_is_being_stored_is_not_stored_twice(make, server):
    plugin = make(request_timeout_ms=5000, write_timeout_ms=10_000)
    fault = server.add_fault(action="latency", delay_ms=300, kinds=["put"])
    first = plugin.allocate(1)
    (future,) = plugin.backend.batched_submit_put_task([key_of(1)], [first])
    assert plugin.backend.exists_in_put_tasks(key_of(1))
    assert plugin.backend.batched_submit_put_task([key_of(1)], [first]) is None
    first.ref_count_down()  # the backend holds it until it is stored
    future.result(WAIT_SECONDS)
    server.await_fault(fault)
    assert plugin.take([1]) == [True]


def test_pins_hold_against_removals_that_are_not_forced(make):
    plugin = make()
    backend = plugin.backend
    plugin.put([0, 1, 2])
    assert backend.batched_contains([key_of(0), key_of(1)], pin=True) == 2
    assert backend.pin(key_of(0)) is True
    assert backend.pin(key_of(9)) is False
    assert backend.batched_remove([key_of(n) for n in range(3)], force=False) == 1
    assert backend.unpin(key_of(0)) is True
    assert backend.remove(key_of(0), force=False) is False
    assert backend.unpin(key_of(0)) is True
    assert backend.unpin(key_of(0)) is False
    assert backend.remove(key_of(0), force=False) is True
    assert backend.remove(key_of(1)) is True  # forced


def test_a_scheduler_without_memory_can_look_up(make):
    make().put([0, 1])
    scheduler = make(role="scheduler")
    backend = scheduler.backend
    keys = [key_of(n) for n in range(3)]
    assert backend.batched_contains(keys) == 2
    assert scheduler.run(backend.batched_async_contains("id", keys)) == 2
    assert backend.get_blocking(keys[0]) is None
    assert backend.batched_submit_put_task(keys, [None] * 3) is None
    with pytest.raises(RuntimeError, match="no CPU memory"):
        backend.get_allocator_backend()


def test_with_mla_the_first_worker_stores_for_all(make, server, set_name):
    first, second = make(), make(worker_id=1)
    second.put([5])
    assert not first.backend.contains(key_of(5))
    first.put([5])
    of_second = key_of(5, worker_id=1, world_size=1)
    assert second.backend.contains(of_second)
    loaded = second.backend.get_blocking(of_second)
    assert same(loaded.tensor, tensor_of(SHAPE, 5))
    loaded.ref_count_down()


def test_a_frozen_cluster_is_a_miss(make, server):
    plugin = make(batch_timeout_ms=300)
    plugin.put([0])
    server.pause_node(0)
    try:
        started = time.monotonic()
        assert plugin.take([0]) == [None]
        assert plugin.backend.contains(key_of(0)) is False
        assert plugin.backend.remove(key_of(0)) is False
        plugin.put([1])
        assert plugin.backend.failed_put_count == 1
        assert time.monotonic() - started < 8
    finally:
        server.resume_node(0)
    deadline = time.monotonic() + 15
    while plugin.take([0]) != [True]:
        assert time.monotonic() < deadline


def test_a_load_that_lmcache_gives_up_is_released(make, server):
    plugin = make(request_timeout_ms=5000, read_timeout_ms=10_000)
    plugin.put([0])
    plugin.backend._seconds_max = 0.05
    fault = server.add_fault(action="latency", delay_ms=400, kinds=["get"])
    assert plugin.take([0]) == [None]
    server.await_fault(fault)
    deadline = time.monotonic() + 10
    while int(plugin.memory.pin_allocator.total_allocated_size):
        assert time.monotonic() < deadline
        select.select([], [], [], 0.02)


def test_a_cluster_that_comes_later_is_found(remote_loop, memory, set_name, monkeypatch):
    monkeypatch.setattr("lmcache_aerospike.storage_plugin._RETRY_SECONDS", 0.05)
    with _native.DevServer(namespaces=[{"name": "lmcache"}], timing=FAST) as alone:
        alone.stop_node(0)
        options = {"hosts": alone.hosts, "set_name": set_name, "connect_timeout_ms": 200}
        plugin = Plugin(config_of(options), remote_loop, memory)
        assert plugin.backend.contains(key_of(0)) is False
        assert plugin.take([0]) == [None]
        alone.start_node(0)
        deadline = time.monotonic() + 20
        while not plugin.backend.contains(key_of(0)):
            assert time.monotonic() < deadline
            plugin.put([0])
            select.select([], [], [], 0.02)
        assert plugin.take([0]) == [True]
        plugin.backend.close()
        plugin.backend.close()
        assert plugin.backend.contains(key_of(0)) is False


def test_lmcache_loads_it_and_it_shares_with_the_remote_connector(
    server, set_name, remote_loop, world
):
    config = config_of({"hosts": server.hosts, "set_name": set_name})
    backends = CreateStorageBackends(config, metadata_of(), remote_loop, "cpu")
    backend = backends["kv"]
    assert isinstance(backend, AerospikeStoragePlugin)
    cpu = backends["LocalCPUBackend"]
    assert backend.get_allocator_backend() is cpu
    made = cpu.allocate([torch.Size(SHAPE)], [torch.bfloat16])
    made.tensor.copy_(tensor_of(SHAPE, 7))
    (future,) = backend.batched_submit_put_task([key_of(7)], [made])
    future.result(WAIT_SECONDS)
    made.ref_count_down()
    assert same(world().take(key_of(7)), tensor_of(SHAPE, 7))
    with Store(server.hosts, set_name=set_name) as store:
        assert store.exists(key_text(7))
    backend.close()


@pytest.mark.parametrize(
    ("options", "more", "message"),
    [
        ({"num_wokers": 1}, {}, r"'storage_plugin\.kv\.num_wokers'.*num_workers"),
        ({"read_timeout_ms": 0}, {}, r"'storage_plugin\.kv\.read_timeout_ms'"),
        ({"hosts": None}, {}, r"'storage_plugin\.kv\.hosts'"),
        ({}, {"storage_plugins": []}, "0 of class AerospikeStoragePlugin"),
        ({}, {"storage_plugins": ["kv", "more"]}, "2 of class AerospikeStoragePlugin.*subclass"),
    ],
)
def test_bad_options_are_named(server, remote_loop, options, more, message, monkeypatch):
    monkeypatch.delenv("LMCACHE_AEROSPIKE_HOSTS", raising=False)
    second = {
        "storage_plugin.more.module_path": "lmcache_aerospike.storage_plugin",
        "storage_plugin.more.class_name": "AerospikeStoragePlugin",
    }
    config = config_of({"hosts": server.hosts, **options}, extra=second, **more)
    with pytest.raises(AerospikeConfigError, match=message):
        AerospikeStoragePlugin("cpu", config, metadata_of(), None, remote_loop)


def test_a_subclass_is_another_instance(server, remote_loop):
    second = {
        "storage_plugin.more.module_path": __name__,
        "storage_plugin.more.class_name": "Other",
        "storage_plugin.more.hosts": server.hosts,
        "storage_plugin.more.set_name": "more",
    }
    config = config_of({"hosts": server.hosts}, extra=second, storage_plugins=["kv", "more"])
    first = AerospikeStoragePlugin("cpu", config, metadata_of(), None, remote_loop)
    other = Other("cpu", config, metadata_of(), None, remote_loop)
    assert (first.cfg.set_name, other.cfg.set_name) == ("kv_chunks", "more")
    first.close()
    other.close()


def test_the_configuration_of_the_guide_works(server, remote_loop, tmp_path):
    guide = (HERE.parents[1] / "docs/guides/lmcache.md").read_text()
    blocks = re.findall(r"^```yaml\n(.*?)^```", guide, re.MULTILINE | re.DOTALL)
    (block,) = [block for block in blocks if re.search("^storage_plugins", block, re.MULTILINE)]
    path = tmp_path / "lmcache.yaml"
    hosts = server.hosts.split(",")[0]
    path.write_text(re.sub(r"10\.\d+\.\d+\.\d+:3000", hosts, block) + "max_local_cpu_size: 0.1\n")
    config = LMCacheEngineConfig.from_file(str(path))
    backend = CreateStorageBackends(config, metadata_of(), remote_loop, "cpu")["aerospike"]
    assert isinstance(backend, AerospikeStoragePlugin)
    assert backend.contains(key_of(12345)) is False
    assert backend._store() is not None
    backend.close()


def test_lmcaches_engine_stores_and_retrieves_through_it():
    done = run_program(HERE / "storage_engine_program.py", 120, PYTHONHASHSEED="0")
    lines = done.stdout.splitlines()
    assert "done" in lines
    assert len([line for line in lines if line.startswith("ok ")]) == 11
