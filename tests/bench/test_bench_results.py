# SPDX-License-Identifier: Apache-2.0
"""Medians, ratios, goals and tables of a run."""

from __future__ import annotations

from pathlib import Path

import pytest

engine_results = pytest.importorskip("engine_results")
results = pytest.importorskip("results")
lmcache_bench = pytest.importorskip("lmcache_bench")

OURS, RESP, FILES = results.NAMES


def sample(ours: float, resp: float, files: float) -> dict[str, object]:
    """A summary in which every metric has these values, in three rounds of growing load."""
    table = lmcache_bench.new_results()
    for factor in (1.0, 0.5, 0.25):
        for metric in ("store_fresh", "store_again", "load", "load_cpu", "store_fresh_cpu"):
            for kib, _ in lmcache_bench.SIZES:
                for name, value in ((OURS, ours), (RESP, resp), (FILES, files)):
                    table[metric][kib][name].append(value * factor)
        for name, value in ((OURS, ours), (RESP, resp), (FILES, files)):
            table["lookup"][1][name].append(value * factor)
    summaries: dict[str, object] = results.summary(table)
    return summaries


def test_ratio_is_taken_round_by_round() -> None:
    table = lmcache_bench.new_results()
    # The machine slowed down in the second half: the ratio of the medians would be 1.1.
    table["load"][64][OURS] += [100, 100, 20, 22, 20]
    table["load"][64][RESP] += [50, 50, 10, 20, 10]
    table["load"][64][FILES] += [100, 100, 20, 22, 20]
    row = results.summary(table)["load"]["64"]
    assert row["ratio_to_resp"] == 2
    assert row["ratio_to_fs_native"] == 1
    assert row[OURS]["median"] == 22


def test_goals_are_met_or_not() -> None:
    met = {goal["what"]: goal["met"] for goal in results.goals(sample(1800, 1000, 900))}
    assert met["store, new keys, 64 KB"] is True
    assert met["load, 16 MB"] is True
    assert met["look up 1,000 keys"] is False
    none = [goal for goal in results.goals(sample(1500, 1000, 900)) if goal["met"]]
    assert none == []


def test_tables_mark_what_is_below_its_goal() -> None:
    text = results.throughput_table(sample(1700, 1000, 900))
    stores = [line for line in text.splitlines() if line.startswith("| store")]
    loads = [line for line in text.splitlines() if line.startswith("| load")]
    assert len(stores) == 2 * len(loads) == 2 * len(lmcache_bench.SIZES)
    assert all("1.70 (below)" in line for line in stores)
    assert all("(below)" not in line for line in loads)
    assert "(below)" in results.lookup_table(sample(1700, 1000, 900))
    assert "| load | 16 MB x 4 | 850.00 |" in results.cpu_table(sample(1700, 1000, 900))


def test_plot_is_written(tmp_path: Path) -> None:
    path = tmp_path / "plot.png"
    results.plot(sample(1700, 1000, 900), path)
    assert path.read_bytes().startswith(b"\x89PNG")


def test_engine_goals() -> None:
    cell = {"gb_per_s": {"median": 2.0}, "cpu_s_per_gb": {"median": 0.2}}
    names = ("load", "store", "recv_1", "recv_2", "send_1", "send_2", "memcpy")
    ratios = {"load_cpu_ratio_1": 1.5, "load_cpu_ratio_2": 1.1}
    ratios |= {"store_cpu_ratio_1": 1.0, "store_cpu_ratio_2": 1.0}
    transfer = {"object_bytes": 4_000_000, "objects": 2, "goal": 1.4, "goal_met": False, **ratios}
    report = {"transfer": [{**transfer, **dict.fromkeys(names, cell)}]}
    (goal,) = engine_results.goals(report)
    assert goal["reached"] == 1.5
    assert not goal["met"]
    text = engine_results.tables(report)
    assert "| 4 MB x 2 | 2.00 |" in text
    assert engine_results.tables({}) == ""
