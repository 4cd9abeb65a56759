# SPDX-License-Identifier: Apache-2.0
"""``ls``: the objects of the set."""

from __future__ import annotations

import itertools
import time
from collections.abc import Iterator
from typing import TYPE_CHECKING, Annotated

import typer
from rich.table import Table
from rich.text import Text

from lmcache_aerospike.commands.session import Session, bytes_text, duration_text

if TYPE_CHECKING:
    from lmcache_aerospike._native import ObjectInfo
    from lmcache_aerospike.store import Store

_CURSOR_END = 4096
_PAGE = 1000


def ls(
    session: Session,
    prefix: Annotated[str, typer.Option(help="Only keys that start with this.")] = "",
    limit: Annotated[int, typer.Option(min=0, help="At most so many; 0 = all.")] = 1000,
) -> None:
    """List objects: key, bytes, segments, age, expiry. No order."""
    with session.open() as store:
        found = _objects(store, prefix)
        rows = list(itertools.islice(found, limit or None))
        has_more = bool(limit) and next(found, None) is not None
    if session.json:
        session.write_json(rows)
    elif rows:
        session.output.print(_table(rows))
    if has_more:
        session.say(f"the first {limit} objects; --limit 0 lists all")
    elif not rows:
        session.say("no objects")


def _objects(store: Store, prefix: str) -> Iterator[ObjectInfo]:
    cursor = 0
    while cursor < _CURSOR_END:
        page, cursor = store.list(cursor, _PAGE)
        yield from (entry for entry in page if (entry["key"] or "").startswith(prefix))


def _table(rows: list[ObjectInfo]) -> Table:
    table = Table(box=None, pad_edge=False, header_style="bold")
    table.add_column("key", overflow="fold")
    for title in ("bytes", "segments", "age", "expires in"):
        table.add_column(title, justify="right", no_wrap=True)
    now = time.time()
    for row in rows:
        name = row["key"] if row["key"] is not None else f"(digest {row['digest']})"
        note = f" ({row['serde']})" if row["serde"] else ""
        note += "" if row["ready"] else " (not ready)"
        table.add_row(
            Text(name + note),
            bytes_text(row["bytes"]),
            str(row["segment_count"]),
            duration_text(now - row["created_at"]),
            duration_text(row["expires_in"]),
        )
    return table
