# SPDX-License-Identifier: Apache-2.0
"""What the Python tests share: which package is tested, and development servers to test against."""

from __future__ import annotations

import importlib.util
import os
import select
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass

import pytest

START_SECONDS_MAX = 20


def pytest_report_header() -> str:
    """Names the package under test: an installed one, unless PYTHONPATH says otherwise."""
    spec = importlib.util.find_spec("lmcache_aerospike")
    return f"lmcache_aerospike: {spec.origin if spec else 'not installed'}"


@dataclass
class DevServer:
    """A running development server; `hosts` is what clients take, "host:port[,host:port...]"."""

    hosts: str
    process: subprocess.Popen[bytes]

    @property
    def addresses(self) -> list[tuple[str, int]]:
        """The nodes' addresses."""
        pairs = (entry.rsplit(":", 1) for entry in self.hosts.split(","))
        return [(host, int(port)) for host, port in pairs]

    def stop(self) -> None:
        """Ends the process; does nothing if it has ended."""
        if self.process.poll() is None:
            self.process.terminate()
            try:
                self.process.wait(10)
            except subprocess.TimeoutExpired:
                self.process.kill()
                self.process.wait()
        if self.process.stdout is not None:
            self.process.stdout.close()


def read_ready_line(process: subprocess.Popen[bytes]) -> str:
    """Waits for "ready HOSTS" on the server's stdout and returns HOSTS."""
    assert process.stdout is not None
    deadline = time.monotonic() + START_SECONDS_MAX
    line = b""
    while not line.endswith(b"\n"):
        remaining = deadline - time.monotonic()
        readable, _, _ = select.select([process.stdout], [], [], max(remaining, 0))
        if not readable:
            pytest.fail(f"the server said nothing for {START_SECONDS_MAX} s; so far {line!r}")
        byte = os.read(process.stdout.fileno(), 1)
        if not byte:
            pytest.fail(f"the server ended with {process.wait()} before it was ready")
        line += byte
    word, _, hosts = line.decode().strip().partition(" ")
    assert word == "ready", line
    return hosts


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
