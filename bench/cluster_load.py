# SPDX-License-Identifier: Apache-2.0
"""A light load through one client, in a process of its own; every byte of every hit is verified.

Each line of stdin stores all objects again, which is answered by a line; the end of stdin ends the
load, and what became of every operation is written to a file.
"""

from __future__ import annotations

import argparse
import json
import random
import sys
import threading
import time
import warnings
from pathlib import Path

import cluster_clients
from cluster_clients import OURS, SEGMENT_BYTES, Client, Failure

RECORD_BYTES = 4 << 10
OBJECT_BYTES = 4 * SEGMENT_BYTES
LOOKUP_KEYS = 8

LOAD, LOAD_LARGE = "load", "load large"
STORE, STORE_LARGE = "store", "store large"
LOOKUP = "lookup"

# Threads and operations a second of each kind. A thread waits for its answer, so what takes a
# second is not counted twenty times; several threads see to it that there is enough to count.
PLAN = {LOAD: (4, 40.0), LOAD_LARGE: (4, 20.0), STORE: (4, 20.0), STORE_LARGE: (4, 12.0)}
PLAN |= {LOOKUP: (4, 20.0)}

# Names of objects; the first half of each kind is only loaded, the other half is overwritten, too.
COUNTS = {RECORD_BYTES: 300, OBJECT_BYTES: 80}


class Object:
    """What is known of one object. Its content follows from its name and version."""

    def __init__(self, key: str, size: int) -> None:
        self.key = key
        self.size = size
        self.lock = threading.Lock()
        self.writer = threading.Lock()
        self.tried = 0  # versions up to this have been sent
        self.stored = 0  # the last version that was acknowledged
        self.certain = False  # the last store was acknowledged, and none is under way

    def content(self, version: int) -> bytes:
        """Version number and bytes that no other version and no other object has."""
        head = version.to_bytes(8, "big")
        return head + random.Random(f"{self.key}/{version}").randbytes(self.size - len(head))


def store(client: Client, item: Object) -> str:
    """Stores the next version."""
    with item.writer:
        with item.lock:
            item.tried += 1
            version = item.tried
            item.certain = False
        data = item.content(version)
        try:
            client.put(item.key, data)
        except Failure as failure:
            return f"error {failure}"
        with item.lock:
            item.stored = version
            item.certain = True
    return "ok"


def load(client: Client, item: Object) -> str:
    """Loads an object: ok, old, lost, absent (not to be expected), wrong, or the error."""
    with item.lock:
        before, tried, certain = item.stored, item.tried, item.certain
    try:
        data = client.get(item.key, item.size)
    except Failure as failure:
        return f"error {failure}"
    if data is None:
        with item.lock:
            certain = certain and item.certain and item.tried == tried
        return "lost" if certain else "absent"
    version = int.from_bytes(data[:8], "big")
    with item.lock:
        tried = item.tried
    if not 0 < version <= tried or data != item.content(version):
        return "wrong"
    return "ok" if version >= before else "old"


class Load:
    """The objects, the threads, and what became of every operation."""

    def __init__(self, client: Client) -> None:
        self.client = client
        self.results: list[tuple[float, float, str, str]] = []
        self._ending = threading.Event()
        self._threads: list[threading.Thread] = []
        self._objects = {
            size: [Object(f"{size}/{number}", size) for number in range(count)]
            for size, count in COUNTS.items()
        }

    def fill(self) -> int:
        """Stores everything that must be there; returns how many could not be stored."""
        failed = 0
        for items in self._objects.values():
            for item in items:
                failed += store(self.client, item) != "ok"
        return failed

    def start(self) -> None:
        for kind, (threads, rate) in PLAN.items():
            for number in range(threads):
                pace = threads / rate
                thread = threading.Thread(target=self._run, args=(kind, number, pace), daemon=True)
                thread.start()
                self._threads.append(thread)

    def stop(self) -> None:
        self._ending.set()
        for thread in self._threads:
            thread.join(30)

    def _run(self, kind: str, number: int, pace: float) -> None:
        chance = random.Random(f"{kind}{number}")
        due = time.monotonic() + chance.random() * pace
        while not self._ending.wait(max(0.0, due - time.monotonic())):
            begun = time.monotonic()
            try:
                result = self._operation(kind, chance)
            except Exception as error:  # a client that breaks is a result, too
                result = f"error {type(error).__name__}: {error}"
            self.results.append((begun, time.monotonic() - begun, kind, result))
            due = max(due + pace, time.monotonic())

    def _operation(self, kind: str, chance: random.Random) -> str:
        items = self._objects[OBJECT_BYTES if kind in {LOAD_LARGE, STORE_LARGE} else RECORD_BYTES]
        if kind in {LOAD, LOAD_LARGE}:
            return load(self.client, chance.choice(items))
        if kind in {STORE, STORE_LARGE}:
            return store(self.client, chance.choice(items[len(items) // 2 :]))
        chosen = chance.sample(items[: len(items) // 2], LOOKUP_KEYS)
        try:
            found = self.client.exists([item.key for item in chosen])
        except Failure as failure:
            return f"error {failure}"
        return "ok" if all(found) else "lost"


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("kind", choices=[OURS, cluster_clients.OFFICIAL])
    parser.add_argument("hosts")
    parser.add_argument("output", type=Path)
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")
    client = cluster_clients.connect(arguments.kind, arguments.hosts, f"of_{arguments.kind}")
    load_ = Load(client)
    failed = load_.fill()
    load_.start()
    sys.stdout.write(json.dumps({"failed": failed}) + "\n")
    sys.stdout.flush()
    for _ in sys.stdin:
        sys.stdout.write(json.dumps({"failed": load_.fill()}) + "\n")
        sys.stdout.flush()
    load_.stop()
    arguments.output.write_text(json.dumps(load_.results))
    client.close()
    return 0


if __name__ == "__main__":
    sys.exit(main())
