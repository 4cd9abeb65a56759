# SPDX-License-Identifier: Apache-2.0
"""One cluster, and in it both worlds: our engine and the official Aerospike client."""

from __future__ import annotations

import re
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
from conformance_cluster import Cluster, open_cluster

from lmcache_aerospike import Store

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Marks the tests of this directory."""
    for item in items:
        if item.path.is_relative_to(HERE):
            item.add_marker(pytest.mark.conformance)


@pytest.fixture(scope="session", params=[1, 3], ids=["one node", "three nodes"])
def cluster(request: pytest.FixtureRequest) -> Iterator[Cluster]:
    """One node, and three that keep two copies of each record."""
    yield from open_cluster(
        nodes=request.param,
        replication=2,
        namespaces=[{"name": "lmcache", "size_bytes": 2 << 30}],
    )


@pytest.fixture
def client(cluster: Cluster) -> Any:
    """The official client."""
    return cluster.client


@pytest.fixture
def set_name(request: pytest.FixtureRequest) -> str:
    """A set for this test alone."""
    name = re.sub(r"[^\w-]", "_", request.node.name)
    return f"{name[:40]}_{zlib.crc32(request.node.nodeid.encode()):08x}"


@pytest.fixture
def open_store(cluster: Cluster, set_name: str) -> Iterator[Callable[..., Store]]:
    """Opens our engine on the cluster; all are closed at the end of the test."""
    stores: list[Store] = []

    def open_one(**options: Any) -> Store:
        stores.append(Store(cluster.server.hosts, set_name=set_name, **options))
        return stores[-1]

    yield open_one
    for store in stores:
        store.close()


@pytest.fixture
def store(open_store: Callable[..., Store]) -> Store:
    """Our engine with default options."""
    return open_store()
