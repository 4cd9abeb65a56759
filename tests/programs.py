# SPDX-License-Identifier: Apache-2.0
"""Programs of the tests that need a process of their own."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path


def run_program(path: Path, timeout: float, **environment: str) -> subprocess.CompletedProcess[str]:
    """Runs a program with the modules that this process has, and expects that it succeeds."""
    paths = [str(path.parent), *filter(None, sys.path)]
    done = subprocess.run(
        [sys.executable, "-W", "ignore", str(path)],
        env={**os.environ, "PYTHONPATH": os.pathsep.join(paths), **environment},
        capture_output=True,
        text=True,
        timeout=timeout,
        check=False,
    )
    assert done.returncode == 0, done.stdout[-4000:] + done.stderr[-4000:]
    return done
