# SPDX-License-Identifier: Apache-2.0
"""LMCache as a user of the cluster: its StorageManager, and its adapter driven directly."""

from __future__ import annotations

import threading
import time
from typing import Any

import torch
from lmcache.v1.distributed.api import (
    GroupedObjectKeys,
    MemoryLayoutDesc,
    ObjectKey,
    PrefetchTaskSpec,
)
from lmcache_driver import SPECS, AdapterDriver, object_key
from test_storage_manager import storage_manager
from workers import PAUSE_SECONDS, Player, content_of, seeded

SHAPE = (2, 4, 64, 256)  # 256 KiB of bfloat16: two records
LAYOUT = MemoryLayoutDesc(shapes=[torch.Size(SHAPE)], dtypes=[torch.bfloat16])
CHUNK_BYTES = 2 * 2 * 4 * 64 * 256
BATCH = 4
KEYS_KEPT = 200
WAIT_SECONDS_MAX = 45.0
SIZES = (16, 5000, 200_000, 300_000)


class ManagerPlayer(Player):
    """Chunks leave the memory of a StorageManager, and come back by prefetches."""

    def __init__(
        self, name: str, kind: str, hosts: str, seed: int, options: dict[str, Any]
    ) -> None:
        super().__init__()
        self.name = name
        self._spec = SPECS[kind](hosts, "managed", **options)
        self._random = seeded(seed, name)
        self._written = 0

    def successes(self) -> dict[str, int]:
        return {"prefetch hit": self.counts["prefetch hit"]}

    def play(self, stop: threading.Event) -> None:
        with storage_manager(self._spec) as manager:
            self.is_ready = True
            while not stop.is_set() and not self.problems:
                keys = self._write(manager)
                time.sleep(0.02)  # LMCache stores behind our back
                self._forget(manager, keys)
                self._prefetch(manager)
                time.sleep(PAUSE_SECONDS)

    def _key(self, index: int) -> ObjectKey:
        return object_key(index, cache_salt="tenant")

    def _tensor(self, index: int) -> torch.Tensor:
        content = bytearray(content_of(f"chunk {index}", CHUNK_BYTES))
        return torch.frombuffer(content, dtype=torch.uint8)

    def _write(self, manager: Any) -> list[ObjectKey]:
        indices = range(self._written, self._written + BATCH)
        self._written += BATCH
        keys = {self._key(i): i for i in indices}
        objects = manager.reserve_write(list(keys), LAYOUT)
        for key, item in objects.items():
            item.tensor.view(torch.uint8).flatten().copy_(self._tensor(keys[key]))
        manager.finish_write(list(objects))
        self.counts["write"] += len(objects)
        return list(objects)

    def _forget(self, manager: Any, keys: list[ObjectKey]) -> None:
        """From L1; chunks that are still being stored stay until then."""
        deadline = time.monotonic() + WAIT_SECONDS_MAX
        while keys and manager.delete_l1_keys(keys)[0] < len(keys):
            if time.monotonic() > deadline:
                self.problems.append(f"{self.name}: LMCache does not end its stores")
                return
            time.sleep(0.01)
            keys = [key for key in keys if manager.unsafe_read([key])[0]]

    def _prefetch(self, manager: Any) -> None:
        first = max(0, self._written - KEYS_KEPT)
        start = self._random.randrange(first, self._written)
        indices = list(range(start, min(start + BATCH, self._written)))
        keys = [self._key(i) for i in indices]
        group = GroupedObjectKeys(object_group_id=0, keys=keys, layout_desc=LAYOUT)
        handle = manager.submit_prefetch_task(PrefetchTaskSpec(key_groups=[group]))
        if not manager.wait_prefetch_status(handle, WAIT_SECONDS_MAX):
            self.problems.append(f"{self.name}: a prefetch is stranded")
            return
        result = manager.query_prefetch_status(handle)
        hits = int(result.l2_hit_cells[0].popcount())
        self.counts["prefetch"] += len(keys)
        self.counts["prefetch hit"] += hits
        found, objects = manager.unsafe_read(keys[:hits])
        for key, item in zip(found, objects, strict=True):
            index = indices[keys.index(key)]
            self._compare(index, item.tensor.view(torch.uint8).flatten())
        if found:
            manager.finish_read_prefetched(found)
        manager.delete_l1_keys(keys, force=True)

    def _compare(self, index: int, bytes_now: torch.Tensor) -> None:
        expected = self._tensor(index)
        if self.has_defect("flip"):
            expected[-1] ^= 1
        if not torch.equal(bytes_now, expected):
            self.problems.append(f"{self.name}: chunk {index} came back with other bytes")


class AdapterPlayer(Player):
    """Tasks of LMCache's native adapter, with keys that are stored again and again."""

    def __init__(
        self, name: str, kind: str, hosts: str, seed: int, options: dict[str, Any]
    ) -> None:
        super().__init__()
        self.name = name
        self._spec = SPECS[kind](hosts, "adapted", **options)
        self._random = seeded(seed, name)
        self._versions = dict.fromkeys(range(24), 0)

    def successes(self) -> dict[str, int]:
        return {name: self.counts[name] for name in ("store hit", "load hit")}

    def play(self, stop: threading.Event) -> None:
        driver = AdapterDriver(self._spec)
        self.is_ready = True
        try:
            while not stop.is_set() and not self.problems:
                self._step(driver)
                time.sleep(PAUSE_SECONDS)
        finally:
            driver.close()

    @staticmethod
    def _content(index: int, version: int) -> bytes:
        name = f"object {index} version {version}"
        return version.to_bytes(8, "big") + content_of(name, SIZES[index % len(SIZES)] - 8)

    def _step(self, driver: AdapterDriver) -> None:
        indices = self._random.sample(range(len(self._versions)), BATCH)
        keys = [object_key(i) for i in indices]
        choice = self._random.random()
        if choice < 0.4:
            for i in indices:
                self._versions[i] += 1
            contents = [self._content(i, self._versions[i]) for i in indices]
            result = driver.store_many(keys, contents)
            self.counts["store"] += len(keys)
            self.counts["store hit"] += len(keys) if result.is_successful() else 0
        elif choice < 0.9:
            sizes = [SIZES[i % len(SIZES)] for i in indices]
            self.counts["load"] += len(keys)
            for index, content in zip(indices, driver.load_many(keys, sizes), strict=True):
                if content is not None:
                    self._judge(index, content)
        elif choice < 0.97:
            self.counts["lookup hit"] += sum(driver.lookup(keys))
        else:
            driver.delete(keys[:2])
            self.counts["delete"] += 2

    def _judge(self, index: int, content: bytes) -> None:
        self.counts["load hit"] += 1
        version = int.from_bytes(content[:8], "big")
        is_known = 0 < version <= self._versions[index]
        if not is_known or content != self._content(index, version):
            self.problems.append(f"{self.name}: object {index} has bytes that were never stored")
