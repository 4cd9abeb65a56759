# SPDX-License-Identifier: Apache-2.0
"""Medians, ratios, tables and the plot of a run."""

from __future__ import annotations

import platform
import statistics
import subprocess
from collections.abc import Mapping, Sequence
from importlib import metadata
from pathlib import Path
from typing import Any

from contestants import FILES, NAMES, OURS, RESP, TITLES
from lmcache_bench import NO_STORE, SIZES, Results

GOALS = {"store_fresh": 1.8, "store_again": 1.8, "load": 1.6, "lookup": 10.0}
WORDS = {
    "store_fresh": "store, new keys",
    "store_again": "store, overwriting",
    "load": "load",
    "lookup": "look up 1,000 keys",
}


def size_name(kib: int) -> str:
    """As in the tables: 64 KB, 4 MB."""
    return f"{kib} KB" if kib < 1024 else f"{kib // 1024} MB"


def summary(results: Results) -> dict[str, Any]:
    """Medians and spread of every metric, size and contestant, and the ratios to resp."""
    out: dict[str, Any] = {}
    for metric, by_size in results.items():
        for kib, by_name in by_size.items():
            row: dict[str, Any] = {}
            for name, values in by_name.items():
                quartiles = statistics.quantiles(values, n=4) if len(values) > 1 else values * 3
                row[name] = {
                    "median": statistics.median(values),
                    "quartiles": [quartiles[0], quartiles[2]],
                    "values": [float(f"{value:.4g}") for value in values],
                }
            # Values of one round were measured one after the other: what else the machine did in
            # those moments is in both, so the ratio is taken round by round.
            for other in (RESP, FILES):
                pairs = zip(by_name.get(OURS, ()), by_name.get(other, ()), strict=True)
                ratios = [ours / theirs for ours, theirs in pairs if theirs > 0]
                if ratios:
                    row[f"ratio_to_{other}"] = statistics.median(ratios)
            out.setdefault(metric, {})[str(kib)] = row
    return out


def goals(summaries: Mapping[str, Any]) -> list[dict[str, Any]]:
    """Every goal with what was reached."""
    rows = []
    for metric, goal in GOALS.items():
        for kib, row in summaries.get(metric, {}).items():
            ratio = row.get(f"ratio_to_{RESP}")
            if ratio is not None:
                name = WORDS[metric] + ("" if metric == "lookup" else f", {size_name(int(kib))}")
                rows.append({"what": name, "goal": goal, "reached": ratio, "met": ratio >= goal})
    return rows


def table(head: Sequence[str], rows: Sequence[Sequence[str]]) -> str:
    lines = ["| " + " | ".join(head) + " |"]
    lines.append("|" + " --- |" * len(head))
    lines += ["| " + " | ".join(row) + " |" for row in rows]
    return "\n".join(lines)


def _spread(cell: Mapping[str, Any]) -> str:
    low, high = cell["quartiles"]
    return f"{cell['median']:,.0f} ({low:,.0f} to {high:,.0f})"


def throughput_table(summaries: Mapping[str, Any]) -> str:
    """MiB/s of stores and loads, with quartiles, and the ratio to resp."""
    rows = []
    for metric in ("store_fresh", "store_again", "load"):
        for kib, keys in SIZES:
            row = summaries.get(metric, {}).get(str(kib))
            if not row:
                continue
            ratio = row[f"ratio_to_{RESP}"]
            mark = "" if ratio >= GOALS[metric] else " (below)"
            rows.append(
                [WORDS[metric], f"{size_name(kib)} x {keys}"]
                + [_spread(row[name]) for name in NAMES]
                + [f"{ratio:.2f}{mark}", f"{row[f'ratio_to_{FILES}']:.2f}"]
            )
    head = ["MiB/s", "objects", *NAMES, f"{OURS} / {RESP}", f"{OURS} / {FILES}"]
    return table(head, rows)


def lookup_table(summaries: Mapping[str, Any]) -> str:
    """Keys per second."""
    row = summaries["lookup"]["1"]
    ratio = row[f"ratio_to_{RESP}"]
    mark = "" if ratio >= GOALS["lookup"] else " (below)"
    names = [*NAMES, *([NO_STORE] if NO_STORE in row else [])]
    cells = ["1,000"] + [_spread(row[name]) for name in names] + [f"{ratio:.1f}{mark}"]
    return table(["keys in one lookup: keys/s", *names, f"{OURS} / {RESP}"], [cells])


def cpu_table(summaries: Mapping[str, Any]) -> str:
    """CPU seconds of the client for a GiB."""
    rows = []
    for metric in ("store_fresh_cpu", "store_again_cpu", "load_cpu"):
        for kib, keys in SIZES:
            row = summaries.get(metric, {}).get(str(kib))
            if row:
                words = WORDS[metric.removesuffix("_cpu")]
                cells = [f"{row[name]['median']:.2f}" for name in NAMES]
                rows.append([words, f"{size_name(kib)} x {keys}", *cells])
    return table(["client CPU s/GiB", "objects", *NAMES], rows)


def machine() -> dict[str, Any]:
    """What the numbers depend on."""
    model = cores = ""
    for line in Path("/proc/cpuinfo").read_text().splitlines():
        if line.startswith("model name"):
            model = line.partition(":")[2].strip()
    cores = str(len(list(Path("/sys/devices/system/cpu").glob("cpu[0-9]*"))))
    memory = Path("/proc/meminfo").read_text().split(None, 2)[1]
    versions = {}
    for package in ("lmcache", "torch", "numpy"):
        try:
            versions[package] = metadata.version(package)
        except metadata.PackageNotFoundError:
            versions[package] = "not installed"
    redis = subprocess.run(
        ["redis-server", "--version"], capture_output=True, text=True, check=True
    )
    return {
        "redis": "redis-server " + redis.stdout.partition("v=")[2].split()[0],
        "cpu": model,
        "cores": int(cores),
        "memory_gib": round(int(memory) / (1 << 20), 1),
        "kernel": platform.release(),
        "python": platform.python_version(),
        **versions,
    }


def plot(summaries: Mapping[str, Any], path: Path) -> None:
    """Throughput by object size, and lookups, as a PNG."""
    import matplotlib as mpl

    mpl.use("Agg")
    from matplotlib import pyplot as plt

    figure, axes = plt.subplots(1, 4, figsize=(16, 4.2), width_ratios=[3, 3, 3, 1.2])
    colors = dict(zip(NAMES, ("#c0392b", "#7f8c8d", "#bdc3c7"), strict=True))
    width = 0.27
    for axis, metric in zip(axes, ("store_fresh", "store_again", "load"), strict=False):
        # fs_native does not write a file that exists.
        for index, name in enumerate(NAMES if metric != "store_again" else (OURS, RESP)):
            cells = [summaries[metric][str(kib)][name] for kib, _ in SIZES]
            places = [i + (index - 1) * width for i in range(len(SIZES))]
            heights = [cell["median"] / 1024 for cell in cells]
            errors = [
                [(c["median"] - c["quartiles"][0]) / 1024 for c in cells],
                [(c["quartiles"][1] - c["median"]) / 1024 for c in cells],
            ]
            axis.bar(places, heights, width, yerr=errors, label=TITLES[name], color=colors[name])
        axis.set_xticks(range(len(SIZES)), [size_name(kib) for kib, _ in SIZES])
        axis.set_title(WORDS[metric])
        axis.set_ylabel("GiB/s")
    lookups = summaries["lookup"]["1"]
    axes[3].bar(range(3), [lookups[n]["median"] / 1e3 for n in NAMES], color=list(colors.values()))
    axes[3].set_xticks(range(3), NAMES, rotation=30)
    axes[3].set_title(WORDS["lookup"])
    axes[3].set_ylabel("thousand keys/s")
    figure.legend(*axes[0].get_legend_handles_labels(), loc="lower center", ncols=3, frameon=False)
    figure.tight_layout(rect=(0, 0.06, 1, 1))
    figure.savefig(path, dpi=100)
    plt.close(figure)
