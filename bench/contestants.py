# SPDX-License-Identifier: Apache-2.0
"""Who is compared: a server process each, and the adapter that LMCache reaches it through."""

from __future__ import annotations

import contextlib
import json
import resource
import shutil
import signal
import socket
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

OURS = "aerokv"
RESP = "resp"
FILES = "fs_native"
NAMES = (OURS, RESP, FILES)

TITLES = {
    OURS: "lmcache-aerospike, development server",
    RESP: "LMCache resp, redis-server",
    FILES: "LMCache fs_native, /dev/shm",
}

_START_SECONDS_MAX = 20.0
# Memory that the development server makes ready when it starts; more than one call here stores.
_RESERVE_BYTES = 512 << 20


def _resident_bytes(pid: int) -> int:
    pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return pages * resource.getpagesize()


class Contestant:
    """One store to compare: starts empty, is restarted empty, and is gone after close()."""

    name = ""

    def adapter(self) -> dict[str, Any]:
        """What follows ``--l2-adapter``."""
        raise NotImplementedError

    def restart(self) -> None:
        """Makes it empty, with no memory left from before."""
        raise NotImplementedError

    def flush(self) -> None:
        """Makes it empty; the server keeps running and may keep memory."""
        raise NotImplementedError

    def close(self) -> None:
        """Ends its process and removes its files."""
        raise NotImplementedError

    def adapter_json(self) -> str:
        """adapter() as text."""
        return json.dumps(self.adapter())


class _ServerContestant(Contestant):
    """A contestant whose data live in a server process."""

    def __init__(self) -> None:
        self._process: subprocess.Popen[bytes] | None = None
        self.restart()

    def restart(self) -> None:
        self.close()
        self._process = self._start()

    def _start(self) -> subprocess.Popen[bytes]:
        raise NotImplementedError

    def close(self) -> None:
        process, self._process = self._process, None
        if process is None:
            return
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(10)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
        if process.stdout is not None:
            process.stdout.close()


class Aerokv(_ServerContestant):
    """This project: engine and development server."""

    name = OURS

    def __init__(self, gibibytes: int = 6, **options: Any) -> None:
        self._gibibytes = gibibytes
        self._options = options
        self.hosts = ""
        super().__init__()

    def _start(self) -> subprocess.Popen[bytes]:
        program = "from lmcache_aerospike.cli import main; main()"
        process = subprocess.Popen(
            [sys.executable, "-c", program, "serve", "--port", "0"]
            + ["--namespace", f"lmcache,size={self._gibibytes}G"]
            + ["--reserve", str(_RESERVE_BYTES)],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
        )
        assert process.stdout is not None
        line = process.stdout.readline().decode().strip()
        if not line.startswith("ready "):
            process.kill()
            message = f"the development server did not start: {line!r}"
            raise RuntimeError(message)
        self.hosts = line.removeprefix("ready ")
        deadline = time.monotonic() + _START_SECONDS_MAX
        while _resident_bytes(process.pid) < _RESERVE_BYTES and time.monotonic() < deadline:
            time.sleep(0.02)
        return process

    def adapter(self) -> dict[str, Any]:
        return {
            "type": "native_plugin",
            "module_path": "lmcache_aerospike.native_connector",
            "class_name": "AerospikeNativeConnector",
            "adapter_params": {"hosts": self.hosts, **self._options},
        }

    def flush(self) -> None:
        command = b"truncate-namespace:namespace=lmcache\n"
        host, port = self.hosts.split(",")[0].rsplit(":", 1)
        with socket.create_connection((host, int(port)), timeout=10) as connection:
            connection.sendall(bytes([2, 1]) + len(command).to_bytes(6, "big") + command)
            answer = connection.recv(4096)
        if b"ok" not in answer.lower():
            message = f"truncate-namespace: {answer!r}"
            raise RuntimeError(message)


class Resp(_ServerContestant):
    """LMCache's Redis connector, with a redis-server that keeps nothing on disk."""

    name = RESP

    def __init__(self) -> None:
        self._port = 0
        super().__init__()

    def _start(self) -> subprocess.Popen[bytes]:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            self._port = probe.getsockname()[1]
        process = subprocess.Popen(
            ["redis-server", "--bind", "127.0.0.1", "--port", str(self._port)]
            + ["--save", "", "--appendonly", "no", "--loglevel", "warning"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
        )
        deadline = time.monotonic() + _START_SECONDS_MAX
        while True:
            with contextlib.suppress(OSError):
                if self._ask(b"PING\r\n").startswith(b"+PONG"):
                    return process
            if process.poll() is not None or time.monotonic() > deadline:
                process.kill()
                message = "redis-server did not start"
                raise RuntimeError(message)
            time.sleep(0.02)

    def _ask(self, command: bytes) -> bytes:
        with socket.create_connection(("127.0.0.1", self._port), timeout=60) as connection:
            connection.sendall(command)
            return connection.recv(256)

    def adapter(self) -> dict[str, Any]:
        return {"type": "resp", "host": "127.0.0.1", "port": self._port}

    def flush(self) -> None:
        answer = self._ask(b"FLUSHALL\r\n")
        if not answer.startswith(b"+OK"):
            message = f"FLUSHALL: {answer!r}"
            raise RuntimeError(message)


class FsNative(Contestant):
    """LMCache's file connector on memory: no server, no socket."""

    name = FILES

    def __init__(self) -> None:
        self._directory = Path(tempfile.mkdtemp(prefix="lmcache-bench-", dir="/dev/shm"))

    def adapter(self) -> dict[str, Any]:
        return {"type": "fs_native", "base_path": str(self._directory / "l2")}

    def restart(self) -> None:
        self.flush()

    def flush(self) -> None:
        # The adapter keeps its directory open by name, so only what is in it goes.
        base = self._directory / "l2"
        for path in base.glob("*") if base.exists() else ():
            shutil.rmtree(path) if path.is_dir() else path.unlink()

    def close(self) -> None:
        shutil.rmtree(self._directory, ignore_errors=True)


def start_all() -> list[Contestant]:
    """All contestants, running and empty."""
    started: list[Contestant] = []
    try:
        for kind in (Aerokv, Resp, FsNative):
            started.append(kind())
    except BaseException:
        for contestant in started:
            contestant.close()
        raise
    return started
