# SPDX-License-Identifier: Apache-2.0
"""What the Python tests share: which package is tested, and development servers to test against."""

from __future__ import annotations

import importlib.util
import re
import subprocess
import sys
import warnings
import zlib
from collections.abc import Callable, Iterator

import given_server
import pytest
from server_process import DevServer, read_ready_line

if given_server.HOSTS:
    given_server.install()


def pytest_report_header() -> list[str]:
    """Names the package under test: an installed one, unless PYTHONPATH says otherwise."""
    spec = importlib.util.find_spec("lmcache_aerospike")
    lines = [f"lmcache_aerospike: {spec.origin if spec else 'not installed'}"]
    if given_server.HOSTS:
        lines.append(f"server: {given_server.HOSTS}, namespace {given_server.NAMESPACE}")
    return lines


@pytest.fixture(scope="session", autouse=True)
def _leave_nothing_behind() -> Iterator[None]:
    """On a server that is not ours."""
    if not given_server.HOSTS:
        yield
        return
    sets = given_server.Sets()
    yield
    left = sets.clean()
    if left:
        warnings.warn(f"sets that still have records: {', '.join(left)}", stacklevel=1)


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Says what a server that is not ours could not be used for."""
    if not given_server.HOSTS:
        return
    passed = len(terminalreporter.stats.get("passed", []))
    reasons = given_server.skipped(terminalreporter.stats.get("skipped", []))
    terminalreporter.section(f"against {given_server.HOSTS}")
    terminalreporter.write_line(f"{passed} passed; {reasons.total()} need a development server:")
    for reason, count in reasons.most_common():
        terminalreporter.write_line(f"{count:5}  {reason}")


@pytest.fixture
def set_name(request: pytest.FixtureRequest) -> str:
    """A set for this test alone."""
    name = re.sub(r"[^\w-]", "_", request.node.name)
    return f"{name[:40]}_{zlib.crc32(request.node.nodeid.encode()):08x}"


@pytest.fixture(scope="session")
def server_factory() -> Iterator[Callable[..., DevServer]]:
    """Starts development servers on free ports; all are stopped when the session ends.

    The arguments are those of ``lmcache-aerospike serve``; ``--port 0`` is added.
    """
    started: list[DevServer] = []

    def start(*arguments: str) -> DevServer:
        if given_server.HOSTS:
            given_server.skip("one in a process of its own")
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
