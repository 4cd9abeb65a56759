# SPDX-License-Identifier: Apache-2.0
"""Servers and clients in this process."""

from __future__ import annotations

from collections.abc import Callable, Iterator

import pytest
from completions import Completions

from lmcache_aerospike import AerospikeNativeConnector, Store, _native


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
