# SPDX-License-Identifier: Apache-2.0
"""LMCache's own engine in its in-process mode, without a GPU, over a development server.

Prints one line for each check, and "done" at the end.
"""

from __future__ import annotations

import logging
import os
import sys
import time
from collections.abc import Callable
from typing import Any

os.environ.setdefault("PYTHONHASHSEED", "0")

import torch
from lmcache.v1 import cache_engine
from lmcache.v1.cache_engine import LMCacheEngine, LMCacheEngineBuilder
from lmcache.v1.gpu_connector.mock_gpu_connector import MockGPUConnector
from lmcache.v1.storage_backend.remote_backend import RemoteBackend
from remote_world import FAST, HIDDEN, LAYERS, TOKENS, config_of, metadata_of

from lmcache_aerospike import _native

WAIT_SECONDS = 30
PROMPT = 3 * TOKENS + 100
failed: list[str] = []


def check(what: str, passed: bool) -> None:
    print("ok" if passed else "FAILED", what, flush=True)
    if not passed:
        failed.append(what)


def waits_until(condition: Callable[[], bool]) -> bool:
    deadline = time.monotonic() + WAIT_SECONDS
    while not condition():
        if time.monotonic() > deadline:
            return False
        time.sleep(0.02)
    return True


class CpuConnector(MockGPUConnector):
    """What stands for the paged memory of a GPU: one tensor for the tokens of a prompt."""

    def __init__(self, kv: torch.Tensor) -> None:
        super().__init__((LAYERS, 2, TOKENS, 8, HIDDEN // 8))
        self.kv = kv

    def batched_from_gpu(self, memory_objs: Any, starts: Any, ends: Any, **_: Any) -> None:
        for memory, start, end in zip(memory_objs, starts, ends, strict=True):
            memory.tensor.copy_(self.kv[:, :, start:end])

    def batched_to_gpu(self, memory_objs: Any, starts: Any, ends: Any, **_: Any) -> None:
        for memory, start, end in zip(memory_objs, starts, ends, strict=True):
            self.kv[:, :, start:end].copy_(memory.tensor)


class LayerConnector(CpuConnector):
    """The same, layer by layer: generators that LMCache advances once for each layer."""

    def get_shape(self, num_tokens: int | None = None) -> torch.Size:
        return torch.Size((num_tokens or TOKENS, 2, HIDDEN))

    def batched_from_gpu(self, memory_objs: Any, starts: Any, ends: Any, **_: Any) -> Any:
        for layer, of_layer in enumerate(memory_objs):
            for memory, start, end in zip(of_layer, starts, ends, strict=True):
                memory.tensor.copy_(self.kv[:, layer, start:end].transpose(0, 1))
            yield
        yield

    def batched_to_gpu(self, starts: Any, ends: Any, **_: Any) -> Any:
        for layer in range(LAYERS):
            of_layer = yield
            for memory, start, end in zip(of_layer, starts, ends, strict=True):
                self.kv[:, layer, start:end].copy_(memory.tensor.transpose(0, 1))
        yield
        yield


class Instance:
    """One engine, as a worker of vLLM has it."""

    def __init__(
        self, name: str, hosts: str, save_chunk_meta: bool, *, layerwise: bool = False
    ) -> None:
        options = {
            "hosts": hosts,
            "set_name": "engine",
            "tend_interval_ms": 50,
            "read_timeout_ms": 300,
            "write_timeout_ms": 500,
        }
        config = config_of(
            "aerospike",
            options,
            save_chunk_meta=save_chunk_meta,
            save_unfull_chunk=True,
            use_layerwise=layerwise,
        )
        self.gpu = (LayerConnector if layerwise else CpuConnector)(
            torch.zeros(2, LAYERS, PROMPT, HIDDEN, dtype=torch.bfloat16)
        )
        self.name = name
        self.engine: LMCacheEngine = LMCacheEngineBuilder.get_or_create(
            name, config, metadata_of(), self.gpu, lambda *_: None, lambda thing, _: thing
        )
        self.engine.post_init()
        backends = self.engine.storage_manager.storage_backends
        self.remote: RemoteBackend = next(
            one for one in backends.values() if isinstance(one, RemoteBackend)
        )
        self.cpu = backends["LocalCPUBackend"]

    def retrieve(self, tokens: torch.Tensor) -> int:
        self.gpu.kv.zero_()
        return int(self.engine.retrieve(tokens).sum())

    def close(self) -> None:
        LMCacheEngineBuilder.destroy(self.name)


def check_engine(hosts: str, server: Any, save_chunk_meta: bool) -> None:
    tag = "with metadata" if save_chunk_meta else "without metadata"
    generator = torch.Generator().manual_seed(int(save_chunk_meta))
    tokens = torch.randint(0, 30_000, (PROMPT,), generator=generator)
    kv = torch.randn(2, LAYERS, PROMPT, HIDDEN, generator=generator).to(torch.bfloat16)
    writer = Instance(f"writer {tag}", hosts, save_chunk_meta)
    check(f"{tag}: connected", writer.remote.connection is not None)
    check(f"{tag}: nothing at first", writer.engine.lookup(tokens) == 0)
    writer.gpu.kv.copy_(kv)
    writer.engine.store(tokens)
    check(f"{tag}: stored", waits_until(lambda: writer.engine.lookup(tokens) == PROMPT))

    reader = Instance(f"reader {tag}", hosts, save_chunk_meta)
    check(f"{tag}: found by another engine", reader.engine.lookup(tokens) == PROMPT)
    check(f"{tag}: retrieved", reader.retrieve(tokens) == PROMPT)
    check(f"{tag}: the same bytes", torch.equal(reader.gpu.kv, kv))
    other = torch.cat([tokens[: 2 * TOKENS], tokens[2 * TOKENS :] + 1])
    check(f"{tag}: a prefix is found", reader.engine.lookup(other) == 2 * TOKENS)
    check(f"{tag}: a prefix is retrieved", reader.retrieve(other) == 2 * TOKENS)
    check(
        f"{tag}: its bytes", torch.equal(reader.gpu.kv[:, :, : 2 * TOKENS], kv[:, :, : 2 * TOKENS])
    )

    server.stop_node(0)
    check(f"{tag}: nothing in an outage", waits_until(lambda: reader.engine.lookup(tokens) == 0))
    check(f"{tag}: nothing retrieved in an outage", reader.retrieve(tokens) == 0)
    writer.engine.store(tokens)
    server.start_node(0)
    server.await_settled()
    check(
        f"{tag}: reachable again",
        waits_until(
            lambda: (
                writer.remote.connection.getWrappedConnector().batched_contains([]) == 0
                and writer.remote.connection.getWrappedConnector()._client.is_connected()
            )
        ),
    )
    check(f"{tag}: no store is left open", waits_until(lambda: not writer.remote.put_tasks))

    def stores_again() -> bool:
        writer.gpu.kv.copy_(kv)
        writer.engine.store(tokens)
        waits_until(lambda: not writer.remote.put_tasks)
        return bool(writer.engine.lookup(tokens) == PROMPT)

    check(f"{tag}: stored after the outage", waits_until(stores_again))
    check(f"{tag}: retrieved after the outage", reader.retrieve(tokens) == PROMPT)
    check(f"{tag}: the same bytes after it", torch.equal(reader.gpu.kv, kv))
    check(f"{tag}: removed", writer.engine.clear(tokens) == 4)
    check(f"{tag}: gone", reader.engine.lookup(tokens) == 0)
    for one in (writer, reader):
        used = one.cpu.memory_allocator.pin_allocator.total_allocated_size
        check(f"{tag}: memory of {one.name.split()[0]}", used == 0)
        one.close()


def check_layers(hosts: str) -> None:
    tokens = torch.arange(PROMPT) % 1000
    kv = torch.randn(2, LAYERS, PROMPT, HIDDEN).to(torch.bfloat16)
    # It knows the classes of real GPUs only.
    cache_engine.assert_layerwise_gpu_connector = lambda _: None
    writer = Instance("writer of layers", hosts, True, layerwise=True)
    writer.gpu.kv.copy_(kv)
    for _ in writer.engine.store_layer(tokens, req_id="store"):
        pass
    check(
        "layers: stored",
        waits_until(lambda: writer.engine.lookup(tokens) == PROMPT and not writer.remote.put_tasks),
    )
    reader = Instance("reader of layers", hosts, True, layerwise=True)
    reader.gpu.kv.zero_()
    *_, retrieved = reader.engine.retrieve_layer(tokens, req_id="retrieve")
    check("layers: retrieved", int(retrieved.sum()) == PROMPT)
    check("layers: the same bytes", torch.equal(reader.gpu.kv, kv))
    for one in (writer, reader):
        used = one.cpu.memory_allocator.pin_allocator.total_allocated_size
        check(f"layers: memory of {one.name.split()[0]}", used == 0)
        one.close()


def main() -> None:
    logging.getLogger("lmcache").setLevel(logging.ERROR)
    space = {"name": "lmcache", "size_bytes": 1 << 30}
    with _native.DevServer(namespaces=[space], timing=FAST) as server:
        for save_chunk_meta in (True, False):
            check_engine(server.hosts, server, save_chunk_meta)
        check_layers(server.hosts)
    print("FAILED" if failed else "done", flush=True)
    sys.stdout.flush()
    # LMCache's own threads need not all end.
    os._exit(bool(failed))


if __name__ == "__main__":
    main()
