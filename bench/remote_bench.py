#!/usr/bin/env python3
# SPDX-License-Identifier: Apache-2.0
"""Compares the remote connector of the in-process mode with the native connector below it.

Both load the same chunks from the same server into LMCache's memory, in turn, so that the machine
is the same for both. Lookups are measured in round trips: the server answers late by a known time.

    python bench/remote_bench.py [--quick] [--json FILE] [--check]
"""

from __future__ import annotations

import argparse
import asyncio
import json
import logging
import os
import select
import statistics
import sys
import threading
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

os.environ.setdefault("LMCACHE_LOG_LEVEL", "ERROR")
warnings.simplefilter("ignore")

import torch  # noqa: E402
from contestants import Aerokv  # noqa: E402
from lmcache.utils import CacheEngineKey  # noqa: E402
from lmcache.v1.config import LMCacheEngineConfig  # noqa: E402
from lmcache.v1.memory_management import MemoryFormat  # noqa: E402
from lmcache.v1.metadata import LMCacheMetadata  # noqa: E402
from lmcache.v1.storage_backend.local_cpu_backend import LocalCPUBackend  # noqa: E402

from lmcache_aerospike import AerospikeNativeConnector, _native  # noqa: E402
from lmcache_aerospike.config import AerospikeConfig  # noqa: E402
from lmcache_aerospike.connector import AerospikeRemoteConnector  # noqa: E402

CHUNKS = 32
CHUNK_BYTES = 4 << 20
LOOKUP_KEYS = 1000
TOKENS, LAYERS = 256, 4
DELAY_MS = 50
GOAL_RATIO = 0.9
GOAL_ROUND_TRIPS = 3


class Both:
    """The two connectors to one server, and the memory that they load into.

    Args:
        hosts: Of the server.
    """

    def __init__(self, hosts: str) -> None:
        hidden = CHUNK_BYTES // (2 * LAYERS * TOKENS * 2)
        config = LMCacheEngineConfig.from_defaults(chunk_size=TOKENS, max_local_cpu_size=0.5)
        metadata = LMCacheMetadata(
            model_name="bench/model",
            world_size=1,
            local_world_size=1,
            worker_id=0,
            local_worker_id=0,
            kv_dtype=torch.bfloat16,
            kv_shape=(LAYERS, 2, TOKENS, 1, hidden),
            chunk_size=TOKENS,
            role="worker",
        )
        memory = LocalCPUBackend(config, metadata, dst_device="cpu")
        self.loop = asyncio.new_event_loop()
        self._thread = threading.Thread(target=self.loop.run_forever, daemon=True)
        self._thread.start()
        self.remote = AerospikeRemoteConnector(
            config=config,
            metadata=metadata,
            local_cpu_backend=memory,
            loop=self.loop,
            aerospike_config=AerospikeConfig.from_extra_config(
                {"remote_storage_plugin.aerospike.hosts": hosts}, "aerospike"
            ),
        )
        self.native = AerospikeNativeConnector(hosts)
        self.keys = [CacheEngineKey("bench/model", 1, 0, i, torch.bfloat16) for i in range(CHUNKS)]
        self._names = [key.to_string() for key in self.keys]
        self._objects = [
            memory.allocate(metadata.get_shapes(), metadata.get_dtypes(), MemoryFormat.KV_2LTD)
            for _ in self.keys
        ]
        for number, one in enumerate(self._objects):
            one.tensor.fill_(number)
        self.run(self.remote.batched_put(self.keys, self._objects))

    def run(self, coroutine: Any) -> Any:
        return asyncio.run_coroutine_threadsafe(coroutine, self.loop).result()

    def load_native(self) -> None:
        self.native.submit_batch_get(self._names, [one.byte_array for one in self._objects])
        select.select([self.native.event_fd()], [], [], 30)
        (completion,) = self.native.drain_completions()
        assert completion[1], completion[2]

    def load_remote(self) -> None:
        loaded = self.run(self.remote.batched_get(self.keys))
        for number, one in enumerate(loaded):
            assert one is not None, f"chunk {number} was lost"
            one.ref_count_down()

    def close(self) -> None:
        self.run(self.remote.close())
        self.native.close()
        self.loop.call_soon_threadsafe(self.loop.stop)
        self._thread.join()
        self.loop.close()


def seconds_of(action: Callable[[], object]) -> float:
    began = time.perf_counter()
    action()
    return time.perf_counter() - began


def measure_loads(rounds: int) -> dict[str, Any]:
    """Megabytes per second of both, round by round, and the median of their ratios."""
    server = Aerokv()
    try:
        both = Both(server.hosts)
        try:
            for _ in range(3):
                both.load_native()
                both.load_remote()
            native, remote = [], []
            for number in range(rounds):
                # Each goes first as often as the other.
                for name in ("native", "remote") if number % 2 else ("remote", "native"):
                    if name == "native":
                        native.append(seconds_of(both.load_native))
                    else:
                        remote.append(seconds_of(both.load_remote))
        finally:
            both.close()
    finally:
        server.close()
    megabytes = CHUNKS * CHUNK_BYTES / 1e6
    return {
        "native_mb_per_second": megabytes / statistics.median(native),
        "remote_mb_per_second": megabytes / statistics.median(remote),
        "ratio": statistics.median(n / r for n, r in zip(native, remote, strict=True)),
        "rounds": rounds,
    }


def measure_lookup(rounds: int) -> dict[str, Any]:
    """Round trips of a lookup: how many times the server's delay it takes."""
    with _native.DevServer() as server:
        both = Both(server.hosts)
        try:
            keys = [
                CacheEngineKey("bench/model", 1, 0, i % CHUNKS, torch.bfloat16)
                for i in range(LOOKUP_KEYS)
            ]
            assert both.remote.batched_contains(keys) == LOOKUP_KEYS
            quick = [seconds_of(lambda: both.remote.batched_contains(keys)) for _ in range(rounds)]
            server.add_fault(action="latency", delay_ms=DELAY_MS, count=1 << 30)
            late = [seconds_of(lambda: both.remote.batched_contains(keys)) for _ in range(rounds)]
            server.clear_faults()
        finally:
            both.close()
    return {
        "keys": LOOKUP_KEYS,
        "milliseconds": statistics.median(quick) * 1e3,
        "round_trips": statistics.median(late) * 1e3 / DELAY_MS,
    }


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--quick", action="store_true", help="some seconds, fewer rounds")
    parser.add_argument("--json", type=Path, help="write the results there")
    parser.add_argument("--check", action="store_true", help="fail if a goal is missed")
    arguments = parser.parse_args()
    logging.disable(logging.WARNING)
    loads = measure_loads(10 if arguments.quick else 60)
    lookup = measure_lookup(3 if arguments.quick else 10)
    report = {"loads": loads, "lookup": lookup}
    if arguments.json:
        arguments.json.write_text(json.dumps(report, indent=2) + "\n")
    print(
        f"load {CHUNKS} chunks of {CHUNK_BYTES >> 20} MiB: native "
        f"{loads['native_mb_per_second']:,.0f} MB/s, remote {loads['remote_mb_per_second']:,.0f} "
        f"MB/s, ratio {loads['ratio']:.2f} (goal {GOAL_RATIO})"
    )
    print(
        f"look up {LOOKUP_KEYS} keys: {lookup['milliseconds']:.2f} ms, {lookup['round_trips']:.1f} "
        f"round trips (goal: below {GOAL_ROUND_TRIPS})"
    )
    met = loads["ratio"] >= GOAL_RATIO and lookup["round_trips"] < GOAL_ROUND_TRIPS
    return 0 if met or not arguments.check else 1


if __name__ == "__main__":
    sys.exit(main())
