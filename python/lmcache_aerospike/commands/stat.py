# SPDX-License-Identifier: Apache-2.0
"""``stat``: one object and its records, or the cluster."""

from __future__ import annotations

import time
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table
from rich.text import Text

from lmcache_aerospike.commands.session import (
    MISS,
    Session,
    bytes_text,
    duration_text,
    stop,
)

if TYPE_CHECKING:
    from lmcache_aerospike._native import NodeStats, ObjectDetails, StoreLimits


def stat(
    session: Session,
    key: Annotated[str | None, typer.Argument(help="Key; without one, the cluster.")] = None,
) -> None:
    """Show an object and its records, or the cluster."""
    with session.open() as store:
        if key is None:
            _show_cluster(session, store.limits(), store.stats()["nodes"])
            return
        details = store.inspect(key)
    if details is None:
        if session.json:
            session.write_json(None)
        session.say(f"lmcache-aerospike: {key}: not found")
        stop(MISS)
    if session.json:
        session.write_json(details)
    else:
        _show_object(session, details)
    if not details["ready"] or not all(record["present"] for record in details["records"]):
        session.say(f"lmcache-aerospike: {key}: incomplete, loads are misses; store it again")
        stop(MISS)


def _pairs(rows: dict[str, str]) -> Table:
    table = Table(box=None, pad_edge=False, show_header=False)
    table.add_column(style="bold")
    table.add_column(overflow="fold")
    for name, value in rows.items():
        table.add_row(name, Text(value))
    return table


def _serde_text(details: ObjectDetails) -> str:
    if details["serde"] is None:
        return "none"
    return f"{details['serde']}, {bytes_text(details['raw_bytes'])} before it"


def _show_object(session: Session, details: ObjectDetails) -> None:
    sums = [n for n, has in (("xxh3", "has_sums"), ("crc32", "has_crc32")) if details[has]]  # type: ignore[literal-required]
    session.output.print(
        _pairs(
            {
                "key": details["key"] or "(not stored)",
                "digest": details["digest"],
                "bytes": f"{details['bytes']} ({bytes_text(details['bytes'])})",
                "serde": _serde_text(details),
                "segments": f"{details['segment_count']} of {details['segment_bytes']} bytes",
                "age": duration_text(time.time() - details["created_at"]),
                "expires in": duration_text(details["expires_in"]),
                "generation": str(details["generation"]),
                "pinned": "yes" if details["pin"] else "no",
                "sums": ", ".join(sums) or "none",
                "metadata": bytes_text(details["metadata_bytes"]),
            }
        )
    )
    table = Table(box=None, pad_edge=False, header_style="bold")
    for title in ("record", "node", "generation", "expires in"):
        table.add_column(title)
    for record in details["records"]:
        if record["present"]:
            cells = (record["node"], str(record["generation"]), duration_text(record["expires_in"]))
        else:
            cells = (record["node"], "missing", "")
        table.add_row(Text(record["user_key"].removeprefix(details["key"] or "")), *cells)
    session.output.print()
    session.output.print(table)


def _show_cluster(session: Session, limits: StoreLimits, nodes: list[NodeStats]) -> None:
    if session.json:
        session.write_json({"limits": limits, "nodes": nodes})
        return
    table = Table(box=None, pad_edge=False, header_style="bold")
    for title in ("node", "address", "state"):
        table.add_column(title)
    for node in nodes:
        state = "suspect" if node["suspect"] else "ok"
        table.add_row(node["name"], node["address"], state)
    session.output.print(table)
    session.output.print()
    rows = {
        name.replace("_", " "): str(value) for name, value in limits.items() if name != "warnings"
    }
    session.output.print(_pairs(rows))
