# SPDX-License-Identifier: Apache-2.0
"""``lmcache bench l2`` over connectors with a serde of their own, verification switched on.

The bench makes the adapter alone, without what LMCache puts around it: a `serde` beside the
adapter's keys does nothing there.
"""

from __future__ import annotations

import json
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest
from test_bench_l2 import Run, arguments, report

from lmcache_aerospike import Store, _native

RUN = Run(size_kb=1200, in_flight=2, keys=6)  # of two segments, where nothing makes them shorter
COUNT = RUN.in_flight * RUN.keys
RAW_BYTES = RUN.size_kb * 1024
EXACT = ["lossless", "checksum", "aesgcm", "chain"]


@pytest.fixture(scope="module")
def serdes(tmp_path_factory: pytest.TempPathFactory) -> dict[str, dict[str, Any]]:
    """The values of `serde` in `adapter_params`."""
    path = tmp_path_factory.mktemp("key") / "master.key"
    path.touch(mode=0o600)
    path.write_bytes(os.urandom(32))
    sealed = {"type": "aesgcm", "master_key_path": str(path)}
    serdes: dict[str, dict[str, Any]] = {
        "lossless": {"type": "lossless"},
        "checksum": {"type": "checksum"},
        "aesgcm": sealed,
        "chain": {"type": "chain", "stages": [{"type": "lossless"}, sealed]},
        "fp8": {"type": "fp8"},
    }
    return {name: {**serde, "dtype": "bfloat16"} for name, serde in serdes.items()}


@pytest.fixture(scope="module")
def outcomes(
    serdes: dict[str, dict[str, Any]],
) -> dict[str, tuple[int, str, list[int]]]:
    """Exit code, output and the sizes of what was stored; one process makes all runs."""
    with _native.DevServer(namespaces=[{"name": "lmcache", "size_bytes": 1 << 30}]) as server:
        batches = [
            arguments(
                RUN,
                server.hosts,
                serde=serde,
                set_name=name,
                read_timeout_ms=30_000,
                write_timeout_ms=30_000,
            )
            for name, serde in serdes.items()
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
        outcomes = {}
        for name, (code, output) in zip(serdes, results, strict=True):
            with Store(server.hosts, set_name=name) as store:
                sizes = [item["bytes"] for item in store.list(count=1000)[0]]
            outcomes[name] = (code, output, sizes)
    return outcomes


@pytest.mark.parametrize("name", EXACT)
def test_the_bench_verifies_every_object(outcomes, name):
    code, output, sizes = outcomes[name]
    assert code == 0, output
    assert f"[Verify] All {COUNT} keys data verified OK." in output
    operations = report(output)
    for operation in ("Store", "Load"):
        assert operations[operation]["total_success"] == COUNT
    assert len(sizes) >= COUNT
    if name in ("lossless", "chain"):
        assert max(sizes) < RAW_BYTES / 10  # the bench fills each object with one value
    else:
        assert set(sizes) == {RAW_BYTES + {"checksum": 17, "aesgcm": 29}[name]}


def test_numbers_that_are_rounded_are_noticed(outcomes):
    """The bench compares bytes: with fp8 give it --skip-verify."""
    code, output, sizes = outcomes["fp8"]
    assert code == 1
    assert "have data mismatches" in output
    assert set(sizes) == {RAW_BYTES // 2}
    operations = report(output)
    assert operations["Store"]["total_success"] == operations["Load"]["total_success"] == COUNT
