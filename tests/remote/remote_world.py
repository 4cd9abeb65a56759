# SPDX-License-Identifier: Apache-2.0
"""A RemoteBackend of LMCache with our plug-in, and what tests do with it."""

from __future__ import annotations

import asyncio
from typing import Any

import torch
from lmcache.utils import CacheEngineKey
from lmcache.v1.config import LMCacheEngineConfig
from lmcache.v1.memory_management import MemoryFormat
from lmcache.v1.metadata import LMCacheMetadata
from lmcache.v1.storage_backend.local_cpu_backend import LocalCPUBackend
from lmcache.v1.storage_backend.remote_backend import RemoteBackend

TOKENS, LAYERS, HEADS, HEAD = 256, 4, 8, 64
HIDDEN = HEADS * HEAD
WAIT_SECONDS = 30
FAST = {"detection_ms": 50, "join_ms": 50, "resume_ms": 50, "map_change_ms": 5, "migration_us": 100}


def config_of(
    plugin: str = "aerospike", options: dict[str, Any] | None = None, **changes: Any
) -> LMCacheEngineConfig:
    prefix = f"remote_storage_plugin.{plugin}."
    extra: dict[str, Any] = {
        f"{prefix}module_path": "lmcache_aerospike.adapter",
        f"{prefix}class_name": "AerospikeConnectorAdapter",
    }
    extra |= {f"{prefix}{name}": value for name, value in (options or {}).items()}
    extra["save_chunk_meta"] = changes.pop("save_chunk_meta", True)
    values: dict[str, Any] = {
        "chunk_size": TOKENS,
        "local_cpu": False,
        "max_local_cpu_size": 0.5,
        "remote_storage_plugins": [plugin],
        "remote_serde": "naive",
        "extra_config": extra,
    }
    return LMCacheEngineConfig.from_defaults(**{**values, **changes})


def metadata_of(**changes: Any) -> LMCacheMetadata:
    values: dict[str, Any] = {
        "model_name": "remote/model",
        "world_size": 1,
        "local_world_size": 1,
        "worker_id": 0,
        "local_worker_id": 0,
        "kv_dtype": torch.bfloat16,
        "kv_shape": (LAYERS, 2, TOKENS, HEADS, HEAD),
        "chunk_size": TOKENS,
        "role": "worker",
    }
    return LMCacheMetadata(**{**values, **changes})


def make_memory(gibibytes: float) -> Any:
    config = config_of(max_local_cpu_size=gibibytes)
    return LocalCPUBackend(config, metadata_of(), dst_device="cpu").memory_allocator


class RemoteWorld:
    """One backend.

    Args:
        loop: Runs on a thread of its own.
        memory: LMCache's allocator.
        options: Of the plug-in; `plugin`, `save_chunk_meta`, `use_layerwise` and `metadata` are
            LMCache's.
    """

    def __init__(
        self, loop: asyncio.AbstractEventLoop, memory: Any, options: dict[str, Any]
    ) -> None:
        self.loop = loop
        plugin = options.pop("plugin", "aerospike")
        self.metadata = options.pop("metadata", None) or metadata_of()
        lmcache = {
            name: options.pop(name)
            for name in ("save_chunk_meta", "use_layerwise")
            if name in options
        }
        config = config_of(plugin, options, **lmcache)
        self.cpu = LocalCPUBackend(config, self.metadata, dst_device="cpu", memory_allocator=memory)
        self.backend = RemoteBackend(
            config, self.metadata, loop, self.cpu, "cpu", plugin_name=plugin
        )
        self.memory = memory

    @property
    def connector(self) -> Any:
        assert self.backend.connection is not None, "not connected"
        return self.backend.connection.getWrappedConnector()

    def run(self, coroutine: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop).result(WAIT_SECONDS)

    def allocate(self, shape: tuple[int, ...], fmt: Any = MemoryFormat.KV_2LTD) -> Any:
        made = self.cpu.allocate([torch.Size(shape)], [torch.bfloat16], fmt)
        assert made is not None
        return made

    def put(
        self, key: CacheEngineKey, tensor: torch.Tensor, fmt: Any = MemoryFormat.KV_2LTD
    ) -> None:
        made = self.allocate(tuple(tensor.shape), fmt)
        made.tensor.copy_(tensor)
        future = self.backend.submit_put_task(key, made)
        assert future is not None
        try:
            future.result(WAIT_SECONDS)
        finally:
            made.ref_count_down()

    def take(self, key: CacheEngineKey) -> torch.Tensor | None:
        """A copy of what a load gives, which is released."""
        made = self.backend.get_blocking(key)
        if made is None:
            return None
        copy = made.tensor.clone()
        made.ref_count_down()
        return copy

    def memory_in_use(self) -> int:
        return int(self.memory.pin_allocator.total_allocated_size)

    def inspect(self, key: CacheEngineKey) -> Any:
        return self.connector._store.native.inspect(key.to_string())

    def close(self) -> None:
        if self.backend.connection is not None:
            self.backend.close()


def key_of(number: int, worker_id: int = 0, world_size: int = 1) -> CacheEngineKey:
    return CacheEngineKey("remote/model", world_size, worker_id, number, torch.bfloat16)


def tensor_of(shape: tuple[int, ...], seed: int) -> torch.Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randint(-(2**15), 2**15, shape, dtype=torch.int16, generator=generator).view(
        torch.bfloat16
    )


def same(a: torch.Tensor | None, b: torch.Tensor) -> bool:
    """Bit by bit: not every pattern is a number that equals itself."""
    return (
        a is not None
        and a.shape == b.shape
        and torch.equal(a.view(torch.int16), b.view(torch.int16))
    )
