# SPDX-License-Identifier: Apache-2.0
"""The comparison of the remote connector with the native one, small."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]


@pytest.mark.bench
@pytest.mark.lmcache
def test_remote_bench(tmp_path: Path) -> None:
    path = tmp_path / "remote.json"
    done = subprocess.run(
        [sys.executable, str(ROOT / "bench" / "remote_bench.py"), "--quick", "--json", str(path)],
        check=True,
        capture_output=True,
        text=True,
        timeout=120,
    )
    report = json.loads(path.read_text())
    # How fast is what `remote_bench.py --check` judges, on a quiet machine.
    assert report["loads"]["ratio"] > 0, done.stdout
    assert report["lookup"]["round_trips"] < 3, done.stdout
    assert "round trips" in done.stdout
