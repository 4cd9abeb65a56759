# SPDX-License-Identifier: Apache-2.0
"""Mixed traffic from several connectors, over a cluster that loses nodes and restarts.

Rounds of some seconds. In each one a node goes and comes, or the whole cluster does, empty. Between
two rounds the traffic rests, and memory, descriptors and threads are measured.
"""

from __future__ import annotations

import collections
import ctypes
import gc
import hashlib
import os
import random
import select
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from server_process import read_ready_line

from lmcache_aerospike import AerospikeNativeConnector, Store, metrics
from lmcache_aerospike.errors import (
    AerospikeConnectorError,
    CorruptionError,
    InternalError,
    InvalidArgumentError,
    ProtocolError,
)

MIB = 1 << 20
SIZES = [16, 4096, 200_000, 983_040, 983_042, 2_500_000]
BUFFER_BYTES = max(SIZES)
KEYS_OF_A_WORKER = 24
BATCH = 6
WAIT_SECONDS_MAX = 60.0
ALARMING = (CorruptionError, InternalError, InvalidArgumentError, ProtocolError)
OPTIONS: dict[str, Any] = {
    "tend_interval_ms": 100,
    "read_timeout_ms": 1500,
    "write_timeout_ms": 1500,
    "connect_timeout_ms": 500,
}
LOSSLESS = {"type": "lossless", "dtype": "bfloat16", "max_workers": 2}
CHECKED = {
    "type": "chain",
    "dtype": "bfloat16",
    "stages": [{"type": "lossless"}, {"type": "checksum"}],
}


def content(key: str, version: int) -> bytes:
    """What a version of a key holds: it says which one it is, and every byte depends on both."""
    name = f"{key}/{version}".encode()
    size = SIZES[hashlib.md5(name).digest()[0] % len(SIZES)]
    return version.to_bytes(8, "big") + hashlib.shake_128(name).digest(size - 8)


class Cluster:
    """The server process. It comes back at the same ports."""

    def __init__(self) -> None:
        self._port = free_ports(3)
        self._start()

    def _start(self) -> None:
        program = Path(__file__).with_name("soak_server.py")
        self._process = subprocess.Popen(
            [sys.executable, str(program), str(self._port)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        )
        self.hosts = read_ready_line(self._process)

    def tell(self, command: str) -> None:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(f"{command}\n".encode())
        self._process.stdin.flush()
        assert self._process.stdout.readline() == b"done\n"

    def restart(self) -> None:
        """The whole cluster goes at once, and with it all it held."""
        self.kill()
        self._start()

    def kill(self) -> None:
        self._process.kill()
        self._process.wait()
        for pipe in (self._process.stdin, self._process.stdout):
            if pipe is not None:
                pipe.close()


def free_ports(count: int) -> int:
    """The first of some neighbouring ports that nobody has."""
    while True:
        with socket.socket() as first:
            first.bind(("127.0.0.1", 0))
            port = int(first.getsockname()[1])
            try:
                for i in range(1, count):
                    with socket.socket() as other:
                        other.bind(("127.0.0.1", port + i))
            except (OSError, OverflowError):
                continue
            return port


class Worker:
    """One user of the cluster, with keys of its own."""

    def __init__(self, name: str, hosts: str, seed: int, **options: Any) -> None:
        self.name = name
        self.counts: collections.Counter[str] = collections.Counter()
        self.problems: list[str] = []
        self._hosts = hosts
        self._options = {**OPTIONS, **options}
        self._random = random.Random(f"{seed}/{name}")
        self._versions = dict.fromkeys((f"{name}/{i}" for i in range(KEYS_OF_A_WORKER)), 0)

    def open(self) -> None:
        raise NotImplementedError

    def close(self) -> None:
        raise NotImplementedError

    def step(self) -> None:
        """Some operations, to their end."""
        raise NotImplementedError

    def choose(self) -> list[str]:
        return self._random.sample(list(self._versions), BATCH)

    def next_content(self, key: str) -> bytes:
        self._versions[key] += 1
        return content(key, self._versions[key])

    def check(self, key: str, payload: memoryview | bytes) -> None:
        """A hit holds a version that was stored, whole."""
        version = int.from_bytes(payload[:8], "big")
        if not 0 < version <= self._versions[key] or payload != content(key, version):
            self.problems.append(f"{key}: {len(payload)} bytes that say version {version}")

    def failed(self, operation: str, error: BaseException | None) -> None:
        self.counts[f"{operation} error"] += 1
        if isinstance(error, ALARMING) or not isinstance(error, AerospikeConnectorError):
            self.problems.append(f"{self.name}: {operation}: {error!r}")


class StoreWorker(Worker):
    """Calls that wait, on a store that lives as long as the soak, or for one round."""

    def __init__(self, *args: Any, lives_long: bool, **options: Any) -> None:
        super().__init__(*args, **options)
        self.lives_long = lives_long
        self._store: Store | None = None
        self._buffer = bytearray(BUFFER_BYTES)

    def open(self) -> None:
        if self._store is None:
            self._store = Store(self._hosts, **self._options)

    def close(self) -> None:
        if self._store is not None:
            self._store.close()
            self._store = None

    def step(self) -> None:
        assert self._store is not None
        store = self._store
        keys = self.choose()
        call = self._random.choice(["put", "put", "get", "get", "get", "exists", "delete"])
        if call == "put":
            self._many("put", store.put_many, keys, [self.next_content(key) for key in keys])
        elif call == "exists":
            self._many("exists", store.exists_many, keys)
        elif call == "delete":
            self._many("delete", store.delete_many, keys[:2])
        else:
            self._get(store, keys[0])

    def _get(self, store: Store, key: str) -> None:
        self.counts["get"] += 1
        try:
            size = store.get_into(key, self._buffer)
        except AerospikeConnectorError as error:
            self.failed("get", error)
            return
        if size is not None:
            self.counts["get hit"] += 1
            self.check(key, memoryview(self._buffer)[:size])

    def _many(self, operation: str, call: Callable[..., list[Any]], *arguments: Any) -> None:
        results = call(*arguments)
        self.counts[operation] += len(results)
        for result in results:
            if isinstance(result, BaseException):
                self.failed(operation, result)
            elif result:
                self.counts[f"{operation} hit"] += 1


class ConnectorWorker(Worker):
    """Batches with completions, two at a time; a new connector for each round."""

    lives_long = False

    def __init__(self, *args: Any, **options: Any) -> None:
        super().__init__(*args, **options)
        self._is_open = False

    def open(self) -> None:
        self._connector = AerospikeNativeConnector(self._hosts, **self._options)
        self._buffers = [bytearray(BUFFER_BYTES) for _ in range(BATCH)]
        self._is_open = True

    def close(self) -> None:
        if not self._is_open:
            return
        self._is_open = False
        # With work under way, which must end.
        keys = self.choose()
        left = self._connector.submit_batch_get(keys, self._buffers)
        self._connector.close()
        self._take({left: ("get", keys)})
        del self._buffers

    def step(self) -> None:
        connector = self._connector
        keys = self.choose()
        payloads = [self.next_content(key) for key in keys[:3]]
        self._take({connector.submit_batch_set(keys[:3], payloads): ("put", keys[:3])})
        self._take(
            {
                connector.submit_batch_get(keys, self._buffers): ("get", keys),
                connector.submit_batch_exists(keys): ("exists", keys),
            }
        )
        if self._random.random() < 0.2:
            self._take({connector.submit_batch_delete(keys[:2]): ("delete", keys[:2])})

    def _take(self, batches: dict[int, tuple[str, list[str]]]) -> None:
        deadline = time.monotonic() + WAIT_SECONDS_MAX
        while batches:
            if time.monotonic() > deadline:
                self.problems.append(f"{self.name}: {len(batches)} batches never completed")
                return
            select.select([self._connector.event_fd()], [], [], 1.0)
            for batch, results in self._connector.drain_results():
                operation, keys = batches.pop(batch)
                self._count(operation, keys, results)

    def _count(self, operation: str, keys: list[str], results: list[Any]) -> None:
        self.counts[operation] += len(keys)
        for i, (outcome, size, _, error) in enumerate(results):
            if outcome == "error":
                self.failed(operation, error)
            elif outcome == "hit":
                self.counts[f"{operation} hit"] += 1
                if operation == "get":
                    self.check(keys[i], memoryview(self._buffers[i])[:size])


def make_workers(hosts: str, seed: int) -> list[Any]:
    return [
        StoreWorker("keeper", hosts, seed, lives_long=True, set_name="plain"),
        StoreWorker("visitor", hosts, seed, lives_long=False, set_name="plain", num_io_threads=1),
        ConnectorWorker("batches", hosts, seed, set_name="plain"),
        ConnectorWorker("thorough", hosts, seed, set_name="plain", verify="full"),
        ConnectorWorker("lossless", hosts, seed, set_name="small", serde=LOSSLESS),
        StoreWorker("checked", hosts, seed, lives_long=True, set_name="checked", serde=CHECKED),
    ]


@dataclass
class Sample:
    """What the process uses while its traffic rests."""

    event: str
    seconds: float
    rss: int
    descriptors: int
    threads: int
    counts: collections.Counter[str] = field(repr=False)


def resources() -> tuple[int, int, int]:
    """Bytes of resident memory, descriptors, threads."""
    gc.collect()
    ctypes.CDLL(None).malloc_trim(0)
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return (
        pages * os.sysconf("SC_PAGE_SIZE"),
        len(os.listdir("/proc/self/fd")),
        len(os.listdir("/proc/self/task")),
    )


class Soak:
    """The whole run."""

    def __init__(self, seconds: float, round_seconds: float, seed: int) -> None:
        self._seconds = seconds
        self._round_seconds = round_seconds
        self._random = random.Random(seed)
        self._cluster = Cluster()
        self.samples: list[Sample] = []
        self.problems: list[str] = []
        self.workers = make_workers(self._cluster.hosts, seed)

    def run(self) -> None:
        started = time.monotonic()
        before = metrics.totals()["operations"]
        try:
            while time.monotonic() - started < self._seconds:
                event = self._round(len(self.samples))
                counts = sum((w.counts for w in self.workers), collections.Counter())
                self.samples.append(Sample(event, time.monotonic() - started, *resources(), counts))
        finally:
            for worker in self.workers:
                worker.close()
            self._cluster.kill()
        self.problems += [problem for worker in self.workers for problem in worker.problems]
        self._compare_with_metrics(before)

    def _round(self, number: int) -> str:
        for worker in self.workers:
            worker.open()
        stop = threading.Event()
        threads = [
            threading.Thread(target=self._work, args=(worker, stop)) for worker in self.workers
        ]
        for thread in threads:
            thread.start()
        try:
            return self._disturb(number)
        finally:
            stop.set()
            for thread in threads:
                thread.join(2 * WAIT_SECONDS_MAX)
            for worker in self.workers:
                if not worker.lives_long:
                    worker.close()

    def _work(self, worker: Any, stop: threading.Event) -> None:
        try:
            while not stop.is_set():
                worker.step()
        except BaseException as error:
            self.problems.append(f"{worker.name}: {error!r}")
            raise

    def _disturb(self, number: int) -> str:
        """What happens to the cluster in this round, at some time in it."""
        pause = self._round_seconds / 3
        time.sleep(pause * self._random.uniform(0.7, 1.3))
        if number % 3 == 0:
            time.sleep(pause)
            return "quiet"
        if number % 3 == 1:
            node = self._random.randrange(3)
            self._cluster.tell(f"stop {node}")
            time.sleep(pause / 2)
            self._cluster.tell(f"start {node}")
            time.sleep(pause / 2)
            return f"node {node} away"
        self._cluster.restart()
        time.sleep(pause)
        return "restart"

    def _compare_with_metrics(self, before: Any) -> None:
        """The engine has counted what the workers have."""
        after = metrics.totals()["operations"]
        counts = sum((worker.counts for worker in self.workers), collections.Counter())
        for operation in ("get", "put", "exists", "delete"):
            seen = after[operation]["items"] - before[operation]["items"]
            if seen != counts[operation]:
                self.problems.append(f"metrics: {seen} x {operation}, not {counts[operation]}")

    def table(self) -> str:
        """For people."""
        lines = ["   s  event           RSS MiB  fds  threads     put     get    hits  errors"]
        for sample in self.samples:
            counts = sample.counts
            errors = sum(count for name, count in counts.items() if name.endswith("error"))
            lines.append(
                f"{sample.seconds:4.0f}  {sample.event:14}{sample.rss / MIB:9.1f}"
                f"{sample.descriptors:5}{sample.threads:9}{counts['put']:8}{counts['get']:8}"
                f"{counts['get hit']:8}{errors:8}"
            )
        return "\n".join(lines)
