# SPDX-License-Identifier: Apache-2.0
"""Racks, alternate addresses and changes of the cluster, with the official client as the judge."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest

from lmcache_aerospike import _native

aerospike = pytest.importorskip("aerospike", reason="the official client is not installed")
from aerospike import exception  # noqa: E402

KEYS = [("lmcache", "official", f"k{i}") for i in range(60)]
FAST = {"detection_ms": 300, "join_ms": 200, "map_change_ms": 10, "migration_us": 20}

Client = Any


def reads(server: _native.DevServer, nodes: int) -> list[int]:
    return [server.stats(node)["requests"]["get"] for node in range(nodes)]


def reads_by_node(server: _native.DevServer, client: Client, nodes: int) -> list[int]:
    """How many of the keys each node was asked for."""
    before = reads(server, nodes)
    for key in KEYS:
        assert client.get(key)[2] == {"b": key[2]}
    return [now - then for now, then in zip(reads(server, nodes), before, strict=True)]


@pytest.fixture
def racks() -> Iterator[_native.DevServer]:
    """Four nodes in two racks, two copies."""
    with _native.DevServer(nodes=4, racks=[1, 1, 2, 2], timing=FAST) as server:
        yield server


def rack_client(server: _native.DevServer, rack: int) -> Client:
    config = {
        "hosts": server.endpoints(),
        "rack_aware": True,
        "rack_id": rack,
        "policies": {"read": {"replica": aerospike.POLICY_REPLICA_PREFER_RACK}},
    }
    return aerospike.client(config).connect()


def test_reads_stay_in_the_rack_and_leave_it_when_it_dies(racks: _native.DevServer) -> None:
    near, far = rack_client(racks, 1), rack_client(racks, 2)
    try:
        for key in KEYS:
            near.put(key, {"b": key[2]})
        by_node = reads_by_node(racks, near, 4)
        assert by_node[2:] == [0, 0], by_node
        assert min(by_node[:2]) > 0, by_node
        by_node = reads_by_node(racks, far, 4)
        assert by_node[:2] == [0, 0], by_node
        racks.stop_node(0)
        racks.stop_node(1)
        racks.await_settled(20)
        assert sum(reads_by_node(racks, near, 4)[2:]) == len(KEYS)
    finally:
        near.close()
        far.close()


def test_a_node_that_changes_its_rack_is_followed(racks: _native.DevServer) -> None:
    client = rack_client(racks, 1)
    try:
        for key in KEYS:
            client.put(key, {"b": key[2]})
        racks.set_rack(1, 2)
        racks.set_rack(2, 1)
        racks.await_settled(20)
        deadline = time.monotonic() + 20
        while sum(reads_by_node(racks, client, 4)[i] for i in (1, 3)) > 0:
            assert time.monotonic() < deadline
    finally:
        client.close()


def test_alternate_addresses() -> None:
    with _native.DevServer(
        nodes=3, advertised_host="127.1.2.3", alternate_host="127.0.0.2", timing=FAST
    ) as server:
        entries = (entry.rsplit(":", 1) for entry in server.alternate_hosts.split(","))
        alternate = [(host, int(port)) for host, port in entries]
        config = {"hosts": alternate[:1], "use_services_alternate": True}
        client = aerospike.client(config).connect()
        assert sorted(address for address, *_ in client.get_nodes()) == ["127.0.0.2"] * 3
        for key in KEYS:
            client.put(key, {"b": key[2]})
            assert client.get(key)[2] == {"b": key[2]}
        client.close()
        # What is advertised otherwise leads nowhere.
        with pytest.raises(exception.AerospikeError):
            aerospike.client({"hosts": server.endpoints()[:1]}).connect()


def test_nodes_are_added_and_removed_under_the_client() -> None:
    with _native.DevServer(nodes=2, spare_nodes=1, timing=FAST) as server:
        assert len(server.hosts.split(",")) == 2
        client = aerospike.client({"hosts": server.endpoints()[:2]}).connect()

        def await_nodes(count: int) -> None:
            deadline = time.monotonic() + 20
            while len(client.get_nodes()) != count:
                assert time.monotonic() < deadline
                time.sleep(0.05)  # for its next tend

        try:
            for key in KEYS:
                client.put(key, {"b": key[2]})
            server.start_node(2)
            server.await_settled(20)
            await_nodes(3)
            assert min(reads_by_node(server, client, 3)) > 0
            server.remove_node(2)
            server.await_settled(20)
            await_nodes(2)
            assert reads_by_node(server, client, 3)[2] == 0
        finally:
            client.close()
