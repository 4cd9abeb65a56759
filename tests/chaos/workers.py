# SPDX-License-Identifier: Apache-2.0
"""Who uses the cluster while events happen to it: the native connector, and LMCache."""

from __future__ import annotations

import collections
import contextlib
import hashlib
import random
import threading
import time
from typing import Any

import soak
from schedule import HASHED_SET, Recipe

from lmcache_aerospike.errors import AerospikeConnectorError, InternalError

LOSSLESS = {"type": "lossless", "dtype": "bfloat16", "max_workers": 2}
OPTIONS: dict[str, Any] = {"request_timeout_ms": 150, "write_request_timeout_ms": 500}
PAUSE_SECONDS = 0.005  # users that never rest would only show how busy this machine is
RECOVERED = 5  # successes behind the last event


class Player:
    """One user, on a thread of its own."""

    name = ""
    is_ready = False

    def __init__(self) -> None:
        self.counts: collections.Counter[str] = collections.Counter()
        self.problems: list[str] = []
        self._defect = ""
        self._hurt = threading.Event()

    def plant(self, defect: str, hurt: threading.Event) -> None:
        """With "flip" loads have a wrong byte as soon as a node has died or frozen."""
        self._defect, self._hurt = defect, hurt

    def has_defect(self, defect: str) -> bool:
        return self._defect == defect and self._hurt.is_set()

    def play(self, stop: threading.Event) -> None:
        raise NotImplementedError

    def successes(self) -> dict[str, int]:
        """Of stores and loads, from which it is seen that both work."""
        raise NotImplementedError

    def has_recovered(self, before: dict[str, int]) -> bool:
        now = self.successes()
        return all(now[name] >= before[name] + RECOVERED for name in now)


class SoakPlayer(Player):
    """A worker of the soak test."""

    def __init__(self, worker: Any, *, reopens: bool = False) -> None:
        super().__init__()
        self.name = worker.name
        self._worker = worker
        self._reopens = reopens
        self.counts = worker.counts
        self.problems = worker.problems
        # Faults make requests fail in every way; only what can never be right is a problem.
        worker.failed = self._failed
        self._check = worker.check
        worker.check = self._checked

    def _failed(self, operation: str, error: BaseException | None) -> None:
        self.counts[f"{operation} error"] += 1
        if isinstance(error, InternalError) or not isinstance(error, AerospikeConnectorError):
            self.problems.append(f"{self.name}: {operation}: {error!r}")

    def _checked(self, key: str, payload: memoryview | bytes) -> None:
        if self.has_defect("flip"):
            payload = bytes(payload[:-1]) + bytes([payload[-1] ^ 1])
        self._check(key, payload)

    def play(self, stop: threading.Event) -> None:
        try:
            while not stop.is_set() and not self.problems:
                self._some(stop)
        finally:
            self._worker.close()

    def _some(self, stop: threading.Event) -> None:
        try:
            self._worker.open()
        except AerospikeConnectorError:
            self.counts["open error"] += 1
            time.sleep(0.1)
            return
        self.is_ready = True
        end = time.monotonic() + 1.5 if self._reopens else float("inf")
        while not stop.is_set() and not self.problems and time.monotonic() < end:
            self._worker.step()
            time.sleep(PAUSE_SECONDS)
        if self._reopens:
            self._worker.close()

    def successes(self) -> dict[str, int]:
        return {name: self.counts[f"{name} hit"] for name in ("put", "get")}


def login_of(recipe: Recipe) -> dict[str, Any]:
    """The user of chaos_server.py."""
    return {"username": "chaos", "password": "a password"} if recipe.has_users else {}


def native_players(hosts: str, recipe: Recipe) -> list[Player]:
    """Stores and connectors, with serde and without."""
    options = {**OPTIONS, **login_of(recipe)}
    seed = recipe.seed
    workers = [
        soak.StoreWorker(
            "keeper",
            hosts,
            seed,
            lives_long=True,
            set_name="plain",
            hedge_reads=seed % 2 == 0,
            **options,
        ),
        soak.ConnectorWorker("batches", hosts, seed, set_name="plain", **options),
        soak.ConnectorWorker(
            "thorough", hosts, seed, set_name=HASHED_SET, verify="full", **options
        ),
        soak.ConnectorWorker("coder", hosts, seed, set_name="small", serde=LOSSLESS, **options),
    ]
    return [SoakPlayer(worker, reopens=worker.name == "batches") for worker in workers]


def make_players(hosts: str, recipe: Recipe, kinds: list[str]) -> list[Player]:
    """Of kinds "native" and "lmcache"."""
    players: list[Player] = []
    if "lmcache" in kinds:
        from lmcache_players import AdapterPlayer, ManagerPlayer

        options = {**OPTIONS, **login_of(recipe), "tend_interval_ms": 100}
        kind = "plugin" if recipe.seed % 2 else "native_plugin"
        players += [
            ManagerPlayer("manager", kind, hosts, recipe.seed, options),
            AdapterPlayer("adapter", "native_plugin", hosts, recipe.seed, options),
        ]
    if "native" in kinds:
        players += native_players(hosts, recipe)
    return players


def content_of(name: str, size: int) -> bytes:
    """Every byte depends on the name."""
    return hashlib.shake_128(name.encode()).digest(size)


def quietly(close: Any) -> None:
    """Closes what may be half open."""
    with contextlib.suppress(AerospikeConnectorError):
        close()


def seeded(seed: int, name: str) -> random.Random:
    """A random stream of one player."""
    return random.Random(f"{seed}/{name}")
