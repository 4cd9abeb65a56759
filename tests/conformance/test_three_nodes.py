# SPDX-License-Identifier: Apache-2.0
"""Three nodes with two copies: both clients agree while a node is lost and comes back."""

from __future__ import annotations

import time

import pytest
from conformance_cluster import open_cluster
from records import Plugin, random_bytes

from lmcache_aerospike import Store

SIZE = 1_500_000  # two segments
COUNT = 24
FAST = {"detection_ms": 300, "join_ms": 300, "resume_ms": 200, "map_change_ms": 20}


@pytest.fixture
def three():
    yield from open_cluster(
        nodes=3,
        replication=2,
        timing={**FAST, "migration_us": 200},
        namespaces=[{"name": "lmcache", "size_bytes": 1 << 30}],
    )


def eventually(check, seconds=20.0):
    """Repeats a check that has no event to wait for."""
    deadline = time.monotonic() + seconds
    while not check():
        assert time.monotonic() < deadline


def test_records_lie_on_all_nodes_twice(three):
    with Store(three.server.hosts) as store:
        for i in range(COUNT):
            store.put(f"key {i}", random_bytes(i, SIZE))
        counts = [three.server.stats(node)["records"] for node in range(3)]
        assert sum(counts) == 2 * 3 * COUNT
        assert min(counts) > 0
        assert {node["name"] for node in store.stats()["nodes"]} == {"B1", "B2", "B3"}


def test_a_lost_node_costs_no_object(three):
    contents = {f"key {i}": random_bytes(i, SIZE) for i in range(COUNT)}
    plugin = Plugin(three.client, "kv_chunks")
    with Store(three.server.hosts) as store:
        for i, (key, content) in enumerate(contents.items()):
            if i % 2 == 0:
                store.put(key, content)
            else:
                plugin.put(key, content)
        three.server.stop_node(1)
        # At once, before the others have noticed: the second copy answers.
        for key, content in contents.items():
            assert store.get(key) == content
        three.server.await_settled()
        eventually(lambda: all(store.exists_many(list(contents))))
        for key, content in contents.items():
            assert store.get(key) == content
            assert plugin.get(key) == content
        store.put("new", b"stored without the third node")
        assert plugin.get("new") == b"stored without the third node"
        three.server.start_node(1)
        three.server.await_settled(20)
        eventually(lambda: all(store.exists_many(list(contents))))
        for key, content in contents.items():
            assert store.get(key) == content
            assert plugin.get(key) == content


def test_a_frozen_node_costs_a_load_little_time(three):
    contents = {f"key {i}": random_bytes(i, SIZE) for i in range(COUNT)}
    with Store(three.server.hosts, read_timeout_ms=5000) as store:
        for key, content in contents.items():
            store.put(key, content)
        three.server.pause_node(2)
        started = time.monotonic()
        for key, content in contents.items():
            assert store.get(key) == content
        # One time-out of 150 ms, not one for each object, and never a whole deadline.
        assert time.monotonic() - started < 3
        three.server.resume_node(2)
        three.server.await_settled(20)
        eventually(lambda: all(store.exists_many(list(contents))))
        for key, content in contents.items():
            assert store.get(key) == content
