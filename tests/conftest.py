# SPDX-License-Identifier: Apache-2.0
"""What the Python tests share: which package is tested, and development servers to test against."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
from collections.abc import Callable, Iterator

import pytest
from server_process import DevServer, read_ready_line


def pytest_report_header() -> str:
    """Names the package under test: an installed one, unless PYTHONPATH says otherwise."""
    spec = importlib.util.find_spec("lmcache_aerospike")
    return f"lmcache_aerospike: {spec.origin if spec else 'not installed'}"


@pytest.fixture(scope="session")
def server_factory() -> Iterator[Callable[..., DevServer]]:
    """Starts development servers on free ports; all are stopped when the session ends.

    The arguments are those of ``lmcache-aerospike serve``; ``--port 0`` is added.
    """
    started: list[DevServer] = []

    def start(*arguments: str) -> DevServer:
        program = "from lmcache_aerospike.cli import main; main()"
        process = subprocess.Popen(
            [sys.executable, "-c", program, "serve", "--port", "0", *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
        )
        server = DevServer("", process)
        started.append(server)
        server.hosts = read_ready_line(process)
        return server

    yield start
    for server in started:
        server.stop()


@pytest.fixture(scope="session")
def dev_server(server_factory: Callable[..., DevServer]) -> DevServer:
    """One development server of one node for all tests; use keys of your own."""
    return server_factory()
