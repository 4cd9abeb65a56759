# SPDX-License-Identifier: Apache-2.0
"""Connectors over the development server, with memory that counts its references.

Where a connector needs a client, it has the engine and a server in this process: what a fake would
answer, the server does.
"""

from __future__ import annotations

import asyncio
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from lmcache_aerospike import _native

with warnings.catch_warnings():
    # What LMCache's dependencies say while they are imported is not ours to mend.
    warnings.simplefilter("ignore")
    from unit_world import World

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Marks the tests of this directory; LMCache's own warnings are no failures of ours."""
    for item in items:
        if item.path.is_relative_to(HERE):
            item.add_marker(pytest.mark.lmcache)
            item.add_marker(pytest.mark.filterwarnings("ignore:`LoggingHandler`"))


@pytest.fixture(scope="session")
def unit_node() -> Iterator[_native.DevServer]:
    with _native.DevServer(
        namespaces=[{"name": "lmcache", "size_bytes": 1 << 30, "max_record_bytes": 128 << 10}]
    ) as server:
        yield server


@pytest.fixture
def server(unit_node: _native.DevServer) -> Iterator[_native.DevServer]:
    """A server whose records are small, so that small objects have segments of up to 64 KiB."""
    yield unit_node
    unit_node.clear_faults()


@pytest.fixture
def loop() -> Iterator[asyncio.AbstractEventLoop]:
    loop = asyncio.new_event_loop()
    yield loop
    loop.run_until_complete(loop.shutdown_default_executor())
    loop.close()


@pytest.fixture
def world(
    server: _native.DevServer, set_name: str, loop: asyncio.AbstractEventLoop
) -> Iterator[Callable[..., World]]:
    """Makes connectors; at the end none has memory that nobody released."""
    made: list[World] = []

    def make(*, options: dict[str, Any] | None = None, **how: Any) -> World:
        base = {"hosts": server.hosts, "set_name": set_name, "read_timeout_ms": 5000}
        made.append(World(loop, {**base, **(options or {})}, **how))
        return made[-1]

    yield make
    for one in made:
        one.close()
        assert not one.backend.out, "memory that was never released"


@pytest.fixture
def raw(server: _native.DevServer) -> Iterator[Any]:
    """The official client, to look at single records and to damage them."""
    aerospike = pytest.importorskip("aerospike")
    host, port = server.hosts.rsplit(":", 1)
    client = aerospike.client({"hosts": [(host, int(port))]}).connect()
    yield client
    client.close()
