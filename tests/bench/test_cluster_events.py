# SPDX-License-Identifier: Apache-2.0
"""``bench/cluster_events.py``: one short event, and what becomes of operations in the table."""

from __future__ import annotations

import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

pytest.importorskip("aerospike", reason="the official client is not installed")
cluster_table = pytest.importorskip("cluster_table")
cluster_map = pytest.importorskip("cluster_map")
results = pytest.importorskip("results")

BENCH = Path(__file__).resolve().parents[2] / "bench"
MARKS = "# Page\n<!-- cluster events -->\nold\n<!-- end of cluster events -->\nrest\n"


@pytest.mark.bench
def test_an_event_is_played_for_both_clients(tmp_path: Path) -> None:
    page = tmp_path / "page.md"
    page.write_text(MARKS)
    program = [sys.executable, str(BENCH / "cluster_events.py")]
    arguments = ["--only", "one copy: a node freezes", "--output", str(tmp_path)]
    done = subprocess.run(
        [*program, *arguments, "--docs", str(page)],
        check=False,
        capture_output=True,
        text=True,
        timeout=120,
    )
    assert done.returncode == 0, done.stderr
    report = json.loads((tmp_path / "cluster_events.json").read_text())
    (row,) = report["events"]
    # Nobody can load from a node that is frozen and has the only copy.
    assert 0.5 < row["map_wrong_s"] < 4
    for kind in ("ours", "official"):
        client = row[kind]
        assert client["loads"]["count"] > 50
        assert client["stores"]["count"] > 20
        assert client["loads"]["worst_ms"] > 100
        assert client["wrong"] == client["loads"]["wrong"] == 0
        assert client["clean_after_s"] > 0.3
    assert "old" not in page.read_text().partition("wrong bytes |")[0].partition("<!--")[0]
    assert (tmp_path / "cluster_events.md").read_text() in page.read_text()
    assert page.read_text().endswith("rest\n")


def row(operations: list[tuple[float, float, str, str]], loses: bool = False) -> dict[str, Any]:
    both = {"ours": operations, "official": []}
    made: dict[str, Any] = cluster_table.row("event", both, 100.0, 110.0, 1.9, loses)
    return made


def test_failures_are_counted_and_the_last_one_tells_when_it_was_clean() -> None:
    operations = [
        (99.0, 0.5, "load", "error Timeout: before"),
        (99.9, 0.3, "load", "ok"),  # under way at the event, and late
        (101.0, 0.1, "load", "error Timeout: x"),
        (102.0, 0.5, "store", "error Busy: y"),
        (103.0, 0.4, "load large", "ok"),
        (104.0, 0.1, "load", "lost"),
        (105.0, 0.1, "lookup", "ok"),
        (110.5, 0.1, "load", "wrong"),  # of the next event
    ]
    ours = row(operations)["ours"]
    assert ours["loads"]["count"] == 4
    assert ours["loads"]["failed"] == 1
    assert ours["loads"]["errors"] == {"Timeout": 1}
    assert ours["loads"]["slow"] == 2
    assert ours["loads"]["worst_ms"] == 400
    assert ours["stores"]["failed"] == 1
    assert ours["stores"]["last_failure_s"] == 2.5
    assert ours["clean_after_s"] == 4.1
    assert row(operations, loses=True)["ours"]["clean_after_s"] == 3.4
    assert ours["wrong"] == 0


def test_wrong_bytes_are_failures() -> None:
    ours = row([(101.0, 0.1, "load large", "wrong")])["ours"]
    assert ours["wrong"] == 1
    assert ours["loads"]["failed"] == 1
    report = {"events": [row([(101.0, 0.1, "load", "wrong")])], "starts": []}
    assert "| 1 |\n" in cluster_table.tables(report)


def test_a_map_is_wrong_until_its_last_long_gap() -> None:
    watcher = object.__new__(cluster_map.MapWatcher)
    watcher.changes = [(90.0, True), (101.0, False), (102.9, True), (104.0, False), (104.05, True)]
    assert watcher.seconds_wrong(100.9, 110.0) == pytest.approx(2.0)
    assert watcher.seconds_wrong(103.0, 110.0) == 0


def test_masters_are_read_from_the_answer() -> None:
    bitmap = "/" + "A" * 681 + "A="
    assert cluster_map.masters(f"lmcache:0,2,{bitmap},{bitmap}") == 0b111111 << 4090
