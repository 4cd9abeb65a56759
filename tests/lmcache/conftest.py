# SPDX-License-Identifier: Apache-2.0
"""Development servers inside the test process, and adapters over them."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from lmcache_aerospike import _native

with warnings.catch_warnings():
    # What LMCache's dependencies say while they are imported is not ours to mend.
    warnings.simplefilter("ignore")
    import lmcache.v1.distributed.storage_manager  # noqa: F401 - the tests import from it
    from lmcache.v1.distributed.l2_adapters.config import get_l2_adapter_config_class
    from lmcache_driver import SPECS, AdapterDriver

    get_l2_adapter_config_class("native_plugin")  # imports every adapter on its way

HERE = Path(__file__).parent


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Marks the tests of this directory; LMCache's own warnings are no failures of ours."""
    for item in items:
        if item.path.is_relative_to(HERE):
            item.add_marker(pytest.mark.lmcache)
            item.add_marker(pytest.mark.filterwarnings("ignore:`LoggingHandler`"))


def pytest_generate_tests(metafunc: pytest.Metafunc) -> None:
    """Tests of a module with BOTH_ADAPTERS run over each, but those that it names otherwise."""
    if "adapter_kind" in metafunc.fixturenames and getattr(metafunc.module, "BOTH_ADAPTERS", False):
        native_only = getattr(metafunc.module, "NATIVE_ONLY", ())
        if metafunc.function.__name__ not in native_only:
            metafunc.parametrize("adapter_kind", list(SPECS))


@pytest.fixture
def adapter_kind() -> str:
    """LMCache's type of the adapter under test."""
    return "native_plugin"


@pytest.fixture(scope="session")
def node() -> Iterator[_native.DevServer]:
    """A server of one node for all tests; each test has a set of its own in it."""
    with _native.DevServer(namespaces=[{"name": "lmcache", "size_bytes": 4 << 30}]) as server:
        yield server


@pytest.fixture
def server(node: _native.DevServer) -> Iterator[_native.DevServer]:
    """The shared server; the faults that a test adds end with the test."""
    yield node
    node.clear_faults()


@pytest.fixture
def make_adapter(
    server: _native.DevServer, set_name: str, adapter_kind: str
) -> Iterator[Callable[..., AdapterDriver]]:
    """Makes adapters with the given `adapter_params`, closed at the end of the test."""
    drivers: list[AdapterDriver] = []

    def make(**params: Any) -> AdapterDriver:
        hosts = params.pop("hosts", server.hosts)
        name = params.pop("set_name", set_name)
        drivers.append(AdapterDriver(SPECS[adapter_kind](hosts, name, **params)))
        return drivers[-1]

    yield make
    for driver in drivers:
        driver.close()


@pytest.fixture
def driver(make_adapter: Callable[..., AdapterDriver]) -> AdapterDriver:
    """An adapter with default options."""
    return make_adapter()
