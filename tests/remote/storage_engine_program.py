# SPDX-License-Identifier: Apache-2.0
"""LMCache's own engine over the storage plugin, without a GPU, over a development server.

Prints one line for each check, and "done" at the end.
"""

from __future__ import annotations

import sys

import torch
from engine_program import PROMPT, CpuConnector, check, failed, waits_until
from lmcache.v1.cache_engine import LMCacheEngine, LMCacheEngineBuilder
from lmcache.v1.config import LMCacheEngineConfig
from remote_world import FAST, HIDDEN, LAYERS, TOKENS, metadata_of

from lmcache_aerospike import _native
from lmcache_aerospike.storage_plugin import AerospikeStoragePlugin


class Instance:
    """One engine, as a worker of vLLM has it."""

    def __init__(self, name: str, hosts: str) -> None:
        extra = {
            "storage_plugin.kv.module_path": "lmcache_aerospike.storage_plugin",
            "storage_plugin.kv.class_name": "AerospikeStoragePlugin",
            "storage_plugin.kv.hosts": hosts,
            "storage_plugin.kv.set_name": "engine",
            "storage_plugin.kv.tend_interval_ms": 50,
            "storage_plugin.kv.batch_timeout_ms": 500,
            "save_chunk_meta": True,
        }
        config = LMCacheEngineConfig.from_defaults(
            chunk_size=TOKENS,
            local_cpu=False,
            max_local_cpu_size=0.5,
            storage_plugins=["kv"],
            save_unfull_chunk=True,
            extra_config=extra,
        )
        self.gpu = CpuConnector(torch.zeros(2, LAYERS, PROMPT, HIDDEN, dtype=torch.bfloat16))
        self.name = name
        self.engine: LMCacheEngine = LMCacheEngineBuilder.get_or_create(
            name, config, metadata_of(), self.gpu, lambda *_: None, lambda thing, _: thing
        )
        self.engine.post_init()
        self.backends = self.engine.storage_manager.storage_backends

    def retrieve(self, tokens: torch.Tensor) -> int:
        self.gpu.kv.zero_()
        return int(self.engine.retrieve(tokens).sum())

    def memory_in_use(self) -> int:
        allocator = self.backends["LocalCPUBackend"].memory_allocator
        return int(allocator.pin_allocator.total_allocated_size)

    def close(self) -> None:
        LMCacheEngineBuilder.destroy(self.name)


def run(server: _native.DevServer) -> None:
    tokens = torch.randint(0, 30_000, (PROMPT,), generator=torch.Generator().manual_seed(1))
    kv = torch.randn(2, LAYERS, PROMPT, HIDDEN).to(torch.bfloat16)
    writer = Instance("writer", server.hosts)
    check("it is there", isinstance(writer.backends["kv"], AerospikeStoragePlugin))
    check("nothing at first", writer.engine.lookup(tokens) == 0)
    writer.gpu.kv.copy_(kv)
    writer.engine.store(tokens)
    check("stored", waits_until(lambda: writer.engine.lookup(tokens) == PROMPT))
    reader = Instance("reader", server.hosts)
    check("found by another engine", reader.engine.lookup(tokens) == PROMPT)
    check("retrieved", reader.retrieve(tokens) == PROMPT)
    check("the same bytes", torch.equal(reader.gpu.kv, kv))
    other = torch.cat([tokens[: 2 * TOKENS], tokens[2 * TOKENS :] + 1])
    check("a prefix is retrieved", reader.retrieve(other) == 2 * TOKENS)
    server.stop_node(0)
    check("nothing in an outage", reader.retrieve(tokens) == 0)
    server.start_node(0)

    def stores_again() -> bool:
        writer.gpu.kv.copy_(kv)
        writer.engine.store(tokens)
        return waits_until(lambda: not writer.backends["kv"]._putting) and bool(
            writer.engine.lookup(tokens) == PROMPT
        )

    check("stored after it", waits_until(stores_again))
    check("retrieved after it", waits_until(lambda: reader.retrieve(tokens) == PROMPT))
    check("no memory is left", writer.memory_in_use() + reader.memory_in_use() == 0)
    writer.close()
    reader.close()


if __name__ == "__main__":
    with _native.DevServer(namespaces=[{"name": "lmcache"}], timing=FAST) as database:
        run(database)
    print("done", flush=True)
    sys.exit(1 if failed else 0)
