# SPDX-License-Identifier: Apache-2.0
"""Puts the report of a replay together, writes its files and says the gist."""

from __future__ import annotations

import json
import shlex
import sys
from collections.abc import Sequence
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

from rich.table import Table

from lmcache_aerospike import __version__
from lmcache_aerospike.commands._replay import summary
from lmcache_aerospike.commands._replay.driver import Plan, Run
from lmcache_aerospike.commands._replay.models import MODELS
from lmcache_aerospike.commands._replay.page import duration, lead, page
from lmcache_aerospike.commands._replay.trace import Request
from lmcache_aerospike.commands.session import Session, bytes_text
from lmcache_aerospike.config import HIDDEN
from lmcache_aerospike.store import Store

_CAPACITY_KEYS = ("data_total_bytes", "device_total_bytes", "memory-size")


def document(
    trace: Path, rows: Sequence[Request], run: Run, plan: Plan, cluster: dict[str, Any]
) -> dict[str, Any]:
    """Everything about a run but the prefill saved and the comparison."""
    return {
        "version": __version__,
        "date": datetime.now(timezone.utc).isoformat(timespec="seconds"),
        "command": _command(),
        "trace": {"name": trace.name, **summary.of_trace(rows)},
        "server": cluster,
        "plan": {
            "chunk_bytes": plan.chunk_bytes,
            "block_tokens": plan.block_tokens,
            "speed": "max" if plan.speed == float("inf") else plan.speed,
            "in_flight": plan.in_flight,
            "ttl_seconds": plan.ttl_seconds,
            "refresh_ttl_on_read": plan.refresh,
        },
        "result": summary.of_run(run, rows, plan),
        "series": summary.series(run, rows, plan),
        "distributions": summary.distributions(run),
    }


def saving(
    result: dict[str, Any], plan: Plan, model: str | None, rate: float | None
) -> dict[str, Any]:
    """Prefill saved, for a model of the table or at a rate of prompt tokens a second."""
    known = MODELS[model] if model else None
    return summary.of_saving(result, plan, known, rate or MODELS[model or ""].prefill_rate)


def capacity_of(store: Store, namespace: str) -> int | None:
    """Bytes that the namespace may hold on all nodes, copies included; None if nobody says."""
    total = 0
    for answer in store.info(f"namespace/{namespace}").values():
        pairs = str(answer).split(";") if isinstance(answer, str) else []
        values = dict(pair.split("=", 1) for pair in pairs if "=" in pair)
        found = next((values[key] for key in _CAPACITY_KEYS if values.get(key, "0") != "0"), "")
        total += int(found) if found.isdecimal() else 0
    return total or None


def write(report: dict[str, Any], output: Path) -> list[Path]:
    """Writes the page and the JSON document; returns their paths."""
    base = output.with_suffix("") if output.suffix in {".html", ".json"} else output
    files = [base.with_name(base.name + end) for end in (".html", ".json")]
    files[0].write_text(page(report), encoding="utf-8")
    files[1].write_text(json.dumps(report, indent=1) + "\n", encoding="utf-8")
    return files


def show(session: Session, report: dict[str, Any], files: Sequence[Path]) -> None:
    """The gist on the terminal, or all of it as JSON."""
    if session.json:
        session.write_json(report)
    else:
        _print(session, report)
    for line in report["result"]["wrong"]:
        session.say(f"lmcache-aerospike: wrong bytes: {line}")
    session.say(f"report: {files[0]}, {files[1]}")


def _print(session: Session, report: dict[str, Any]) -> None:
    out, result, saved = session.output, report["result"], report["saved"]
    out.print(lead(report), soft_wrap=True)
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("")
    for title in ("requests", "p50 ms", "p95 ms", "p99 ms", "max ms"):
        table.add_column(title, justify="right")
    for name, row in result["latency"].items():
        parts = (f"{row[part]:.2f}" for part in ("p50_ms", "p95_ms", "p99_ms", "max_ms"))
        table.add_row(name, f"{row['count']:,}", *parts)
    out.print()
    out.print(table)
    out.print()
    rate = (result["bytes_loaded"] + result["bytes_stored"]) / max(result["seconds"], 1e-9)
    out.print(
        f"loaded {bytes_text(result['bytes_loaded'])}, stored {bytes_text(result['bytes_stored'])} "
        f"in {result['seconds']:.2f} s, {bytes_text(rate)}/s"
    )
    misses = (f"{reason} {count:,}" for reason, count in result["misses_by_reason"].items())
    out.print(f"misses: {', '.join(misses) or 'none'}", soft_wrap=True)
    if report["plan"]["speed"] != "max":
        wait = result["queueing"]
        out.print(
            f"started late: {wait['late_requests']:,} requests, at most {wait['max_ms']:.1f} ms; "
            f"speed reached {result['speed_reached']:g}"
        )
    out.print(
        f"prefill saved: {duration(saved['prefill_seconds_saved'])} of "
        f"{duration(saved['prefill_seconds'])} ({saved['model'] or 'stated rate'}, "
        f"{saved['prefill_tokens_per_second']:,} tokens/s)"
    )
    for message, count in result["store_errors"].items():
        out.print(f"not stored: {count:,} blocks: {message}", markup=False, soft_wrap=True)
    if "check" in report:
        style = "green" if report["check"]["ok"] else "bold red"
        out.print(f"[{style}]{report['check']['words']}[/]", soft_wrap=True)
    if result["hit_blocks"] and not result["wrong_chunks"]:
        out.print("[green]Every byte that was loaded is the one that was stored.[/]")


def _command() -> str:
    """The command line without secrets."""
    words = [
        word.split("=", 1)[0] + f"={HIDDEN}" if "password=" in word else word
        for word in sys.argv[1:]
    ]
    return shlex.join(["lmcache-aerospike", *words])
