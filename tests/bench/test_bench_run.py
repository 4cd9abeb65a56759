# SPDX-License-Identifier: Apache-2.0
"""``bench/run.py`` itself, with few and small objects, in a process of its own."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytest.importorskip("lmcache")

BENCH = Path(__file__).resolve().parents[2] / "bench"

PROGRAM = f"""
import sys
sys.path.insert(0, {str(BENCH)!r})
import contestants
contestants._RESERVE_BYTES = 32 << 20
import lmcache_bench
lmcache_bench.SIZES = ((64, 4), (1024, 2))
lmcache_bench.LOOKUP_KEYS = 50
lmcache_bench.QUICK = lmcache_bench.Plan(1, 1, 2, 2)
import run
sys.exit(run.main())
"""


@pytest.mark.bench
@pytest.mark.lmcache
def test_all_contestants_are_compared(tmp_path: Path) -> None:
    arguments = ["--quick", "--parts", "command,adapters", "--output", str(tmp_path)]
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, *arguments],
        check=False,
        capture_output=True,
        text=True,
        timeout=240,
    )
    assert done.returncode == 0, done.stderr
    report = json.loads((tmp_path / "results.json").read_text())
    for part in ("command", "adapters"):
        for metric in ("store_fresh", "store_again", "load"):
            assert set(report[part][metric]) == {"64", "1024"}
            for row in report[part][metric].values():
                for name in ("aerokv", "resp", "fs_native"):
                    assert row[name]["median"] > 0
                assert row["ratio_to_resp"] > 0
        assert report[part]["lookup"]["1"]["aerokv"]["median"] > 0
    assert (tmp_path / "throughput.png").stat().st_size > 10_000
    text = (tmp_path / "results.md").read_text()
    assert "`lmcache bench l2`" in text
    assert "client CPU s/GiB" in text
    assert report["machine"]["lmcache"] == "0.5.6"


@pytest.mark.bench
def test_server_is_emptied_and_ends() -> None:
    program = f"""
import os, sys
sys.path.insert(0, {str(BENCH)!r})
import contestants
contestants._RESERVE_BYTES = 0
from lmcache_aerospike import Store
server = contestants.Aerokv(gibibytes=1)
pid = server._process.pid
with Store(server.hosts) as store:
    store.put("key", b"value")
    assert store.get("key") == b"value"
    server.flush()
    assert store.get("key") is None
first = server.hosts
server.restart()
assert server._process.pid != pid
with Store(server.hosts) as store:
    assert store.get("key") is None
server.close()
server.close()
"""
    done = subprocess.run(
        [sys.executable, "-c", program],
        check=False,
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stderr
