# SPDX-License-Identifier: Apache-2.0
"""How a command is run: as users run it, in a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

_PROGRAM = (sys.executable, "-c", "from lmcache_aerospike.cli import main; main()")


class Server(Protocol):
    """What the fixture `dev_server` gives."""

    hosts: str


@dataclass
class Result:
    """The end of a command."""

    code: int
    out: bytes
    errors: str

    @property
    def json(self) -> Any:
        return json.loads(self.out)

    @property
    def text(self) -> str:
        return self.out.decode()


@dataclass
class Command:
    """``lmcache-aerospike`` in a folder, with the environment of a user."""

    folder: Path
    hosts: str

    def __call__(
        self, *arguments: str, stdin: bytes = b"", hosts: str | None = None, **environment: str
    ) -> Result:
        done = subprocess.run(
            [*_PROGRAM, *arguments],
            input=stdin,
            capture_output=True,
            cwd=self.folder,
            env=self._environment(hosts, environment),
            timeout=120,
            check=False,
        )
        result = Result(done.returncode, done.stdout, done.stderr.decode())
        assert "Traceback" not in result.errors, result.errors
        return result

    def watch(self, *arguments: str, words: str, then: Callable[[], object]) -> Result:
        """Runs it, and does `then` when it has said `words` on stderr."""
        with subprocess.Popen(
            [*_PROGRAM, *arguments],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            cwd=self.folder,
            env=self._environment(None, {}),
        ) as process:
            assert process.stderr is not None
            seen = ""
            for line in process.stderr:
                seen += line.decode()
                if words in seen:
                    break
            then()
            out, rest = process.communicate(timeout=120)
        assert words in seen, seen
        return Result(process.returncode, out, seen + rest.decode())

    def _environment(self, hosts: str | None, more: dict[str, str]) -> dict[str, str]:
        clean = {k: v for k, v in os.environ.items() if not k.startswith("LMCACHE_AEROSPIKE_")}
        chosen = self.hosts if hosts is None else hosts
        if chosen:
            clean["LMCACHE_AEROSPIKE_HOSTS"] = chosen
        return {**clean, **more}
