# SPDX-License-Identifier: Apache-2.0
"""How a command is run: as users run it, in a process of its own."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol


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
        clean = {k: v for k, v in os.environ.items() if not k.startswith("LMCACHE_AEROSPIKE_")}
        chosen = self.hosts if hosts is None else hosts
        if chosen:
            clean["LMCACHE_AEROSPIKE_HOSTS"] = chosen
        done = subprocess.run(
            [sys.executable, "-c", "from lmcache_aerospike.cli import main; main()", *arguments],
            input=stdin,
            capture_output=True,
            cwd=self.folder,
            env={**clean, **environment},
            timeout=120,
            check=False,
        )
        result = Result(done.returncode, done.stdout, done.stderr.decode())
        assert "Traceback" not in result.errors, result.errors
        return result
