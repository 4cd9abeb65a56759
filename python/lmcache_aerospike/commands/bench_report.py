# SPDX-License-Identifier: Apache-2.0
"""Tables, recommendation, JSON and plot of the command ``bench``."""

from __future__ import annotations

import json
import math
import statistics
from pathlib import Path
from typing import Any

from rich.table import Table

from lmcache_aerospike.commands.bench_cases import LOOKUP_KEYS, Samples, Shape
from lmcache_aerospike.commands.session import Session, bytes_text

DEFAULT = 4 << 20
MARGIN = 0.2
PHASES = {
    "store": "store, new keys",
    "load": "load, all hits",
    "miss": "load, all misses",
    "lookup": f"look up {LOOKUP_KEYS} keys",
}


def size_text(size: int) -> str:
    """As short as it can be: "4 MiB", "7.94 MiB", "960 KiB"."""
    return bytes_text(size).replace(".00 ", " ")


def row(segment: int, shape: Shape, samples: Samples) -> dict[str, Any]:
    """The numbers of one case."""
    return {
        "segment_bytes": segment,
        "payload_bytes": shape.payload,
        "batch": shape.batch,
        "objects_in_flight": shape.objects,
        "latency": {name: _latency(values) for name, values in samples.latency.items()},
        "bytes_per_second": {name: _spread(values) for name, values in samples.rate.items()},
        "cpu_seconds_per_gib": {
            name: round(statistics.median(values), 4) for name, values in samples.cpu.items()
        },
    }


def recommend(rows: list[dict[str, Any]], capped: int) -> dict[str, Any]:
    """Which segment size to use: the default unless another is better by a stated margin.

    Better means: over all payload sizes together, loads and stores that are sustained are faster
    by the margin, and so they are in the worst round.

    Args:
        rows: Of row().
        capped: The largest segment that the server allows.
    """
    sizes = sorted({entry["segment_bytes"] for entry in rows})
    usual = min(DEFAULT, capped)
    if usual not in sizes:
        return {"segment_bytes": None, "words": f"{size_text(usual)} was not measured"}
    gains = {size: _gain(rows, size, usual) for size in sizes if size != usual}
    better = {size: gain for size, gain in gains.items() if min(gain) >= 1 + MARGIN}
    best = max(better, key=lambda size: statistics.mean(better[size]), default=usual)
    out: dict[str, Any] = {
        "segment_bytes": best,
        "margin": MARGIN,
        "gains": {str(size): [round(g, 3) for g in gain] for size, gain in gains.items()},
    }
    if best == usual:
        out["words"] = (
            f"keep target_segment_bytes at {size_text(usual)}: no other size is better by "
            f"{MARGIN:.0%} for both loads and stores in every round"
        )
    else:
        out["words"] = (
            f"target_segment_bytes={best} ({size_text(best)}) is better than {size_text(usual)} by "
            f"at least {min(better[best]) - 1:.0%} here, for loads and stores in every round; the "
            "default is meant for all deployments, set it for this one"
        )
    if usual < DEFAULT:
        out["words"] += (
            f". The server allows no more than {size_text(capped)}: set max-record-size of the "
            "namespace to 8M in aerospike.conf for larger ones"
        )
    return out


def _gain(rows: list[dict[str, Any]], size: int, usual: int) -> list[float]:
    """Geometric means over payloads, one for each round and direction."""
    by_size = {
        which: {e["payload_bytes"]: e for e in rows if e["segment_bytes"] == which}
        for which in (size, usual)
    }
    gains = []
    for name in ("store", "load"):
        pairs = [
            (by_size[size][payload]["bytes_per_second"][name], other["bytes_per_second"][name])
            for payload, other in by_size[usual].items()
        ]
        for at in range(min(len(ours["values"]) for ours, _ in pairs)):
            logs = [math.log(ours["values"][at] / theirs["values"][at]) for ours, theirs in pairs]
            gains.append(math.exp(statistics.mean(logs)))
    return gains


def show(session: Session, document: dict[str, Any]) -> None:
    """The tables and the recommendation."""
    out = session.output
    for note in document["notes"]:
        out.print(note, soft_wrap=True)
    for payload in document["payload_bytes"]:
        rows = [entry for entry in document["rows"] if entry["payload_bytes"] == payload]
        first = rows[0]
        out.print(
            f"\n[bold]objects of {size_text(payload)}[/], batches of {first['batch']}, "
            f"{first['objects_in_flight']} objects in flight when sustained"
        )
        out.print(_latency_table(rows))
        out.print(_rate_table(rows))
    out.print(f"\n[bold]recommendation:[/] {document['recommendation']['words']}", soft_wrap=True)


def _latency_table(rows: list[dict[str, Any]]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("one batch at a time, ms")
    table.add_column("segment", justify="right")
    for title in ("p50", "p95", "p99", "batches"):
        table.add_column(title, justify="right")
    for phase, title in PHASES.items():
        for i, entry in enumerate(rows):
            cell = entry["latency"][phase]
            table.add_row(
                "" if i else title,
                size_text(entry["segment_bytes"]),
                *(f"{cell[part]:.2f}" for part in ("p50_ms", "p95_ms", "p99_ms")),
                f"{cell['count']:,}",
            )
    return table


def _rate_table(rows: list[dict[str, Any]]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("sustained, median of rounds")
    for title in ("store MiB/s", "load MiB/s", "store CPU s/GiB", "load CPU s/GiB"):
        table.add_column(title, justify="right")
    for entry in rows:
        rate, cpu = entry["bytes_per_second"], entry["cpu_seconds_per_gib"]
        table.add_row(
            size_text(entry["segment_bytes"]) + " segments",
            *(f"{rate[name]['median'] / (1 << 20):,.0f}" for name in ("store", "load")),
            *(f"{cpu[name]:.2f}" for name in ("store", "load")),
        )
    return table


def write(document: dict[str, Any], output: Path) -> list[str]:
    """Writes the JSON document and, if matplotlib is there, the plot.

    Returns:
        What was written, or why not.
    """
    base = output.with_suffix("") if output.suffix in {".json", ".png"} else output
    path = base.with_name(base.name + ".json")
    path.write_text(json.dumps(document, indent=1) + "\n", encoding="utf-8")
    said = [f"numbers: {path}"]
    picture = base.with_name(base.name + ".png")
    try:
        _plot(document, picture)
    except ImportError:
        said.append("no plot: it needs matplotlib: pip install 'lmcache-aerospike[bench]'")
    else:
        said.append(f"plot: {picture}")
    return said


def _plot(document: dict[str, Any], path: Path) -> None:
    """Rates above, latencies below; one column for each payload size."""
    import matplotlib as mpl  # noqa: PLC0415 - an optional part of the package

    mpl.use("Agg")
    from matplotlib import pyplot as plt  # noqa: PLC0415

    payloads = document["payload_bytes"]
    figure, axes = plt.subplots(
        2, len(payloads), figsize=(4.2 * len(payloads) + 0.6, 6.6), squeeze=False
    )
    colors = {"store": "#d9822b", "load": "#2563b8"}
    for column, payload in enumerate(payloads):
        rows = [entry for entry in document["rows"] if entry["payload_bytes"] == payload]
        names = [size_text(entry["segment_bytes"]) for entry in rows]
        above, below = axes[0][column], axes[1][column]
        for offset, (name, color) in zip((-0.2, 0.2), colors.items(), strict=True):
            rates = [entry["bytes_per_second"][name] for entry in rows]
            medians = [rate["median"] / (1 << 20) for rate in rates]
            spread = [
                [m - min(r["values"]) / (1 << 20) for m, r in zip(medians, rates, strict=True)],
                [max(r["values"]) / (1 << 20) - m for m, r in zip(medians, rates, strict=True)],
            ]
            places = [at + offset for at in range(len(rows))]
            above.bar(places, medians, 0.36, color=color, label=name, yerr=spread, capsize=3)
            cells = [entry["latency"][name] for entry in rows]
            middle = [cell["p50_ms"] for cell in cells]
            tail = [cell["p99_ms"] for cell in cells]
            below.vlines(places, middle, tail, color=color, linewidth=2)
            below.scatter(places, middle, color=color, s=36, zorder=3)
            below.scatter(places, tail, color=color, marker="_", s=120)
        above.set_title(f"objects of {size_text(payload)}", fontsize=11)
        for axis in (above, below):
            axis.set_xticks(range(len(rows)), names)
            axis.set_ylim(bottom=0)
            axis.spines[["top", "right"]].set_visible(False)
            axis.grid(axis="y", linewidth=0.5, alpha=0.5)
            axis.set_axisbelow(True)
        below.set_xlabel("segment size")
    axes[0][0].set_ylabel("MiB/s sustained; whiskers: all rounds")
    axes[1][0].set_ylabel(f"ms for a batch of {document['batch']}: dot p50, dash p99")
    marks, names = axes[0][0].get_legend_handles_labels()
    figure.tight_layout(rect=(0, 0, 1, 0.95))
    figure.legend(marks, names, loc="upper right", ncols=2, frameon=False)
    figure.savefig(path, dpi=130)
    plt.close(figure)


def _latency(seconds: list[float]) -> dict[str, float]:
    ordered = sorted(seconds)
    out: dict[str, float] = {"count": len(ordered)}
    for name, part in (("p50_ms", 0.5), ("p95_ms", 0.95), ("p99_ms", 0.99)):
        at = max(0, math.ceil(part * len(ordered)) - 1)
        out[name] = round(ordered[at] * 1000, 3) if ordered else 0.0
    return out


def _spread(values: list[float]) -> dict[str, Any]:
    return {"median": round(statistics.median(values)), "values": [round(v) for v in values]}
