# SPDX-License-Identifier: Apache-2.0
"""The development server as Python sees it."""

from __future__ import annotations

import socket

import pytest

from lmcache_aerospike import Store, _native
from lmcache_aerospike.errors import AerospikeTimeoutError, InvalidArgumentError, NotFoundError

FAST = {"detection_ms": 50, "join_ms": 50, "resume_ms": 50, "map_change_ms": 5, "migration_us": 100}


def test_endpoints_and_stop() -> None:
    server = _native.DevServer(nodes=3)
    assert len(server.endpoints()) == 3
    assert server.hosts == ",".join(f"{host}:{port}" for host, port in server.endpoints())
    socket.create_connection(server.endpoints()[0]).close()
    server.stop()
    server.stop()
    with pytest.raises(OSError, match="refused"):
        socket.create_connection(server.endpoints()[0])


def test_taken_port() -> None:
    with _native.DevServer() as server, pytest.raises(ConnectionError):
        _native.DevServer(port=server.endpoints()[0][1])


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ({"nodes": 0}, "nodes"),
        ({"nodes": 17}, "nodes"),
        ({"colour": 1}, "option 'colour': unknown"),
        ({"port": 70000}, "option 'port': 70000, expected a whole number from 0 to 65535"),
        ({"port": "1"}, "option 'port': str"),
        ({"namespaces": [{"size": 1}]}, "namespace option 'size': unknown"),
        ({"users": [{"name": 1}]}, "user option 'name': int, expected text"),
        ({"timing": {"join_ms": -1}}, "timing option 'join_ms'"),
    ],
)
def test_bad_options(options: dict[str, object], words: str) -> None:
    with pytest.raises(InvalidArgumentError, match=words):
        _native.DevServer(**options)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("fault", "words"),
    [
        ({}, "'action': none"),
        ({"action": "explode"}, "'action': 'explode', expected one of delay, "),
        ({"action": "damage", "damage": "x"}, "'damage': 'x', expected one of garbage_body"),
        ({"action": "drop", "kinds": ["gett"]}, "'kinds': 'gett', expected one of info"),
        ({"action": "drop", "digests": [b"x"]}, "'digests': 1 bytes, expected 20"),
        ({"action": "delay", "delay_ms": -1}, "'delay_ms'"),
        ({"action": "result_code", "code": 256}, "'code': 256"),
        ({"action": "drop", "colour": 1}, "fault 'colour': unknown"),
    ],
)
def test_bad_faults(server: _native.DevServer, fault: dict[str, object], words: str) -> None:
    with pytest.raises(InvalidArgumentError, match=words):
        server.add_fault(**fault)  # type: ignore[arg-type]
    assert server.fault_counters() == []


def test_faults_count(server: _native.DevServer, store: Store) -> None:
    store.put("counted", b"x")
    digest = (store.inspect("counted") or {})["digest"]
    fault = server.add_fault(
        action="result_code", code=2, kinds=["get"], digests=[digest], skip=1, count=1
    )
    assert [store.get("counted") for _ in range(3)] == [b"x", None, b"x"]
    server.await_fault(fault, 1, timeout=5)
    assert server.fault_counters() == [{"id": fault, "matched": 3, "applied": 1}]
    with pytest.raises(AerospikeTimeoutError):
        server.await_fault(fault, 2, timeout=0.01)
    assert server.remove_fault(fault)
    assert not server.remove_fault(fault)
    with pytest.raises(NotFoundError):
        server.await_fault(fault)


def test_stats(server: _native.DevServer, store: Store) -> None:
    before = server.stats()["requests"]["put"]
    store.put("stats", bytes(1000))
    after = server.stats(0)
    assert after["requests"]["put"] == before + 1
    assert after["running"]
    assert after["member"]
    assert not after["frozen"]
    assert after["bytes_in"] > 1000
    with pytest.raises(InvalidArgumentError):
        server.stats(1)


def test_a_node_goes_and_comes_back() -> None:
    with (
        _native.DevServer(nodes=3, timing=FAST) as server,
        Store(server.hosts, tend_interval_ms=50) as store,
    ):
        keys = [f"node@{i}" for i in range(50)]
        assert store.put_many(keys, [b"x"] * 50) == [1] * 50
        server.stop_node(1)
        assert not server.stats(1)["running"]
        server.await_settled()
        assert store.exists_many(keys) == [True] * 50
        server.start_node(1)
        server.await_settled()
        server.pause_node(2)
        assert server.stats(2)["frozen"]
        server.resume_node(2)
        server.await_settled()
        assert store.exists_many(keys) == [True] * 50
        with pytest.raises(InvalidArgumentError):
            server.stop_node(3)
