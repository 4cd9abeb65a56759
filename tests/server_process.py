# SPDX-License-Identifier: Apache-2.0
"""A development server in a process of its own."""

from __future__ import annotations

import os
import select
import subprocess
import time
from dataclasses import dataclass

import pytest

START_SECONDS_MAX = 20


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
