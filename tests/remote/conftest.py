# SPDX-License-Identifier: Apache-2.0
"""LMCache's in-process mode on the CPU: its real allocator and backend, our plug-in, any server."""

from __future__ import annotations

import asyncio
import threading
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from lmcache_aerospike import _native

with warnings.catch_warnings():
    # What LMCache's dependencies say while they are imported is not ours to mend.
    warnings.simplefilter("ignore")
    import lmcache.v1.storage_backend.remote_backend  # noqa: F401 - the tests import from it
    from remote_world import RemoteWorld, make_memory

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Marks the tests of this directory; LMCache's own warnings are no failures of ours."""
    for item in items:
        if item.path.is_relative_to(HERE):
            item.add_marker(pytest.mark.lmcache)
            item.add_marker(pytest.mark.filterwarnings("ignore:`LoggingHandler`"))


@pytest.fixture(scope="session")
def remote_node() -> Iterator[_native.DevServer]:
    with _native.DevServer(namespaces=[{"name": "lmcache", "size_bytes": 2 << 30}]) as server:
        yield server


@pytest.fixture
def server(remote_node: _native.DevServer) -> Iterator[_native.DevServer]:
    yield remote_node
    remote_node.clear_faults()


@pytest.fixture(scope="session")
def remote_loop() -> Iterator[asyncio.AbstractEventLoop]:
    """As LMCache has it: one loop on a thread of its own."""
    loop = asyncio.new_event_loop()
    thread = threading.Thread(target=loop.run_forever, daemon=True)
    thread.start()
    yield loop
    loop.call_soon_threadsafe(loop.stop)
    thread.join(20)
    loop.close()


@pytest.fixture(scope="session")
def memory() -> Any:
    """LMCache's allocator, one for all tests."""
    return make_memory(0.5)


@pytest.fixture
def world(
    server: _native.DevServer,
    set_name: str,
    remote_loop: asyncio.AbstractEventLoop,
    memory: Any,
) -> Iterator[Callable[..., RemoteWorld]]:
    """Makes connectors; at the end all memory is free again."""
    made: list[RemoteWorld] = []

    def make(**options: Any) -> RemoteWorld:
        options = {"hosts": server.hosts, "set_name": set_name, **options}
        made.append(RemoteWorld(remote_loop, memory, options))
        return made[-1]

    yield make
    for one in made:
        one.close()
        assert one.memory_in_use() == 0, "memory that was never released"
