# SPDX-License-Identifier: Apache-2.0
"""Tables and goals of what was measured without Python."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from results import table

Report = Mapping[str, Any]


def _rate(cell: Report) -> str:
    return f"{cell['gb_per_s']['median']:.2f}"


def _cpu(cell: Report) -> str:
    return f"{cell['cpu_s_per_gb']['median']:.3f}"


def _transfer(engine: Report) -> str:
    parts = []
    for name, bare in (("load", "recv"), ("store", "send")):
        head = ["objects", f"{name} GB/s", f"{bare} on 1", f"{bare} on 2 connections", "memcpy"]
        head += [f"{name} CPU s/GB", f"{bare} on 1", "on 2", "ratio on 1", "on 2"]
        rows = [
            [f"{row['object_bytes'] // 1_000_000} MB x {row['objects']}", _rate(row[name])]
            + [_rate(row[f"{bare}_1"]), _rate(row[f"{bare}_2"]), _rate(row["memcpy"])]
            + [_cpu(row[name]), _cpu(row[f"{bare}_1"]), _cpu(row[f"{bare}_2"])]
            + [f"{row[f'{name}_cpu_ratio_{n}']:.2f}" for n in (1, 2)]
            for row in engine.get("transfer", ())
        ]
        if rows:
            parts.append(table(head, rows))
    return "\n\n".join(parts)


def _batch(engine: Report) -> str:
    head = ["batches as in `lmcache bench l2`, GB/s (CPU s/GB client + server)", "store, new keys"]
    head += ["store, overwriting", "load"]
    rows = []
    for row in engine.get("batch", ()):
        cells = [f"{row['object_bytes'] >> 10} KB x {row['objects']}"]
        for metric in ("store_fresh", "store_again", "load"):
            cell = row[metric]
            client, server = (cell[f"{s}_cpu_s_per_gb"]["median"] for s in ("client", "server"))
            cells.append(f"{_rate(cell)} ({client:.2f} + {server:.2f})")
        rows.append(cells)
    return table(head, rows) if rows else ""


def _lookup(engine: Report) -> str:
    rows = [
        [f"{row['keys']:,}", f"{row['keys_per_s']['median']:,.0f}", f"{row['p50_ms']:.2f}"]
        + [f"{row['p99_ms']:.2f}", f"{row['cpu_us_per_key']['median']:.2f}"]
        for row in engine.get("lookup", ())
    ]
    head = ["keys in one lookup", "keys/s", "p50 ms", "p99 ms", "CPU us/key"]
    return table(head, rows) if rows else ""


def _latency(engine: Report) -> str:
    rows = [
        [f"{row['objects']} x {row['object_bytes'] // 1_000_000} MB", row["kind"]]
        + [f"{row['without_ms']['median']:.1f}", f"{row['with_ms']['median']:.1f}"]
        + [f"{row['added_ms']:.1f}", f"{row['added_first_ms']:.1f}"]
        for row in engine.get("latency", ())
    ]
    head = ["one load of", "10 ms for each request", "without ms", "with ms", "added ms"]
    return table([*head, "added to the first load, ms"], rows) if rows else ""


def _memory(engine: Report) -> str:
    rows = [
        [f"{row['max_bytes_in_flight'] >> 20} MiB", f"{row['bytes_in_flight_peak'] / 1e6:.1f}"]
        + [f"{row[f'{name}_resident_growth'] / 1e6:.1f}" for name in ("store", "load")]
        for row in engine.get("memory", ())
    ]
    head = [
        "max_bytes_in_flight",
        "in flight at most, MB",
        "resident growth: store, MB",
        "load, MB",
    ]
    return table(head, rows) if rows else ""


def _micro(engine: Report) -> str:
    rows = [
        [row["name"].replace("_", " "), f"{row['cpu_time'] / 1e3:,.1f}"]
        + [f"{row['items_per_second'] / 1e6:.2f}" if "items_per_second" in row else ""]
        + [f"{row['bytes_per_second'] / 1e9:.1f}" if "bytes_per_second" in row else ""]
        for row in engine.get("micro", ())
    ]
    return table(["pure parts", "CPU us", "million/s", "GB/s"], rows) if rows else ""


def tables(engine: Report) -> str:
    """All tables."""
    parts = (_transfer, _batch, _lookup, _latency, _memory, _micro)
    return "\n\n".join(text for text in (part(engine) for part in parts) if text)


def goals(engine: Report) -> list[dict[str, Any]]:
    """Every goal with what was reached; here less is better."""
    rows = []
    for row in engine.get("transfer", ()):
        reached = max(row["load_cpu_ratio_1"], row["load_cpu_ratio_2"])
        what = f"CPU of a load over a bare recv loop, {row['object_bytes'] // 1_000_000} MB"
        rows.append({"what": what, "goal": row["goal"], "reached": reached, "met": row["goal_met"]})
    for row in engine.get("latency", ()):
        size = f"{row['objects']} x {row['object_bytes'] // 1_000_000} MB"
        what = f"ms added by 10 ms for each request ({row['kind']}), {size}"
        rows.append(
            {"what": what, "goal": row["goal"], "reached": row["added_ms"], "met": row["goal_met"]}
        )
    for row in engine.get("memory", ()):
        names = ("bytes_in_flight_peak", "store_resident_growth", "load_resident_growth")
        what = f"MB in flight, or grown, under a budget of {row['max_bytes_in_flight'] >> 20} MiB"
        reached = max(row[name] for name in names) / 1e6
        goal = round(row["goal"] / 1e6, 1)
        rows.append({"what": what, "goal": goal, "reached": reached, "met": row["goal_met"]})
    return rows
