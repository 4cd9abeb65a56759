# SPDX-License-Identifier: Apache-2.0
"""``stat``: one object and its records, or the cluster."""

from __future__ import annotations

import time
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table
from rich.text import Text

from lmcache_aerospike.commands._selection import parse_key
from lmcache_aerospike.commands.session import (
    MISS,
    Session,
    bytes_text,
    duration_text,
    stop,
)
from lmcache_aerospike.errors import CorruptionError
from lmcache_aerospike.store import Store

if TYPE_CHECKING:
    from lmcache_aerospike._native import NodeStats, ObjectDetails, StoreLimits

# Two writes of one store can fall into different seconds.
_EXPIRY_TOLERANCE = 1


@dataclass
class Check:
    """One thing that must be right for the object to load.

    Attributes:
        name: What was looked at.
        status: "ok", "fail" or "skipped".
        detail: What was found.
    """

    name: str
    status: str
    detail: str


def stat(
    session: Session,
    key: Annotated[str | None, typer.Argument(help="Key; without one, the cluster.")] = None,
    verify: Annotated[bool, typer.Option("--verify", help="Also load and hash it.")] = False,
) -> None:
    """Show an object, its records and whether they fit together; or the cluster."""
    with session.open() as store:
        if key is None:
            _show_cluster(session, store.limits(), store.stats()["nodes"])
            return
        details = _inspect(session, store, key)
    checks = [_records(details), _sums(details), _expiry(details)]
    if verify:
        checks.append(_load(session, details, key))
    if session.json:
        session.write_json({**details, "checks": [asdict(check) for check in checks]})
    else:
        _show_object(session, details, checks)
    if any(check.status == "fail" for check in checks):
        session.say(f"lmcache-aerospike: {key}: incomplete, loads are misses; store it again")
        stop(MISS)


def _inspect(session: Session, store: Store, key: str) -> ObjectDetails:
    try:
        details = store.inspect(key)
    except CorruptionError as error:
        session.say(f"lmcache-aerospike: {key}: damaged, loads are misses: {error}; store it again")
        stop(MISS)
    if details is None:
        if session.json:
            session.write_json(None)
        session.say(f"lmcache-aerospike: {key}: not found")
        stop(MISS)
    return details


def _records(details: ObjectDetails) -> Check:
    absent = [r["user_key"].rpartition("|")[2] for r in details["records"] if not r["present"]]
    if not absent:
        return Check("records", "ok", f"all {len(details['records'])} are there")
    names = ", ".join(absent[:10]) + (", ..." if len(absent) > 10 else "")
    return Check("records", "fail", f"{len(absent)} are missing: segment {names}")


def _sums(details: ObjectDetails) -> Check:
    if not details["has_sums"]:
        return Check("sums", "skipped", "stored by a writer that makes none; --verify loads it")
    segments = [record for record in details["records"][1:] if record["present"]]
    other = sum(record["sum_agrees"] is False for record in segments)
    if other:
        return Check("sums", "fail", f"{other} segments belong to another write of the object")
    if not segments:
        return Check("sums", "ok", "the payload is in the meta record")
    return Check("sums", "ok", "all segments belong to one write")


def _expiry(details: ObjectDetails) -> Check:
    end = details["expires_in"]
    early = 0
    for record in details["records"][1:]:
        other = record["expires_in"]
        if not record["present"] or other is None:
            continue
        early += end is None or other + _EXPIRY_TOLERANCE < end
    if early:
        return Check("expiry", "fail", f"{early} segments expire before the object")
    return Check("expiry", "ok", "no segment expires before the object")


def _load(session: Session, details: ObjectDetails, key: str) -> Check:
    """Loads the object with every check that there is."""
    given = session.given()
    has_serde = session.resolved().values["serde"] is not None
    if details["serde"] is not None and not has_serde:
        detail = f"""needs the serde: --option serde='{{"type": ...}}' for {details["serde"]}"""
        return Check("load", "skipped", detail)
    with Store(**{**given, "verify": "full"}) as store:
        started = time.monotonic()
        loaded = store.get_into(key, bytearray(details["raw_bytes"]))
        seconds = time.monotonic() - started
        reasons = store.stats()["misses_by_reason"]
    if loaded is None:
        why = ", ".join(name for name, count in reasons.items() if count) or "not found"
        return Check("load", "fail", f"a miss: {why}")
    return Check("load", "ok", f"{bytes_text(loaded)} loaded and hashed in {seconds:.3f} s")


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


def _show_object(session: Session, details: ObjectDetails, checks: list[Check]) -> None:
    sums = [n for n, has in (("xxh3", "has_sums"), ("crc32", "has_crc32")) if details[has]]  # type: ignore[literal-required]
    parts = parse_key(details["key"])
    rows = {
        "key": details["key"] or "(not stored)",
        **({"model": parts.model, "cache salt": parts.salt or "none"} if parts else {}),
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
    rows.update({f"check {c.name}": f"{c.status}: {c.detail}" for c in checks})
    session.output.print(_pairs(rows))
    table = Table(box=None, pad_edge=False, header_style="bold")
    for title in ("record", "node", "generation", "expires in", "digest"):
        table.add_column(title)
    for record in details["records"]:
        if record["present"]:
            cells = (record["node"], str(record["generation"]), duration_text(record["expires_in"]))
        else:
            cells = (record["node"], "missing", "")
        name = record["user_key"].removeprefix(details["key"] or "")
        table.add_row(Text(name), *cells, record["digest"])
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
        state = "probed" if node["probed"] else "suspect" if node["suspect"] else "ok"
        table.add_row(node["name"], node["address"], state)
    session.output.print(table)
    session.output.print()
    rows = {
        name.replace("_", " "): str(value) for name, value in limits.items() if name != "warnings"
    }
    session.output.print(_pairs(rows))
