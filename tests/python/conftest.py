# SPDX-License-Identifier: Apache-2.0
"""Servers and clients in this process, and how a batch is waited for."""

from __future__ import annotations

import select
import time
from collections.abc import Callable, Iterator

import pytest

from lmcache_aerospike import AerospikeNativeConnector, Store, _native

Completion = tuple[int, bool, str, list[bool] | None]
WAIT_SECONDS = 20


class Completions:
    """Drains a connector and keeps what was not asked for yet."""

    def __init__(self, connector: AerospikeNativeConnector) -> None:
        self.connector = connector
        self.waiting: dict[int, Completion] = {}

    def drain(self) -> None:
        for completion in self.connector.drain_completions():
            assert completion[0] not in self.waiting, "a batch completed twice"
            self.waiting[completion[0]] = completion

    def wait(self, batch: int) -> Completion:
        deadline = time.monotonic() + WAIT_SECONDS
        while batch not in self.waiting:
            seconds = deadline - time.monotonic()
            assert seconds > 0, f"batch {batch} did not complete"
            select.select([self.connector.event_fd()], [], [], seconds)
            self.drain()
        return self.waiting.pop(batch)


@pytest.fixture(scope="module")
def server() -> Iterator[_native.DevServer]:
    with _native.DevServer() as server:
        yield server


@pytest.fixture(autouse=True)
def _no_faults(request: pytest.FixtureRequest) -> Iterator[None]:
    yield
    if "server" in request.fixturenames:
        request.getfixturevalue("server").clear_faults()


@pytest.fixture
def connect(server: _native.DevServer) -> Iterator[Callable[..., AerospikeNativeConnector]]:
    """Makes connectors to `server`, which are closed at the end."""
    made: list[AerospikeNativeConnector] = []

    def connect(**options: object) -> AerospikeNativeConnector:
        made.append(AerospikeNativeConnector(server.hosts, **options))
        return made[-1]

    yield connect
    for connector in made:
        connector.close()


@pytest.fixture
def connector(connect: Callable[..., AerospikeNativeConnector]) -> AerospikeNativeConnector:
    return connect()


@pytest.fixture
def completions(connector: AerospikeNativeConnector) -> Completions:
    return Completions(connector)


@pytest.fixture
def store(server: _native.DevServer) -> Iterator[Store]:
    with Store(server.hosts) as store:
        yield store
