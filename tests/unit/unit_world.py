# SPDX-License-Identifier: Apache-2.0
"""A remote connector over a development server, with memory that counts its references."""

from __future__ import annotations

import asyncio
from typing import Any

import torch
from fakes import FakeKey, FakeLocalCPUBackend, FakeMemoryObj
from lmcache.v1.config import LMCacheEngineConfig
from lmcache.v1.memory_management import MemoryFormat
from lmcache.v1.metadata import LMCacheMetadata

from lmcache_aerospike.client import AerospikeClientHolder
from lmcache_aerospike.config import AerospikeConfig
from lmcache_aerospike.connector import AerospikeRemoteConnector

TOKENS, LAYERS, HIDDEN = 16, 2, 64
FULL = 2 * LAYERS * TOKENS * HIDDEN * 2
FAST = {"detection_ms": 50, "join_ms": 50, "resume_ms": 50, "map_change_ms": 5, "migration_us": 100}


def metadata_of(**changes: Any) -> LMCacheMetadata:
    values: dict[str, Any] = {
        "model_name": "unit/model",
        "world_size": 1,
        "local_world_size": 1,
        "worker_id": 0,
        "local_worker_id": 0,
        "kv_dtype": torch.bfloat16,
        "kv_shape": (LAYERS, 2, TOKENS, 1, HIDDEN),
        "chunk_size": TOKENS,
        "role": "worker",
    }
    return LMCacheMetadata(**{**values, **changes})


class World:
    """A connector, its memory and its loop."""

    def __init__(
        self,
        loop: asyncio.AbstractEventLoop,
        options: dict[str, Any],
        *,
        save_chunk_meta: bool = True,
        metadata: LMCacheMetadata | None = None,
        layerwise: bool = False,
        room: int = 1 << 30,
    ) -> None:
        self.loop = loop
        config = LMCacheEngineConfig.from_defaults(
            chunk_size=TOKENS,
            use_layerwise=layerwise,
            extra_config={"save_chunk_meta": save_chunk_meta},
        )
        metadata = metadata or metadata_of()
        self.backend = FakeLocalCPUBackend(config, metadata, room)
        self.cfg = AerospikeConfig.from_extra_config(
            {f"remote_storage_plugin.aerospike.{k}": v for k, v in options.items()}, "aerospike"
        )
        self.holder = AerospikeClientHolder.get_or_create(self.cfg)
        self.connector = AerospikeRemoteConnector(
            config=config,
            metadata=metadata,
            local_cpu_backend=self.backend,
            loop=loop,
            aerospike_config=self.cfg,
            client_holder=self.holder,
        )

    def run(self, coroutine: Any) -> Any:
        return self.loop.run_until_complete(coroutine)

    def chunk(self, tokens: int = TOKENS, fill: int = 0, shapes: Any = None) -> FakeMemoryObj:
        """A chunk with content of its own."""
        shapes = shapes or [torch.Size((2, LAYERS, tokens, HIDDEN))]
        made = FakeMemoryObj(shapes, [torch.bfloat16] * len(shapes), MemoryFormat.KV_2LTD)
        made.raw_data[:] = content(len(made.raw_data), fill)
        return made

    def put(self, key: str, tokens: int = TOKENS, fill: int = 0) -> bytes:
        """Stores a chunk; returns its content."""
        memory = self.chunk(tokens, fill)
        self.run(self.connector.put(FakeKey(key), memory))
        assert memory.ref_count_downs == 0
        return bytes(memory.raw_data)

    def put_bytes(self, key: str, size: int, fill: int = 0) -> bytes:
        """Stores an object of any even number of bytes."""
        memory = self.chunk(fill=fill, shapes=[torch.Size((1, 1, 1, size // 2))])
        self.run(self.connector.put(FakeKey(key), memory))
        return bytes(memory.raw_data)

    def get(self, key: str) -> FakeMemoryObj | None:
        return self.run(self.connector.get(FakeKey(key)))

    def take(self, key: str) -> bytes | None:
        """The content of a loaded chunk, which is released."""
        memory = self.get(key)
        if memory is None:
            return None
        try:
            return bytes(memory.byte_array)
        finally:
            memory.ref_count_down()

    def close(self) -> None:
        self.run(self.connector.close())


def content(size: int, fill: int = 0) -> bytes:
    pattern = fill.to_bytes(2, "little") + bytes(range(251))
    return (pattern * (size // len(pattern) + 1))[:size]
