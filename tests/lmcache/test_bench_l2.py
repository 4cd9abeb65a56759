# SPDX-License-Identifier: Apache-2.0
"""``lmcache bench l2`` over our adapter, with its verification switched on."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from lmcache_driver import SPECS

from lmcache_aerospike import _native


class Run(NamedTuple):
    size_kb: int
    in_flight: int
    keys: int  # of one task: two at least, for the bench fills the first object with zeros
    kind: str = "native_plugin"


# 960 KB are 983,040 bytes: the most that one record holds beside what the server adds.
RUNS = [
    Run(size_kb, in_flight, keys)
    for size_kb, keys in (
        (1, 32),
        (256, 16),
        (960, 8),
        (961, 8),
        (4096, 4),
        (16_384, 2),
        (81_920, 2),
    )
    for in_flight in (1, 8)
] + [Run(256, 8, 16, "plugin"), Run(4096, 8, 4, "plugin")]
HIT_RATE = 0.5


def arguments(run: Run, hosts: str, **params: object) -> list[str]:
    params.setdefault("set_name", f"bench_{run.size_kb}_{run.in_flight}_{run.kind}")
    spec = SPECS[run.kind](hosts, **params)
    return [
        *("bench", "l2", "--l2-adapter", json.dumps(spec), "--no-skip-verify"),
        *("--data-size-kb", str(run.size_kb), "--in-flight", str(run.in_flight)),
        *("--num-keys", str(run.keys), "--rounds", "1", "--warmup-rounds", "0"),
        *("--lookup-max-hit-rate", str(HIT_RATE), "--format", "json"),
    ]


def report(output: str) -> dict[str, Any]:
    """The metrics, by operation."""
    begin, end = output.index("{\n"), output.rindex("}") + 1
    metrics = json.loads(output[begin:end])["metrics"]
    return {entry["operation"]: entry for entry in metrics.values() if "operation" in entry}


@pytest.fixture(scope="module")
def outcomes() -> dict[Run, tuple[int, str]]:
    """Exit code and output of every run; one process makes them all."""
    with _native.DevServer(namespaces=[{"name": "lmcache", "size_bytes": 6 << 30}]) as server:
        # A busy machine is no failure: the figures are not what is looked at here.
        batches = [
            arguments(run, server.hosts, read_timeout_ms=30_000, write_timeout_ms=30_000)
            for run in RUNS
        ]
        process = subprocess.run(
            [sys.executable, str(Path(__file__).with_name("bench_many.py"))],
            input=json.dumps(batches),
            capture_output=True,
            text=True,
            timeout=280,
            check=False,
        )
    assert process.returncode == 0, process.stderr[-4000:]
    results = json.loads(process.stdout[process.stdout.index("[[") :])
    return {run: (code, output) for run, (code, output) in zip(RUNS, results, strict=True)}


@pytest.mark.parametrize("run", RUNS, ids=lambda run: f"{run.size_kb}KB-{run.in_flight}-{run.kind}")
def test_the_bench_verifies_every_object(outcomes, run):
    code, output = outcomes[run]
    assert code == 0, output
    count = run.keys * run.in_flight
    assert f"[Verify] All {count} keys data verified OK." in output
    assert "MISMATCH" not in output
    operations = report(output)
    # The verification alone would not notice a failed load: the first object of each task is zero.
    for name in ("Store", "Load"):
        assert operations[name]["rounds_timed_out"] == 0
        assert operations[name]["total_success"] == operations[name]["total_keys"] == count
    assert operations["Lookup"]["total_success"] == int(count * HIT_RATE)


def test_a_wrong_byte_would_be_noticed():
    """The same command fails if the server spoils what it sends."""
    run = Run(256, 1, 4)
    with _native.DevServer() as server:
        fault = server.add_fault(action="damage", damage="flip_value_bit", kinds=["get"])
        process = subprocess.run(
            [sys.executable, "-m", "lmcache.cli.main", *arguments(run, server.hosts)],
            capture_output=True,
            text=True,
            timeout=120,
            check=False,
        )
        server.await_fault(fault)
    assert process.returncode == 1, process.stdout
    assert "4/4 keys have data mismatches" in process.stdout
