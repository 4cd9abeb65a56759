# SPDX-License-Identifier: Apache-2.0
"""A development server in a process of its own, for commands that measure their client."""

from __future__ import annotations

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from lmcache_aerospike import _native
from lmcache_aerospike.errors import AerospikeConnectionError

_PROGRAM = "from lmcache_aerospike.commands.local_server import main; main()"
_STOP_SECONDS = 10


@contextlib.contextmanager
def local_server(**options: Any) -> Iterator[str]:  # noqa: ANN401 - those of DevServer
    """Runs one, and gives the hosts that clients take.

    It ends with the block, and also if this process is killed: it reads a pipe that closes then.

    Args:
        **options: Those of the class DevServer.

    Raises:
        AerospikeConnectionError: It did not start.
    """
    path = os.pathsep.join(
        filter(None, [str(Path(__file__).parents[2]), os.environ.get("PYTHONPATH", "")])
    )
    process = subprocess.Popen(  # noqa: S603 - this interpreter, with a program of ours
        [sys.executable, "-c", _PROGRAM, json.dumps(options)],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        env={**os.environ, "PYTHONPATH": path},
        start_new_session=True,  # Ctrl-C is for this process, which then ends the server
        text=True,
    )
    if process.stdin is None or process.stdout is None:
        msg = "no pipes to the development server"
        raise AerospikeConnectionError(msg)
    try:
        hosts = process.stdout.readline().strip()
        if not hosts:
            msg = f"the development server did not start (exit code {process.wait()})"
            raise AerospikeConnectionError(msg)
        yield hosts
    finally:
        process.stdin.close()
        try:
            process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        process.stdout.close()


def main() -> None:
    """Serves until standard input ends."""
    with _native.DevServer(**json.loads(sys.argv[1])) as server:
        print(server.hosts, flush=True)
        sys.stdin.read()
